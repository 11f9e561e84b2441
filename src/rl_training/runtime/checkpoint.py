"""Saving, finding and retiring checkpoints: a kill or a full disk at any time leaves older ones intact."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

from rl_training.errors import CheckpointError
from rl_training.runtime import strict_json
from rl_training.runtime.checkpoint_format import (
    FORMAT_VERSION,
    MANIFEST,
    STATE,
    TENSORS,
    Tree,
    manifest_digest,
    parse_step_name,
    split_tree,
    step_name,
    tensor_file,
    tree_digest,
)
from rl_training.runtime.checkpoint_read import Checkpoint, blamed_on, open_plain, read_checkpoint
from rl_training.runtime.storage import DISK, Storage

__all__ = [
    "LATEST",
    "Checkpoint",
    "SaveFailed",
    "list_checkpoints",
    "newest_checkpoint",
    "read_checkpoint",
    "read_hint",
    "retire",
    "save_checkpoint",
    "tree_digest",
    "write_hint",
]

LATEST = "latest"
_TEMPORARY = ".tmp-"
_HINT_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MAX_HINT_BYTES = 64

Parts: TypeAlias = Iterable[bytes | memoryview]


class SaveFailed(CheckpointError):
    """The disk refused a write; older checkpoints are intact and training can go on."""


def save_checkpoint(
    folder: Path, step: int, tree: Tree, info: Mapping[str, Any], storage: Storage = DISK
) -> Path:
    """Save ``tree`` (one entry per section) as a new checkpoint in ``folder`` and return its path.

    Leaves are tensors, numpy arrays or plain JSON values; anything else, and a plain NaN, is a
    ``CheckpointError`` before the first byte is written. What the disk refuses is a ``SaveFailed``.
    """
    if type(step) is not int or parse_step_name(step_name(step)) is None:
        raise CheckpointError(f"state that cannot be saved: step {step!r} is out of range")
    files, plain_info = _plan(tree, info)
    with _disk_failures(f"{folder}: checkpoint of step {step} not saved"):
        if not folder.is_dir():
            storage.make_folder(folder)
            storage.sync_folder(folder.parent)
        with _temporary(folder, storage) as temporary:
            storage.make_folder(temporary)
            records = {name: _write_file(storage, temporary / name, parts) for name, parts in files.items()}
            _write_file(storage, temporary / MANIFEST, [_manifest(step, records, plain_info)])
            storage.sync_folder(temporary)
            target = folder / _free_name(step, storage.list(folder))
            storage.rename(temporary, target)
        storage.sync_folder(folder)
    write_hint(folder, LATEST, target, storage)
    return target


def list_checkpoints(folder: Path) -> list[Path]:
    """Return everything in ``folder`` that is named like a checkpoint, newest first, unverified."""
    with blamed_on(folder):
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return []
    return [folder / name for name in _newest_first(names)]


def newest_checkpoint(folder: Path) -> tuple[Checkpoint, list[str]]:
    """Return the newest checkpoint that verifies, and one line for each newer one that was refused."""
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


def _plan(tree: Tree, info: Mapping[str, Any]) -> tuple[dict[str, Parts], dict[str, Any]]:
    """Check everything that is to be saved; return the files' content, still unread, and the info."""
    state, tensors = split_tree(tree)
    plain_info = dict(info)
    try:
        strict_json.check(plain_info, "info")
        # Half the bound, and nested as in the manifest: nothing is left to fail once writing has begun.
        if len(strict_json.encode({"info": plain_info})) > strict_json.MAX_BYTES // 2:
            raise ValueError("info is too long")
        files: dict[str, Parts] = {name + TENSORS: tensor_file(arrays) for name, arrays in tensors.items()}
        files[STATE] = [strict_json.encode(state)]
    except ValueError as error:
        raise CheckpointError(f"state that cannot be saved: {error}") from error
    return files, plain_info


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
