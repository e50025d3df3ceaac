"""The training loop, for pre-training and fine-tuning alike: optimizer, budget, evaluation, checkpoints, events."""
