"""The one training loop. It is given batches, something with `counts` and `forward`, and a way to evaluate; it knows
nothing else."""
