"""Standard output and standard error that are closed, full, cut off, or unable to show every character."""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from rl_training.errors import RLTrainingError
from rl_training.runtime.console import notice

_ASCII = {"±": "+/-", "→": "->"}


class OutputError(RLTrainingError):
    """What a command was asked for could not be printed; ``cut_off`` by a reader that has had enough."""

    def __init__(self, message: str, cut_off: bool) -> None:
        super().__init__(message)
        self.cut_off = cut_off


def prepare() -> None:
    """Make both streams usable: open where they were closed, and able to take any character."""
    # Otherwise the next files that are opened, such as checkpoints, would be what C libraries print to.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # noqa: PERF203 - each by itself
            os.open(os.devnull, os.O_RDWR)
    codecs.register_error("rl_training", _replaced)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # as Python makes it of one that was closed
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the process
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="rl_training")


class _Guarded:
    """A stream that says so, by an error of its own, where it is the stream that fails and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write like the stream itself."""
        try:
            return self._stream.write(text)
        except OSError as error:
            raise _lost(self._stream, error) from error

    def flush(self) -> None:
        """Flush like the stream itself."""
        try:
            self._stream.flush()
        except OSError as error:
            raise _lost(self._stream, error) from error


def _lost(stream: TextIO, error: OSError) -> OutputError:
    _abandon(stream)
    return OutputError(f"standard output: {error.strerror}", isinstance(error, BrokenPipeError))


@contextlib.contextmanager
def answer() -> Iterator[None]:
    """Print what a command was asked for: a stream that refuses it is an error."""
    stream = sys.stdout
    sys.stdout = cast("TextIO", _Guarded(stream))
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = stream


@contextlib.contextmanager
def report() -> Iterator[None]:
    """Print what lies in files anyway: a stream that refuses it costs a warning, and no success."""
    try:
        yield
        sys.stdout.flush()
    except OutputError as error:
        if not error.cut_off:
            notice(f"warning: {error}; the results are in the folder anyway")


def settle() -> None:
    """Leave nothing in the streams over which the interpreter would stumble at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # noqa: PERF203 - each by itself
            _abandon(stream)


def _abandon(stream: TextIO) -> None:
    """Let what is left of a stream go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    bad = error.object[error.start : error.end]
    return "".join(_ASCII.get(char, "?") for char in bad), error.end
