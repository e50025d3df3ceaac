"""Encoder, heads, and the folders they live in."""

import torch

# Torch's vector mathematics sets itself up in its first call. If that call is shared by several threads, some may compute before it is
# ready, with fewer digits, and two processes would make different weights of one seed. One element is computed by one thread.
torch.ones(1).sin()
