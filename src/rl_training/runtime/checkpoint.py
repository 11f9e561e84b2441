"""Saving, finding and retiring checkpoints: a kill or a full disk at any time leaves older ones intact."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

from rl_training.errors import CheckpointError
from rl_training.plain_files import open_plain
from rl_training.runtime import strict_json
from rl_training.runtime.checkpoint_format import (
    FORMAT_VERSION,
    MANIFEST,
    STATE,
    TENSORS,
    Arrays,
    Tree,
    manifest_digest,
    parse_step_name,
    split_tree,
    step_name,
    tensor_file,
    tree_digest,
    unsavable,
)
from rl_training.runtime.checkpoint_read import (
    Checkpoint,
    blamed_on,
    read_checkpoint,
    verify_size,
)
from rl_training.runtime.storage import DISK, Storage

__all__ = [
    "LATEST",
    "Checkpoint",
    "SaveFailed",
    "Saved",
    "list_checkpoints",
    "newest_checkpoint",
    "read_checkpoint",
    "read_hint",
    "retire",
    "save_checkpoint",
    "tree_digest",
    "write_checkpoint",
    "write_hint",
]

LATEST = "latest"
_TEMPORARY = ".tmp-"
_HINT_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MAX_HINT_BYTES = 64
_LONGEST_RECORD = {"size": 2**63, "sha256": "0" * 64}

Parts: TypeAlias = Iterable[bytes | memoryview]


class SaveFailed(CheckpointError):
    """The disk refused a write; older checkpoints are intact and training can go on."""


@dataclass(frozen=True)
class Saved:
    """Where a checkpoint lies, and the size and the sha256 of its files."""

    path: Path
    files: Mapping[str, Mapping[str, Any]]


_NOTHING = Saved(Path(), {})


def save_checkpoint(
    folder: Path,
    step: int,
    tree: Tree,
    info: Mapping[str, Any],
    storage: Storage = DISK,
    previous: Saved | None = None,
) -> Path:
    """Save a checkpoint like ``write_checkpoint``, let ``latest`` point at it and return its path."""
    saved = write_checkpoint(folder, step, tree, info, storage, previous)
    write_hint(folder, LATEST, saved.path, storage)
    return saved.path


def write_checkpoint(
    folder: Path,
    step: int,
    tree: Tree,
    info: Mapping[str, Any],
    storage: Storage = DISK,
    previous: Saved | None = None,
) -> Saved:
    """Save ``tree`` (one entry per section) as a new checkpoint in ``folder``.

    Leaves are tensors, numpy arrays, segments or plain JSON values; anything else, and a plain NaN, is a
    ``CheckpointError`` before the first byte is written. What the disk refuses is a ``SaveFailed``.

    ``previous`` has to be the checkpoint that ``tree`` has come from, by being loaded or by being saved last:
    the segments it holds are linked and not looked at, or written if they cannot be linked.
    """
    if type(step) is not int or parse_step_name(step_name(step)) is None:
        raise CheckpointError(f"state that cannot be saved: step {step!r} is out of range")
    plan = _plan(step, tree, info, previous or _NOTHING)
    with _disk_failures(f"{folder}: checkpoint of step {step} not saved"):
        if not folder.is_dir():
            storage.make_folder(folder)
            storage.sync_folder(folder.parent)
        with _temporary(folder, storage) as temporary:
            storage.make_folder(temporary)
            records = _write_files(plan, temporary, storage)
            _write_file(storage, temporary / MANIFEST, [_manifest(step, records, plan.info)])
            storage.sync_folder(temporary)
            target = folder / _free_name(step, storage.list(folder))
            storage.rename(temporary, target)
        storage.sync_folder(folder)
    return Saved(target, records)


def list_checkpoints(folder: Path) -> list[Path]:
    """Return everything in ``folder`` that is named like a checkpoint, newest first, unverified."""
    with blamed_on(folder):
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return []
    return [folder / name for name in _newest_first(names)]


def newest_checkpoint(folder: Path) -> tuple[Checkpoint, list[str]]:
    """Return the newest intact checkpoint, and one line for each newer one that was refused."""
    refused: list[str] = []
    for path in list_checkpoints(folder):
        try:
            return read_checkpoint(path), refused
        except CheckpointError as error:  # noqa: PERF203 - each has to be tried on its own
            refused.append(str(error))
    if not refused:
        raise CheckpointError(f"{folder}: no checkpoint has been saved yet")
    reason = f"no checkpoint that verifies; the newest one: {refused[0]}"
    raise CheckpointError(f"{folder}: {reason}", details="\n".join(refused))


def write_hint(folder: Path, name: str, target: Path, storage: Storage = DISK) -> None:
    """Let the text file ``name`` ("latest", "best") in ``folder`` point at the checkpoint ``target``."""
    if not _HINT_NAME.fullmatch(name) or parse_step_name(target.name) is None:
        raise ValueError(f"hint {name!r} to {target.name!r}")
    with _disk_failures(f"{folder / name}: not written"), _temporary(folder, storage) as temporary:
        _write_file(storage, temporary, [f"{target.name}\n".encode()])
        storage.rename(temporary, folder / name)
        storage.sync_folder(folder)


def read_hint(folder: Path, name: str) -> Path | None:
    """Return the checkpoint a hint points at, or None if it is missing, malformed or leads nowhere."""
    try:
        with open_plain(folder / name) as file:
            text = file.read(_MAX_HINT_BYTES).decode("ascii").removesuffix("\n")
    except (OSError, ValueError):
        return None
    return folder / text if parse_step_name(text) and _is_folder(folder / text) else None


def retire(folder: Path, keep: int, protect: Collection[str], storage: Storage = DISK) -> None:
    """Remove what killed saves left and all but the ``keep`` newest checkpoints; never call it during a save.

    Those named in ``protect`` and the one that ``latest`` points at stay, whatever their age.
    """
    if keep < 1:
        raise ValueError(f"keep {keep}: at least one checkpoint must stay")
    # After a fallback the newest names may be damaged ones; the checkpoint just saved must outlive them.
    latest = read_hint(folder, LATEST)
    spared = {*protect, *([latest.name] if latest else [])}
    with _disk_failures(f"{folder}: old checkpoints not removed"):
        names = storage.list(folder)
        steps = [name for name in _newest_first(names) if _is_folder(folder / name)]
        leftovers = [name for name in names if name.startswith(_TEMPORARY)]
        doomed = [*leftovers, *(name for name in steps[keep:] if name not in spared)]
        # One that cannot be removed must not keep the others.
        failures = [error for name in doomed if (error := _removal_failure(folder / name, storage))]
        if failures:
            raise failures[0]


@dataclass(frozen=True)
class _Plan:
    """The files to be written, their content still unread, and the segments that ``previous`` holds."""

    info: dict[str, Any]
    files: dict[str, Parts]
    held: dict[str, Callable[[], Arrays]]
    previous: Saved


def _plan(step: int, tree: Tree, info: Mapping[str, Any], previous: Saved) -> _Plan:
    """Check everything that is to be saved, but for segments that are there already."""
    state, tensors, segments = split_tree(tree)
    plan = _Plan(dict(info), {}, {}, previous)
    with unsavable():
        strict_json.check(plan.info, "info")
        # With the longest records there are: nothing is left to fail once writing has begun.
        names = (*(name + TENSORS for name in tensors), *segments, STATE)
        _manifest(step, dict.fromkeys(names, _LONGEST_RECORD), plan.info)
        for name, arrays in segments.items():
            if name in previous.files:
                plan.held[name] = arrays
            else:
                plan.files[name] = tensor_file(arrays())
        plan.files.update({name + TENSORS: tensor_file(arrays) for name, arrays in tensors.items()})
        plan.files[STATE] = [strict_json.encode(state)]
    return plan


def _write_files(plan: _Plan, folder: Path, storage: Storage) -> dict[str, Any]:
    """Link and write all but the manifest; return the records for it."""
    records: dict[str, Any] = {}
    files = dict(plan.files)
    # First the links: what cannot be linked may turn out unsavable, which is before the first byte then.
    for name, arrays in plan.held.items():
        record = plan.previous.files[name]
        if _link(plan.previous.path / name, folder / name, record, storage):
            records[name] = record
        else:
            with unsavable():
                files[name] = tensor_file(arrays())
    for name, parts in files.items():
        records[name] = _write_file(storage, folder / name, parts)
    return records


def _link(source: Path, target: Path, record: Mapping[str, Any], storage: Storage) -> bool:
    """Link a file that is still as long as recorded; return whether that was possible."""
    try:
        storage.link(source, target)
        verify_size(target, record)
    except (OSError, ValueError):
        with suppress(FileNotFoundError):
            storage.unlink(target)
        return False
    return True


def _manifest(step: int, records: Mapping[str, Any], info: Mapping[str, Any]) -> bytes:
    manifest = {"format_version": FORMAT_VERSION, "step": step, "files": records, "info": info}
    return strict_json.encode({**manifest, "sha256": manifest_digest(manifest)})


def _write_file(storage: Storage, path: Path, parts: Parts) -> dict[str, Any]:
    """Write a new file through to the disk and return its record for the manifest."""
    digest, size = hashlib.sha256(), 0
    handle = storage.create(path)
    try:
        for part in parts:
            digest.update(part)
            size += len(part)
            rest = memoryview(part)
            while rest:
                written = storage.write(handle, rest)
                if written <= 0:
                    raise OSError(errno.EIO, "nothing was written")
                rest = rest[written:]
        storage.sync(handle)
    finally:
        storage.close(handle)
    return {"size": size, "sha256": digest.hexdigest()}


def _free_name(step: int, names: Iterable[str]) -> str:
    taken = [parsed[1] for parsed in map(parse_step_name, names) if parsed and parsed[0] == step]
    return step_name(step, max(taken, default=0) + 1)


def _newest_first(names: Iterable[str]) -> list[str]:
    parsed = {name: key for name in names if (key := parse_step_name(name))}
    return sorted(parsed, key=lambda name: parsed[name], reverse=True)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove(path: Path, storage: Storage) -> None:
    if not _is_folder(path):
        storage.unlink(path)
        return
    names = storage.list(path)
    if MANIFEST in names:
        # First, and on the disk before the rest: what a kill leaves behind then never verifies.
        storage.unlink(path / MANIFEST)
        storage.sync_folder(path)
    for name in names:
        if name != MANIFEST:
            storage.unlink(path / name)
    storage.remove_folder(path)


def _removal_failure(path: Path, storage: Storage) -> OSError | None:
    try:
        _remove(path, storage)
    except OSError as error:
        return error
    return None


@contextmanager
def _temporary(folder: Path, storage: Storage) -> Iterator[Path]:
    """Give an unused path in ``folder``, and remove what is there if the block fails."""
    path = folder / f"{_TEMPORARY}{uuid4().hex}"
    try:
        yield path
    except BaseException:
        _removal_failure(path, storage)
        raise


@contextmanager
def _disk_failures(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SaveFailed(f"{what}: {error.strerror or error}") from error
