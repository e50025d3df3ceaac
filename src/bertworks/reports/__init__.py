"""Self-contained HTML reports in English and Chinese: of a run, of the tour, and of masked training examples."""
