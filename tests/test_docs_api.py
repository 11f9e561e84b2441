"""Everything on the page of the Python API says what it is for, and what each of its parameters means."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rl_training
from helpers.pages import DOCS

NAMES = re.findall(r"^::: ([\w.]+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)


def found(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError:
        return importlib.import_module(name)


def undocumented(function: Callable[..., Any], about: str | None) -> list[str]:
    """Return the parameters that a docstring leaves out."""
    kinds = (inspect.Parameter.VAR_POSITIONAL,)
    parameters = inspect.signature(function).parameters.values()
    names = [one.name for one in parameters if one.kind not in kinds and one.name not in ("self", "cls")]
    return [name for name in names if f":param {name}:" not in (about or "")]


def public(kind: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(kind).items():
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and (inspect.isfunction(plain) or isinstance(plain, property)):
            yield name, plain


@pytest.mark.parametrize("name", [name for name in NAMES if name != "rl_training.errors"])
def test_every_parameter_is_explained(name: str) -> None:
    thing = found(name)
    assert inspect.getdoc(thing)
    if not inspect.isclass(thing):
        # What is left to **others is refused.
        assert set(undocumented(thing, thing.__doc__)) <= {"others"}
        return
    if "__init__" in vars(thing) and not dataclasses.is_dataclass(thing):
        assert undocumented(thing.__init__, thing.__doc__) == []
    for method, member in public(thing):
        assert member.__doc__, method
        if inspect.isfunction(member) and thing is rl_training.api.ManagedAlgorithm:
            assert undocumented(member, member.__doc__) == [], method


def test_the_page_has_every_public_name() -> None:
    shown = {name.rpartition(".")[2] for name in NAMES}
    algorithms = {
        name for name in dir(rl_training) if issubclass_of(getattr(rl_training, name), "ManagedAlgorithm")
    }
    assert set(dir(rl_training)) - algorithms <= shown
    assert len(algorithms) >= 19


def issubclass_of(thing: Any, base: str) -> bool:
    return inspect.isclass(thing) and any(parent.__name__ == base for parent in thing.__mro__)
