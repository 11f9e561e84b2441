"""A file in which the memory of an agent is kept from one call of ``predict --state`` to the next."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError
from rl_training.plain_files import read_plain, replacing
from rl_training.runtime.strict_json import MAX_BYTES, decode, encode


def read_memory(path: Path) -> Any:
    """Return what the file holds, or none if there is no such file: then an episode begins."""
    try:
        return decode(read_plain(path, MAX_BYTES, follow=True))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"--state: {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--state: {path}: not a memory: {error}") from None


def write_memory(path: Path, memory: Mapping[str, Any]) -> None:
    """Replace the file as a whole by these named arrays."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with replacing(partial) as file:
            file.write(encode({name: array.tolist() for name, array in memory.items()}))
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"--state: {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--state: {path}: cannot hold this memory: {error}") from None
