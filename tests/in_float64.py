"""The command line in float64, for tests that compare sums in another order."""

import torch

from bertworks.cli.main import run


def use_float64() -> None:
    torch.set_default_dtype(torch.float64)


if __name__ == "__main__":
    use_float64()
    run()
