"""The other rooms joined into a run and its report."""
