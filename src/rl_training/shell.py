"""Commands and paths that are printed to be copied: what they are pasted into takes each for one word."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path


def quoted(word: object) -> str:
    """Return a word as a shell reads it back, in one line that can be printed wherever stdout and stderr go.

    What a terminal or its encoding cannot show is written in the ``$'...'`` form of bash and zsh.
    """
    text = str(word)
    return shlex.quote(text) if text.isprintable() and _showable(text) else _escaped(os.fsencode(text))


def quoted_path(path: Path) -> str:
    """Return a path as a word of a command, which no leading dash makes an option."""
    text = str(path)
    return quoted(f"./{text}" if text.startswith("-") else text)


def command(*words: object) -> str:
    """Return a command line of these words; paths among them are never options."""
    return " ".join(quoted_path(word) if isinstance(word, Path) else quoted(word) for word in words)


def _showable(text: str) -> bool:
    try:
        for stream in (sys.stdout, sys.stderr):
            text.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeError, LookupError):
        return False
    return True


def _escaped(raw: bytes) -> str:
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\x{byte:02x}" for byte in raw)
    return f"$'{''.join(plain)}'"
