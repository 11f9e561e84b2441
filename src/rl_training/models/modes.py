"""Whether a network is the same while it learns and while it is used."""

from __future__ import annotations

from torch import nn

_SAME = (
    nn.Linear,
    nn.LayerNorm,
    nn.Identity,
    nn.Sequential,
    nn.ModuleList,
    nn.Flatten,
    nn.Conv2d,
    nn.ReLU,
    nn.Tanh,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
)


def has_modes(network: nn.Module) -> bool:
    """Return false if every part is known to do the same in training and in evaluation, unlike dropout.

    Walking through all modules to switch them back and forth costs as much as a small layer does. A class says of
    itself ``has_modes = False``; that holds for its own code only, neither for its children nor for subclasses.
    """
    return any(map(_may_have_modes, network.modules()))


def _may_have_modes(module: nn.Module) -> bool:
    if module._forward_pre_hooks or module._forward_hooks:  # as of spectral normalisation
        return True
    return type(module) not in _SAME and bool(vars(type(module)).get("has_modes", True))
