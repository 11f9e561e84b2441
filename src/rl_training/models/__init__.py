"""Networks: from observations to what a head needs. Every network of the modules below can be imported from here."""

import functools
from typing import Any

from torch import nn

from rl_training.lazy import classes_below, export


@functools.cache
def _networks() -> dict[str, str]:
    return classes_below(__name__, nn.Module)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_networks())
    if name.startswith("_"):
        raise AttributeError(name)
    return export(__name__, name, _networks())


def __dir__() -> list[str]:
    return sorted(_networks())
