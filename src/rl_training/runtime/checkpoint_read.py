"""Reading a checkpoint that may be damaged, foreign or hostile: all of it verifies, or one line says why."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from rl_training.errors import CheckpointError
from rl_training.plain_files import open_plain
from rl_training.runtime import strict_json
from rl_training.runtime.checkpoint_format import (
    BLOCK_BYTES,
    FORMAT_VERSION,
    MANIFEST,
    SECTION_NAME,
    STATE,
    attach_tensors,
    manifest_digest,
    parse_step_name,
    tensor_place,
)

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Checkpoint:
    """One verified checkpoint; its tensors are on the CPU and mapped copy-on-write from its files.

    ``files`` has the size and the sha256 of each file, and is empty if the tree is not what they hold.
    """

    path: Path
    step: int
    tree: dict[str, dict[str, Any]]
    info: dict[str, Any]
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


MIGRATIONS: dict[int, Callable[[Checkpoint], Checkpoint]] = {}
"""For each older format version, what turns a checkpoint of that version into one of the next."""


def read_checkpoint(path: Path, called: Path | None = None) -> Checkpoint:
    """Return the checkpoint in ``path``, or raise a one-line ``CheckpointError`` naming file and reason.

    ``called`` is what messages call it, if it is only a copy.
    """
    shown = path if called is None else called
    manifest = check_listing(path, shown)
    # All sizes before the first hash: cheap refusals first.
    for verify in (verify_size, _verify_hash):
        for name, record in manifest["files"].items():
            with blamed_on(shown / name):
                verify(path / name, record)
    with blamed_on(shown / STATE):
        tree = _read_state(path / STATE)
    for name in manifest["files"]:
        if name != STATE:
            with blamed_on(shown / name):
                _attach(tree, name, _read_tensors(path / name))
    checkpoint = Checkpoint(path, manifest["step"], tree, manifest["info"], manifest["files"])
    with blamed_on(shown):
        for version in range(manifest["format_version"], FORMAT_VERSION):
            # The files no longer hold what the tree does.
            checkpoint = replace(MIGRATIONS[version](checkpoint), files={})
    return checkpoint


def check_listing(path: Path, called: Path | None = None) -> dict[str, Any]:
    """Return the manifest of a checkpoint whose files are those that it lists; what they hold is not looked at."""
    shown = path if called is None else called
    with blamed_on(shown):
        names = _list_folder(path)
    with blamed_on(shown / MANIFEST):
        manifest = _read_manifest(path / MANIFEST)
        _check_names(path.name, manifest, names)
    return manifest


def verify_size(path: Path, record: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` or ``OSError`` unless ``path`` is a regular file of the recorded size."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size != record["size"]:
        raise ValueError(f"{size} bytes, but the manifest says {record['size']}")


@contextmanager
def blamed_on(file: Path) -> Iterator[None]:
    """Turn whatever is raised inside into a one-line ``CheckpointError`` that names ``file``."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        line = " ".join(f"{file}: {reason or type(error).__name__}".split())
        printable = "".join(char if char.isprintable() else "?" for char in line)
        raise CheckpointError(printable) from error


def _list_folder(path: Path) -> set[str]:
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise ValueError("not a folder (symlinks are not followed)")
    return set(os.listdir(path))


def _read_json(path: Path) -> Any:
    with open_plain(path) as file:
        return strict_json.decode(file.read(strict_json.MAX_BYTES + 1))


def _read_manifest(path: Path) -> dict[str, Any]:
    document = _read_json(path)
    manifest: dict[str, Any] = document if isinstance(document, dict) else {}
    version = manifest.get("format_version")
    if type(version) is not int:
        raise ValueError("no format_version: not a checkpoint of this package")
    # Before anything else is looked at: a newer format may differ in all the rest.
    if version > FORMAT_VERSION:
        raise ValueError(f"format {version} is newer than {FORMAT_VERSION}, the newest this version reads")
    if version < min(MIGRATIONS, default=FORMAT_VERSION):
        raise ValueError(f"format {version} is unknown; this version reads up to {FORMAT_VERSION}")
    if set(manifest) != {"format_version", "step", "files", "info", "sha256"}:
        raise ValueError("its keys are not format_version, step, files, info and sha256")
    if manifest["sha256"] != manifest_digest(manifest):
        raise ValueError("its content does not match its own sha256")
    if type(manifest["step"]) is not int or manifest["step"] < 0:
        raise ValueError("step is not a whole number")
    if not isinstance(manifest["info"], dict):
        raise ValueError("info is not an object")
    return manifest


def _check_names(folder: str, manifest: dict[str, Any], present: set[str]) -> None:
    named = parse_step_name(folder)
    if named and named[0] != manifest["step"]:
        raise ValueError(f"step {manifest['step']} is not the one the folder is named after")
    files = manifest["files"]
    if not isinstance(files, dict) or STATE not in files:
        raise ValueError(f"files does not list {STATE}")
    for name, record in files.items():
        if name != STATE and tensor_place(name) is None:
            raise ValueError(f"{name[:80]!r} is no name of a checkpoint file")
        _check_record(name, record)
    for name in sorted(present ^ {MANIFEST, *files}):
        raise ValueError(f"{name[:80]!r} is {'not listed' if name in present else 'missing'}")


def _check_record(name: str, record: Any) -> None:
    if not isinstance(record, dict) or set(record) != {"size", "sha256"}:
        raise ValueError(f"the record of {name} is not a size and a sha256")
    if type(record["size"]) is not int or record["size"] < 0:
        raise ValueError(f"the size of {name} is not a whole number")
    if not isinstance(record["sha256"], str) or not _SHA256.fullmatch(record["sha256"]):
        raise ValueError(f"the sha256 of {name} is malformed")


def _verify_hash(path: Path, record: dict[str, Any]) -> None:
    digest = hashlib.sha256()
    with open_plain(path) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    if digest.hexdigest() != record["sha256"]:
        raise ValueError("its content does not match the manifest's sha256")


def _read_state(path: Path) -> dict[str, dict[str, Any]]:
    state = _read_json(path)
    if not isinstance(state, dict):
        raise ValueError("not an object of sections")
    for section, content in state.items():
        if not SECTION_NAME.fullmatch(section) or not isinstance(content, dict):
            raise ValueError(f"section {section[:80]!r} is malformed")
    return state


def _attach(tree: dict[str, dict[str, Any]], name: str, tensors: dict[str, torch.Tensor]) -> None:
    """Put the tensors of a file into the tree; those of a segment have to lie in its place."""
    section, *segment = tensor_place(name) or ("",)
    if section not in tree:
        raise ValueError(f"{STATE} has no section {section}")
    inside = "".join(f"{key}/" for key in segment)
    for tensor in tensors:
        if not tensor.startswith(inside):
            raise ValueError(f"tensor {tensor!r} belongs to another file")
    attach_tensors(tree[section], tensors)


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    with open_plain(path) as file:
        length = int.from_bytes(file.read(8), "little")
        # The library leaves doubled keys open; with them a file would have two meanings.
        strict_json.decode(file.read(min(length, strict_json.MAX_BYTES + 8)).rstrip(b" "))
        # The library takes no path that is not UTF-8, so such a file goes by the name of what was opened.
        named = path if _is_text(path) else f"/dev/fd/{file.fileno()}"
        tensors: dict[str, torch.Tensor] = load_file(named)
    return tensors


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True
