"""What an option means, what it may be and what it is by default, read from where it is declared."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rl_training.config.schema import AlgorithmConfig, ExperimentConfig, WrapperConfig, alternatives

REQUIRED = object()
"""The default of an option that has none."""
_HUGE = 2**40
"""Upper bounds from here on guard numbers against overflow; nobody needs to know them."""


@dataclass(frozen=True)
class Option:
    """One key of a config."""

    key: str
    """Dotted, such as ``network.hidden_sizes``."""
    meaning: str
    allowed: str
    default: Any
    group: str
    """What the section, or the group of hyper-parameters, that declares it is about."""
    fixed: bool = False
    """Whether a resumed run must keep it."""

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition(".")[2]

    @property
    def default_text(self) -> str:
        """The default as it is written in a config."""
        return "required" if self.default is REQUIRED else as_written(self.default)


def experiment_options(config: type[AlgorithmConfig]) -> list[Option]:
    """Return every option of an experiment with this algorithm, section by section."""
    return list(_options(ExperimentConfig, "", config))


def algorithm_options(config: type[AlgorithmConfig]) -> list[Option]:
    """Return the hyper-parameters of an algorithm."""
    return [option for option in experiment_options(config) if option.key.startswith("algo_kwargs.")]


def shared_options() -> list[Option]:
    """Return the options that do not depend on the algorithm."""
    return [
        option for option in experiment_options(AlgorithmConfig) if not option.key.startswith("algo_kwargs.")
    ]


def _options(model: type[BaseModel], prefix: str, algorithm: type[AlgorithmConfig]) -> Iterator[Option]:
    absent = getattr(model, "absent", ())
    fixed = getattr(model, "fixed", ())
    for name, field in model.model_fields.items():
        section = algorithm if name == "algo_kwargs" else _section(field.annotation)
        if section is not None:
            yield from _options(section, f"{prefix}{name}.", algorithm)
        elif name not in absent:
            default = REQUIRED if field.is_required() else field.default
            if prefix == "network.":
                default = algorithm.network_defaults.get(name, default)
            yield Option(
                f"{prefix}{name}",
                meaning(model, name),
                allowed(field),
                default,
                _about(_declaring(model, name)),
                name in fixed,
            )


def _section(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _declaring(model: type[BaseModel], name: str) -> type:
    """Return the eldest class that has this option."""
    return next(base for base in reversed(model.__mro__) if name in vars(base).get("__annotations__", {}))


def _about(declaring: type) -> str:
    """Return the first sentence of a docstring."""
    return " ".join((inspect.getdoc(declaring) or "").partition("\n\n")[0].split())


def meaning(model: type[BaseModel], name: str) -> str:
    """Return the docstring below an option's declaration: that of the youngest class that has one."""
    for base in model.__mro__:
        documented = _docstrings(base.__module__).get(base.__name__.partition("[")[0], {})
        if name in documented:
            return documented[name]
    return ""


@functools.cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return what stands below the fields of the classes of a module, by class and field."""
    path = getattr(sys.modules.get(module), "__file__", None)
    if not module.partition(".")[0].isidentifier() or path is None or not path.endswith(".py"):
        return {}
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(Path(path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = dict(_documented(node.body))
    return found


def _documented(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, text in itertools.pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                yield name, " ".join(words.split())


# What is allowed


def allowed(field: FieldInfo) -> str:
    """Say in a few words what an option may be."""
    words = _allowed(field.annotation, field.metadata)
    return f"only {words}" if re.fullmatch("`[^`]*`", words) else words


def _allowed(kind: Any, limits: Iterable[Any] = ()) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _allowed(parts[0], [*parts[1:], *limits])
    if origin in (Union, UnionType):
        return " or ".join(_allowed(part, limits if part is not NoneType else ()) for part in parts)
    if origin is Literal:
        return _either([as_written(part) for part in parts])
    if kind is NoneType or kind is None:
        return "`null`"
    if origin is tuple:
        return _list(parts, limits)
    if origin is dict:
        return "mapping"
    names = {bool: "`true` or `false`", int: "whole number", float: "number", str: "text"}
    return names[kind] + _bounds(limits)


def _either(words: list[str]) -> str:
    quoted = [f"`{word}`" for word in words]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def _list(parts: tuple[Any, ...], limits: Iterable[Any]) -> str:
    most = next((limit.max_length for limit in limits if hasattr(limit, "max_length")), None)
    if parts[0] is WrapperConfig:
        return "list of wrappers"
    if parts[-1] is Ellipsis:
        return f"list of {_plural(_allowed(parts[0]))}" + ("" if most is None else f", at most {most}")
    return f"list of {len(parts)} {_plural(_allowed(parts[0]))}"


def _plural(words: str) -> str:
    return words.replace("number", "numbers", 1)


def _bounds(limits: Iterable[Any]) -> str:
    found: dict[str, Any] = {}
    for limit in limits:
        for side in ("gt", "ge", "lt", "le", "pattern"):
            # A Field inside Annotated keeps its limits in metadata of its own.
            for part in (limit, *getattr(limit, "metadata", ())):
                if getattr(part, side, None) is not None:
                    found[side] = getattr(part, side)
    low = f"from {found['ge']:g}" if "ge" in found else f"above {found['gt']:g}" if "gt" in found else ""
    high = ""
    if found.get("le", _HUGE) < _HUGE:
        high = f"to {as_written(found['le'])}" if "ge" in found else f"up to {as_written(found['le'])}"
    elif found.get("lt", _HUGE) < _HUGE:
        high = f"below {as_written(found['lt'])}"
    if "pattern" in found:
        return f": {_either(alternatives(found['pattern']))}"
    joined = (" " if high.startswith("to ") else ", ").join(part for part in (low, high) if part)
    return f" {joined}" if joined else ""


def as_written(value: Any) -> str:
    """Return a value as it stands in a config."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < _HUGE
        return as_written(int(value)) if whole else f"{value:.6g}".replace("e-0", "e-")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_written, value))}]"
    if isinstance(value, BaseModel):
        return as_written(value.model_dump(mode="json"))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {as_written(part)}" for key, part in value.items()) + "}"
    return str(value)


def value_of(config: ExperimentConfig[Any], key: str) -> Any:
    """Return the value of a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def explained(config: ExperimentConfig[Any]) -> list[str]:
    """Return lines that say of each option what it means, what it may be, and what it is in this config."""
    lines: list[str] = []
    group = ""
    for option in experiment_options(type(config.algo_kwargs)):
        if option.group != group:
            group = option.group
            lines += [f"# {_plain(group)}"]
        value, default = as_written(value_of(config, option.key)), option.default_text
        origin = "required" if default == "required" else f"default {default}"
        lines += [
            f"{option.key}: {value}",
            *textwrap.wrap(_plain(option.meaning), 100, initial_indent="    ", subsequent_indent="    "),
            f"    {_plain(option.allowed)}; {'the default' if value == default else origin}",
        ]
    return lines


def _plain(text: str) -> str:
    """Return a text without the marks around code."""
    return text.replace("`", "")
