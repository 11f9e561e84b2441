"""Every error a user can meet: one line of text, and the exit code the command line ends with."""

from __future__ import annotations

import difflib
import errno
import re
import signal
from collections.abc import Iterable

LONGEST = 2_000
"""Characters of a message; environments may raise errors of megabytes."""
_BREAKS = re.compile(r"\s*[^\S ]\s*")
"""Line breaks and tabs with the spaces around them; two spaces in a path are two spaces."""


class RLTrainingError(Exception):
    """Root of all errors of this package; its text is one line made for a person."""

    exit_code = 1

    def __init__(self, message: str, *, details: str = "") -> None:
        # Keys, paths and messages of others may bring line breaks along.
        line = _BREAKS.sub(" ", message).strip()
        if len(line) > LONGEST:
            line = f"{line[:LONGEST]}... ({len(line):,} characters)"
        super().__init__(printable(line))
        self.details = details
        """A traceback or similar, kept out of the terminal and written under the run's ``errors/``."""


class ConfigError(RLTrainingError):
    """A config, an override or an argument that cannot be accepted."""

    exit_code = 2


class RunLockedError(RLTrainingError):
    """Another live process is using the run folder."""

    exit_code = 2


class CheckpointError(RLTrainingError):
    """A checkpoint that is missing, damaged, foreign or too new."""


class EnvError(RLTrainingError):
    """An environment raised, hung, died or returned something it must not."""

    exit_code = 3


class NonFiniteError(RLTrainingError):
    """A loss or a gradient became NaN or infinite."""

    exit_code = 4


class StorageError(RLTrainingError):
    """Checkpoints could not be written several times in a row, or a small file not even once."""

    exit_code = 5


class MachineError(RLTrainingError):
    """The system refused something that is no part of a run's folder: memory, processes, open files."""


_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
_OPEN_FILES = frozenset({errno.EMFILE, errno.ENFILE})


def machine_error(error: OSError | MemoryError) -> RLTrainingError:
    """Return what the system refused as an error for people; a disk that is full has its own exit code."""
    if isinstance(error, MemoryError):
        return MachineError(f"not enough memory: {error}" if str(error) else "not enough memory")
    if error.errno in _OPEN_FILES:
        return MachineError("too many open files; ulimit -n N allows more")
    text = f"{error.strerror or error}"
    named = text if error.filename is None else f"{error.filename}: {text}"
    return StorageError(named) if error.errno in _DISK_ERRORS else MachineError(named)


def is_users_interrupt(error: BaseException) -> bool:
    """Say whether an exception is Ctrl-C, and not one that an environment has raised.

    Where somebody handles SIGINT in another way, as a training run does, Ctrl-C raises nothing.
    """
    return (
        isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def printable(text: str) -> str:
    """Return a line without what could control a terminal, or turn the direction of its text."""
    return "".join(char if char.isprintable() else "?" for char in text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known word, or an empty string."""
    nearest = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{nearest[0]}'?" if nearest else ""
