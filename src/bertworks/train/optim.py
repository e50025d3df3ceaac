"""The optimiser and its learning rate."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bertworks.config import OptimConfig
from bertworks.model.encoder import parameter_depths
from bertworks.model.partial_embedding import PartialEmbedding


def make_optimizer(module: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019), all parameters in a few calls; norms, biases and embeddings of which few rows
    learn are not pulled towards zero. Each group has a `share` of the learning rate: lower layers learn more slowly if
    the config says so (Howard and Ruder 2018, section 3.2)."""
    depths, partial = (
        parameter_depths(module),
        {id(part.weight) for part in module.modules() if isinstance(part, PartialEmbedding)},
    )
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            lr_scale = config.layer_decay ** depths.get(name, 0)
            decay = 0.0 if _is_norm_or_bias(name, parameter) or id(parameter) in partial else config.weight_decay
            groups.setdefault((lr_scale, decay), []).append(parameter)
    listed = [{"params": members, "weight_decay": decay, "share": share} for (share, decay), members in groups.items()]
    return torch.optim.AdamW(listed, config.lr, (config.beta1, config.beta2), config.eps, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * group["share"]


def _is_norm_or_bias(name: str, parameter: Tensor) -> bool:
    return parameter.ndim < 2 or name.endswith("bias")


def learning_rate(config: OptimConfig, progress: float) -> float:
    """The learning rate at a place in the run, 0 to 1: up in the warm-up, down to zero at the end."""
    if progress < config.warmup:
        return config.lr * progress / config.warmup
    if config.schedule == "constant":
        return config.lr * min(1.0, (1 - progress) / config.cooldown) if config.cooldown else config.lr
    left = (1 - progress) / (1 - config.warmup) if config.warmup < 1 else 0.0
    return config.lr * (left if config.schedule == "linear" else 0.5 - 0.5 * math.cos(math.pi * left))
