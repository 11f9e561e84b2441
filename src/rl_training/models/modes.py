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


def has_to_be_switched(network: nn.Module) -> bool:
    """Return false as well if the only parts in doubt are recurrent cores of torch that have no dropout, on the CPU.

    On other devices they keep what their gradient needs only while they are in training mode.
    """
    return any(_may_have_modes(module) and not _is_plain_core(module) for module in network.modules())


def _is_plain_core(module: nn.Module) -> bool:
    if type(module) not in (nn.LSTM, nn.GRU) or module.dropout:
        return False
    hooked = module._forward_pre_hooks or module._forward_hooks
    return not hooked and all(p.device.type == "cpu" for p in module.parameters())


def _may_have_modes(module: nn.Module) -> bool:
    if module._forward_pre_hooks or module._forward_hooks:  # as of spectral normalisation
        return True
    return type(module) not in _SAME and bool(vars(type(module)).get("has_modes", True))
