"""The command line in float64, for tests that compare sums in another order."""

import torch

from bertworks.cli.main import run

if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    run()
