"""YAML text and ``key.sub=value`` overrides to a plain mapping, and a mapping to a validated config."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from rl_training.config.problems import one_line, short
from rl_training.config.schema import AlgorithmConfig, ExperimentConfig
from rl_training.errors import ConfigError, did_you_mean
from rl_training.plain_files import read_plain

M = TypeVar("M", bound=BaseModel)
MAX_CONFIG_BYTES = 1_000_000
_MAX_DEPTH = 32


class _StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, refusing what it silently accepts: duplicate keys and aliases (billion laughs)."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(None, None, "aliases are not supported", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is not text", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key}' stands twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, putting quotes around text that ``_StrictLoader`` would read as a number."""


for _yaml in (_StrictLoader, _Dumper):
    # PyYAML keeps to YAML 1.1, where 1e-9 without a point, and 1.0e9 without a sign, are text.
    _yaml.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def parse_yaml(text: str, origin: str) -> Any:
    """Parse one YAML document strictly; ``origin`` names it in the error."""
    try:
        loader = _StrictLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = f" line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{origin}{where}: not valid YAML: {' '.join(str(problem).split())}") from None
    except Exception as error:  # PyYAML's constructors let anything through: !!bool x is a KeyError
        raise ConfigError(f"{origin}: not valid YAML: {error}") from None


def read_mapping(path: Path, *, follow: bool = True) -> dict[str, Any]:
    """Read a config file into a plain mapping; that of a run folder is not to ``follow`` a link."""
    try:
        text = read_plain(path, MAX_CONFIG_BYTES, follow=follow).decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: should be a mapping of keys to values, not {_kind(data)}")
    return data


def apply_overrides(data: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return a copy of ``data`` with each ``key.sub=value`` (the value typed as YAML) put in."""
    result = dict(data)
    for key, value in _parsed(overrides):
        result = put(result, key, value)
    return result


def parse_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """Return the values of ``key.sub=value`` texts by their keys; of a key that stands twice, the last one."""
    return dict(_parsed(overrides))


def _parsed(overrides: Iterable[str]) -> Iterator[tuple[str, Any]]:
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not all(key.strip().split(".")):
            raise ConfigError(f"'{override}': an override is written key=value or key.sub=value")
        yield key.strip(), parse_yaml(text, f"'{override}'")


def put(data: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return a copy of ``data`` in which the dotted ``key`` has that value.

    A mapping for a whole section, such as ``network``, leaves the keys alone that it does not name.
    """
    *parents, last = key.split(".")
    if not parents and isinstance(value, Mapping) and isinstance(data.get(key), Mapping):
        value = {**data[key], **value}
    result = node = dict(data)
    for part in parents:
        below = node.get(part)
        if below is not None and not isinstance(below, Mapping):
            raise ConfigError(f"{key}: '{part}' is {_kind(below)}, so it has no keys below it")
        node[part] = node = dict(below or {})
    node[last] = value
    return result


def build_config(
    data: Mapping[str, Any], config_class_of: Callable[[str], type[AlgorithmConfig]]
) -> ExperimentConfig[Any]:
    """Validate a plain mapping; every problem is a one-line ``ConfigError`` with the dotted key."""
    check_depth(data)
    algo = data.get("algo")
    if algo is None:
        raise ConfigError("algo: required key is missing" + did_you_mean_key("algo", data))
    if not isinstance(algo, str):
        raise ConfigError(f"algo: {short(algo)} is not allowed: should be the name of an algorithm")
    config_class = config_class_of(algo)
    filled = {**data, "algo_kwargs": {} if data.get("algo_kwargs") is None else data["algo_kwargs"]}
    network = data.get("network", {})
    if isinstance(network, Mapping):
        filled["network"] = {**config_class.network_defaults, **network}
    return validate(ExperimentConfig[config_class], filled, config_class)  # type: ignore[valid-type]


def validate(
    model: type[M], data: Mapping[str, Any], config_class: type[AlgorithmConfig] = AlgorithmConfig
) -> M:
    """Return ``data`` as a model; the first problem is a one-line ``ConfigError`` with the dotted key."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(one_line(error, model, config_class)) from None


def dump_yaml(config: ExperimentConfig[Any]) -> str:
    """Return the resolved config, defaults included, as YAML that loads back to the same config."""
    return yaml.dump(config.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted keys whose values differ between two plain configs."""
    changed: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            changed += changed_keys(old, new, f"{prefix}{key}.")
        elif old != new:
            changed.append(f"{prefix}{key}")
    return changed


def did_you_mean_key(wanted: str, data: Mapping[str, Any]) -> str:
    """Point at a misspelt key of ``data`` when ``wanted`` is missing."""
    near = did_you_mean(wanted, [str(key) for key in data])
    return near.replace("did you mean", f"is '{wanted}' meant by") if near else ""


def check_depth(value: Any, depth: int = 0) -> None:
    """Refuse what is nested so deep that checking it would overflow the stack."""
    if depth > _MAX_DEPTH:
        raise ConfigError(f"config: nested more than {_MAX_DEPTH} levels deep")
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for child in children:
        check_depth(child, depth + 1)


def _kind(value: Any) -> str:
    names = {
        dict: "a mapping",
        list: "a list",
        str: "text",
        int: "a number",
        float: "a number",
        bool: "true/false",
    }
    return "empty" if value is None else names.get(type(value), type(value).__name__)
