"""Networks that do not fit into memory are refused while they are built, before anything is written to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from rl_training.data.memory import available_memory
from rl_training.errors import ConfigError

_COPIES = 4
"""Of what is learned: weights, gradients, and Adam's two moments."""
_SHARE = 0.9
"""Of the free memory, as for buffers."""


@contextmanager
def within_memory() -> Iterator[None]:
    """Refuse modules made in here whose parameters need more than the free memory with what learning adds to them.

    Memory that is only reserved costs nothing, so that a parameter may be counted when it was allocated, and is not yet
    filled with numbers. It is a lower bound: copies that follow, and what is made of batches, come on top.
    """
    free = available_memory()
    needed = 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal needed
        if parameter is None or free is None:
            return
        needed += _COPIES * parameter.numel() * parameter.element_size()
        if needed > _SHARE * free:
            raise _refused(needed, free)

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    except RuntimeError as error:
        asked = re.search(
            r"tried to allocate (\d+) bytes", str(error)
        )  # more at once than there could ever be
        if asked is not None and free is not None:
            raise _refused(_COPIES * int(asked[1]), free) from error
        raise ConfigError(f"network: cannot be built: {str(error).splitlines()[0]}") from error
    finally:
        handle.remove()


def _refused(needed: int, free: int) -> ConfigError:
    return ConfigError(
        f"network: weights, gradients and the optimizer's moments need at least {needed / 2**30:,.1f} GiB, "
        f"{free / 2**30:,.1f} GiB are free; smaller layers fit"
    )
