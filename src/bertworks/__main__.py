"""`python -m bertworks`, for torchrun and for places without the script."""

from bertworks.cli.main import run

run()
