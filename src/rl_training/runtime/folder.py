"""The folder of a run: its name, its lock, where everything lies, and the small files that describe it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import platform
import re
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rl_training.config import ExperimentConfig
from rl_training.config.loading import dump_yaml
from rl_training.errors import CheckpointError, ConfigError, RunLockedError, StorageError
from rl_training.native import fingerprint
from rl_training.plain_files import make_folder, open_own, read_plain, reason, replacing
from rl_training.shell import quoted_path
from rl_training.version import __version__

MAX_METADATA_BYTES = 2**20
ARCHIVE = ".zip"
"""What the name of a checkpoint in a single file ends with."""


class RunFolder:
    """A run's folder, held by an exclusive lock that the system frees even after ``kill -9``."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        try:
            make_folder(self.checkpoints)
            self._lock = open_own(self.path / "run.lock", os.O_RDWR)
        except (OSError, ValueError) as error:
            where = "run.lock: " if isinstance(error, ValueError) else ""
            raise ConfigError(f"{path}: cannot be used as a run folder: {where}{reason(error)}") from None
        if not _locked(self._lock):
            holder = os.read(self._lock, 200).decode(errors="replace").strip() or "another process"
            os.close(self._lock)
            raise RunLockedError(f"{path}: in use by {holder}") from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """The log of all metrics."""
        return self.path / "metrics.jsonl"

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.path / "config.yaml"

    @property
    def table(self) -> Path:
        """The metrics as CSV."""
        return self.path / "metrics.csv"

    @property
    def tensorboard(self) -> Path:
        """Where event files lie."""
        return self.path / "tensorboard"

    @property
    def curve(self) -> Path:
        """The picture of the learning curve."""
        return self.path / "curve.png"

    def describe(self, config: ExperimentConfig[Any], algo: str, title: str, step: int) -> None:
        """Write ``config.yaml`` and ``metadata.json``, each whole or not at all, as the run goes on from ``step``."""
        segment = {"from_step": step, "total_timesteps": config.total_timesteps}
        metadata = {
            "algo": algo,
            "title": title,
            "environment": environment_facts(config.threads, config.device),
            "segments": [*self._segments(), segment],
        }
        write_whole(self.config, dump_yaml(config))
        write_whole(self.path / "metadata.json", json.dumps(metadata, indent=2) + "\n")

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write the outcome of the run as JSON for machines."""
        write_whole(self.path / "result.json", json.dumps(result, indent=2) + "\n")

    def _segments(self) -> list[Any]:
        """Return what ``metadata.json`` says of how the run went on, empty if there is none or it is damaged."""
        segments = self._read_metadata().get("segments")
        return segments if isinstance(segments, list) else []

    def _read_metadata(self) -> dict[str, Any]:
        """Return what ``metadata.json`` says, empty if there is none or it is damaged."""
        try:
            data = json.loads(read_plain(self.path / "metadata.json", MAX_METADATA_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return data if isinstance(data, dict) else {}

    def write_error(self, text: str) -> Path:
        """Keep a traceback under ``errors/`` and return where."""
        folder = self.path / "errors"
        make_folder(folder)
        path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        with replacing(path) as file:
            file.write(text.encode("utf-8", "replace"))
        return path

    def close(self) -> None:
        """Free the lock."""
        os.close(self._lock)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _locked(handle: int) -> bool:
    """Lock a file; somebody who only looks whether it is locked (``watch``) is waited for."""
    for wait in (0.02, 0.05, 0.0):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # noqa: PERF203 - tried again
            time.sleep(wait)
        else:
            return True
    return False


def new_run_path(config: ExperimentConfig[Any], root: Path = Path("runs"), *, ending: str = "") -> Path:
    """Make a folder of a name that is free, ``runs/<algo>/<env>/<time>_s<seed>``, and return its path.

    Of runs that start at the same time, be it in processes or in threads, each gets a folder of its own.
    """
    env = re.sub(r"[^A-Za-z0-9._-]+", "-", config.env.id).strip("-.") or "env"
    stem = root / config.algo / env / f"{time.strftime('%Y%m%d-%H%M%S')}_s{config.seed}{ending}"
    return claimed(itertools.chain([stem], numbered(stem, "-", 2)))


def numbered(stem: Path, separator: str, first: int) -> Iterator[Path]:
    """Return the path with a number behind its name, and a higher one each time."""
    return (stem.with_name(f"{stem.name}{separator}{number}") for number in itertools.count(first))


def claimed(names: Iterator[Path]) -> Path:
    """Make a folder of the first of the names, all in one folder, that is free, and return it."""
    stem = next(names)
    names = itertools.chain([stem], names)
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        return next(path for path in names if _made(path))
    except OSError as error:
        raise ConfigError(f"{stem}: cannot be made: {error.strerror}") from None


def _made(path: Path) -> bool:
    """Make a folder; of several that ask for the same one, a single one is told that it was made."""
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def write_whole(path: Path, text: str) -> None:
    """Replace a small file so that a reader, or a crash, meets the old or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with replacing(temporary) as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise StorageError(f"{path}: not written: {error.strerror}") from error


def environment_facts(threads: int, device: str) -> dict[str, Any]:
    """Return what decides whether two runs can be equal bit for bit: versions, CPU, compiled code, threads, device."""
    import gymnasium
    import numpy
    import torch

    return {
        "rl_training": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "gymnasium": gymnasium.__version__,
        "cpu": _cpu_name(),
        "kernels": fingerprint(),
        "threads": threads,
        "device": device,
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def is_archive(path: Path) -> bool:
    """Say whether a path is one of a checkpoint in a single file."""
    return path.suffix == ARCHIVE and path.is_file()


def locate(path: Path) -> tuple[Path, bool]:
    """Return the path of a run folder or of one checkpoint, and whether it is a run folder; refuse anything else.

    ``checkpoints/latest`` and ``checkpoints/best`` stand for the checkpoint that they name.
    """
    if path.name in ("latest", "best") and path.is_file():
        from rl_training.runtime.checkpoint import read_hint

        named = read_hint(path.parent, path.name)
        if named is None:
            raise CheckpointError(f"{path}: names no checkpoint that is there")
        path = named
    try:
        if (path / "manifest.json").is_file():
            return path, False
        if (path / "checkpoints").is_dir():
            return path, True
        if is_archive(path):
            return path, False
        found = path.exists()
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    if not found:
        packed = Path(f"{path}{ARCHIVE}")
        hint = f"; did you mean '{packed}'?" if is_archive(packed) else ""
        raise CheckpointError(f"{path}: no such run folder or checkpoint{hint}")
    seeds = sorted(entry.name for entry in path.glob("seed-*") if entry.is_dir()) if path.is_dir() else []
    if seeds:
        raise CheckpointError(
            f"{path}: holds one run per seed; give one of them, such as {quoted_path(path / seeds[0])}"
        )
    raise CheckpointError(
        f"{path}: neither a run folder (no checkpoints/) nor a checkpoint (no manifest.json, no .zip)"
    )
