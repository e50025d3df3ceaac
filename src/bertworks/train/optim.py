"""The optimiser and its learning rate."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bertworks.config import OptimConfig


def make_optimiser(module: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019), all parameters in one call; norms and biases are not pulled towards zero."""
    parameters = dict(module.named_parameters())
    plain = {name: _is_plain(name, parameter) for name, parameter in parameters.items()}
    groups = [
        {"params": [parameters[name] for name in parameters if plain[name] is which], "weight_decay": decay}
        for which, decay in ((False, config.weight_decay), (True, 0.0))
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], config.lr, (config.beta1, config.beta2), config.eps, fused=True
    )


def _is_plain(name: str, parameter: Tensor) -> bool:
    return parameter.ndim < 2 or name.endswith("bias")


def rate(config: OptimConfig, progress: float) -> float:
    """The learning rate at a place in the run, 0 to 1: up in the warm-up, down to zero at the end."""
    if progress < config.warmup:
        return config.lr * progress / config.warmup
    if config.schedule == "constant":
        return config.lr * min(1.0, (1 - progress) / config.cooldown) if config.cooldown else config.lr
    left = (1 - progress) / (1 - config.warmup) if config.warmup < 1 else 0.0
    return config.lr * (left if config.schedule == "linear" else 0.5 - 0.5 * math.cos(math.pi * left))
