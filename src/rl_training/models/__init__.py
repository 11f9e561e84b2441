"""Networks: from observations to what a head needs. Every class of the modules below can be imported from here."""

from typing import Any

from rl_training.lazy import classes_below, export


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return export(__name__, name, classes_below(__name__))


def __dir__() -> list[str]:
    return sorted(classes_below(__name__))
