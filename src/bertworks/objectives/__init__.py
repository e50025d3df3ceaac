"""Self-supervised losses: an encoder and what it is to predict. One contract, `counts` and `forward`."""
