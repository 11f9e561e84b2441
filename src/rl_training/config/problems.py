"""What is wrong with a config, in one line: the key, the value, what is allowed, the nearest match."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import BaseModel, ValidationError

from rl_training.config.schema import AlgorithmConfig, alternatives
from rl_training.errors import did_you_mean

_TOP_LEVEL_HINTS = {
    "n_timesteps": "total_timesteps",
    "timesteps": "total_timesteps",
    "env_id": "env.id",
    "n_envs": "env.num_envs",
    "num_envs": "env.num_envs",
    "policy_kwargs": "network",
    "hyperparameters": "algo_kwargs",
    "eval": "evaluation",
}


def one_line(error: ValidationError, model: type[BaseModel], config_class: type[AlgorithmConfig]) -> str:
    """Return the problem that says most, with its key, and the keys of the others."""
    # A key that nobody knows says more about what was meant than a value that is not allowed.
    first, *others = sorted(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    # A list whose only entry is wrong counts as empty besides, which is no problem of its own.
    others = [other for other in others if other["loc"] != first["loc"][: len(other["loc"])]]
    loc = [str(part) for part in first["loc"]]
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    more = _others([".".join(map(str, other["loc"])) for other in others])
    key = ".".join(loc)
    if not loc:  # a cross-field check, whose text already starts with its key, or a key that is no text
        return (message if first["type"] == "value_error" else f"config: {message}") + more
    if first["type"] == "extra_forbidden":
        hint = _hint(loc, model, config_class)
        return f"{key}: unknown key{hint}{more}"
    if first["type"] == "missing":
        return f"{key}: required key is missing{more}"
    if first["type"] in {"model_type", "model_attributes_type"}:
        message = "should be a mapping of keys to values"
    elif first["type"] == "string_pattern_mismatch":
        message = f"should be {_either(alternatives(first['ctx']['pattern']))}"
    elif first["type"] == "tuple_type":
        message = "should be a list"
    elif first["type"] == "too_short":
        message = "should not be empty"
    return f"{key}: {short(first['input'])} is not allowed: {message}{more}"


def _others(keys: list[str]) -> str:
    """Name the other keys that have problems, of which only the first is told in full."""
    if not keys:
        return ""
    named = [key for key in keys if key]
    shown = f": {', '.join(named[:5])}" if named else ""
    return f" (and {len(keys)} more{shown}{', ...' if len(named) > 5 else ''})"


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _hint(loc: list[str], model: type[BaseModel], config_class: type[AlgorithmConfig]) -> str:
    name, parents = loc[-1], loc[:-1]
    if not parents and name in _TOP_LEVEL_HINTS:
        return f"; did you mean '{_TOP_LEVEL_HINTS[name]}'?"
    alias = config_class.aliases.get(name)
    if parents in ([], ["algo_kwargs"]) and alias in config_class.model_fields:
        return f"; did you mean '{alias if parents else f'algo_kwargs.{alias}'}'?"
    section: Any = model
    for part in parents:
        if part.isdigit():
            continue
        field = section.model_fields.get(part)
        section = field.annotation if field is not None else None
        section = next((arg for arg in getattr(section, "__args__", ()) if _is_model(arg)), section)
        if not _is_model(section):
            return ""
    if (elsewhere := _place_of(name, model)) is not None:
        return f"; did you mean '{elsewhere}'?"
    known = list(section.model_fields)
    below = {} if parents else _keys_of_sections(model)
    near = did_you_mean(name, [*known, *below])
    for key, dotted in below.items():
        near = near.replace(f"'{key}'", f"'{dotted}'")
    return near or f"; known keys: {', '.join(known)}"


def _keys_of_sections(model: type[BaseModel]) -> dict[str, str]:
    """Return the dotted keys of all sections by their last part, where only one section has it."""
    sections: dict[str, Any] = {key: field.annotation for key, field in model.model_fields.items()}
    found = [
        (name, f"{key}.{name}")
        for key, section in sections.items()
        if _is_model(section)
        for name in section.model_fields
    ]
    once = Counter(name for name, _ in found)
    return {name: dotted for name, dotted in found if once[name] == 1 and name not in sections}


def _place_of(name: str, model: type[BaseModel]) -> str | None:
    """Return the dotted key of the only place that has a key of this name, if there is just one."""
    sections: dict[str, Any] = {key: field.annotation for key, field in model.model_fields.items()}
    places = [name] if name in model.model_fields else []
    places += [
        f"{key}.{name}" for key, part in sections.items() if _is_model(part) and name in part.model_fields
    ]
    return places[0] if len(places) == 1 else None


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def short(value: Any) -> str:
    """Return a value as it can stand in a message."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python refuses to write out integers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
