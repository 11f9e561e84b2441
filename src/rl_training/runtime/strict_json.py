"""JSON with one meaning per document and a bounded cost, for files that may be damaged or foreign."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

MAX_BYTES = 16 * 2**20
MAX_DEPTH = 64
MAX_DIGITS = 1000

_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_STRING = re.compile(rb'"[^"]*"?')
_BRACKET = re.compile(rb"[\[\]{}]")


def encode(value: Any) -> bytes:
    """Return ``value`` as a document that ``decode`` accepts, or raise ``ValueError``."""
    data = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    _check_bounds(data)
    return data


def decode(data: bytes) -> Any:
    """Return the document's value; too long, too deep, doubled keys, NaN or infinity are a ``ValueError``."""
    _check_bounds(data)
    return json.loads(
        data.decode("utf-8"),
        object_pairs_hook=_unique,
        parse_constant=_refuse_constant,
        parse_float=_finite,
        parse_int=_bounded,
    )


def check(value: object, where: str, depth: int = 0) -> None:
    """Raise ``ValueError`` unless ``value`` comes back from JSON equal and of the same types."""
    if depth > MAX_DEPTH:
        raise ValueError(f"{where}: nested deeper than {MAX_DEPTH}")
    if type(value) is list:
        for index, item in enumerate(value):
            check(item, f"{where}[{index}]", depth + 1)
    elif type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise ValueError(f"{where}: key {key!r} is not a string")
            check(item, f"{where}/{key}", depth + 1)
    elif type(value) is float:
        if not math.isfinite(value):
            raise ValueError(f"{where}: {value} is not finite")
    elif type(value) is int:
        if abs(value) >= 10**MAX_DIGITS:
            raise ValueError(f"{where}: an integer of more than {MAX_DIGITS} digits")
    elif value is not None and type(value) not in (bool, str):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise ValueError(f"{where}: {kind} is neither a tensor nor None, bool, int, float, str, list or dict")


def _check_bounds(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise ValueError(f"{len(data)} bytes of JSON, at most {MAX_BYTES} are allowed")
    # The parser recurses, so depth is counted before it runs. Removing escapes, then strings, takes linear
    # time whatever the input; one pattern for a whole string would be quadratic on unclosed ones.
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", _ESCAPE.sub(b"", data))):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"JSON nested deeper than {MAX_DEPTH}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a JSON object has the same key twice")
    return result


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"number {text[:20]} is out of range")
    return value


def _bounded(text: str) -> int:
    # Converting digits takes quadratic time.
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"an integer of more than {MAX_DIGITS} digits")
    return int(text)
