"""A checkpoint as one file: a zip without compression that holds the files of its folder, and not a byte more.

Reading looks at every byte of the frame before anything is unpacked: plain names of a checkpoint's files, one behind
the other, each as long as it says, so that a file unpacks to less than its own size and into one folder only. What is
in the files is then verified as in a folder.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from rl_training.errors import RLTrainingError
from rl_training.plain_files import open_plain
from rl_training.runtime.checkpoint_format import BLOCK_BYTES, MANIFEST, STATE, tensor_place
from rl_training.runtime.checkpoint_read import Checkpoint, blamed_on, check_listing, read_checkpoint
from rl_training.runtime.folder import is_archive

MAX_DIRECTORY_BYTES = 16 * 2**20
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LARGE = 0xFFFFFFFF
_WIDE = 1
"""The id of the field that has the numbers which need more than 32 bits."""


@dataclass(frozen=True)
class _Member:
    """One file of an archive, as its directory has it."""

    name: str
    crc: int
    size: int
    offset: int


def read_any(path: Path) -> Checkpoint:
    """Return the verified checkpoint of a folder or of a single file."""
    return _read_archive(path) if is_archive(path) else read_checkpoint(path)


def _read_archive(path: Path) -> Checkpoint:
    """Return the checkpoint in a file; its tensors are mapped from copies that vanish with the last of them."""
    with blamed_on(path), unpacked(path) as folder:
        # No file that could be linked remains.
        return replace(read_checkpoint(folder, path), path=path, files={})


def is_saved(path: Path) -> bool:
    """Say whether a path holds a checkpoint of either form, whole or damaged, and nothing else."""
    try:
        if not path.is_file():
            check_listing(path)
            return True
        with open_plain(path) as file:
            return MANIFEST in (member.name for member, _ in _members(file))
    except (OSError, ValueError, RLTrainingError):
        return False


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Give a folder with the files of a checkpoint, which is the checkpoint itself if it is no archive."""
    if not is_archive(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="rl_training-") as place:
        folder = Path(place) / "checkpoint"
        copy_files(path, folder)
        yield folder


def copy_files(source: Path, target: Path) -> None:
    """Put the files of a checkpoint, of either form, into a new folder, and through to the disk."""
    target.mkdir(parents=True)
    if is_archive(source):
        with open_plain(source) as archive:
            for member, start in _members(archive):
                archive.seek(start)
                with _new_file(target / member.name) as file:
                    _copy(archive, file, member.size)
        return
    for name in sorted(os.listdir(source)):
        with open_plain(source / name) as content, _new_file(target / name) as file:
            shutil.copyfileobj(content, file, BLOCK_BYTES)


def pack(folder: Path, target: Path) -> None:
    """Write the files of a checkpoint's folder into one new file, and through to the disk."""
    with _new_file(target) as file, zipfile.ZipFile(file, "w") as archive:
        for name in sorted(os.listdir(folder), key=lambda name: (name != MANIFEST, name)):
            with open_plain(folder / name) as content:
                info = zipfile.ZipInfo(name)  # of 1980: the same checkpoint is the same file
                info.external_attr = (stat.S_IFREG | 0o644) << 16
                info.file_size = os.fstat(content.fileno()).st_size
                with archive.open(info, "w") as member:
                    shutil.copyfileobj(content, member, BLOCK_BYTES)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    with open(path, "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size:
        block = source.read(min(size, BLOCK_BYTES))
        if not block:
            raise ValueError("shorter than its directory says")
        target.write(block)
        size -= len(block)


def _members(file: BinaryIO) -> list[tuple[_Member, int]]:
    """Return the files of an archive and where their bytes begin, or refuse what is not written as ``pack`` does."""
    begin, end, count = _directory(file)
    file.seek(begin)
    members = list(_entries(file.read(end - begin)))
    if len(members) != count:
        raise ValueError(f"{len(members)} files, but its end says {count}")
    _check_names([member.name for member in members])
    found, position = [], 0
    for member in members:
        if member.offset != position:
            raise ValueError(f"{member.name} is not where the file before it ends")
        start = _check_local(file, member)
        found.append((member, start))
        position = start + member.size
    if position != begin:
        raise ValueError("there is something between its files and its directory")
    return found


def _directory(file: BinaryIO) -> tuple[int, int, int]:
    """Return where the directory begins and ends, and how many files it should have."""
    end = os.fstat(file.fileno()).st_size - _END.size
    sign, disk, first_disk, here, count, size, begin, comment = _read(file, end, _END)
    if sign != b"PK\x05\x06" or (disk, first_disk, comment) != (0, 0, 0) or here != count:
        raise ValueError("not a zip file of one part without a comment, so not one that save() wrote")
    if begin + size != end:  # numbers that need more than 32 bits stand in a record before
        end -= _LOCATOR.size
        sign, disk, place, disks = _read(file, end, _LOCATOR)
        end -= _END_64.size
        if sign != b"PK\x06\x07" or (disk, disks, place) != (0, 1, end):
            raise ValueError("its end is damaged")
        sign, length, _, _, disk, first_disk, here, count, size, begin = _read(file, end, _END_64)
        if sign != b"PK\x06\x06" or (length, disk, first_disk) != (_END_64.size - 12, 0, 0) or here != count:
            raise ValueError("its end is damaged")
    if begin + size != end or size > MAX_DIRECTORY_BYTES:
        raise ValueError("its directory is not where and as long as its end says")
    return begin, end, count


def _entries(directory: bytes) -> Iterator[_Member]:
    position = 0
    while position < len(directory):
        if position + _CENTRAL.size > len(directory):
            raise ValueError("its directory is damaged")
        (sign, _, _, flags, method, _, _, crc, packed, size, *rest) = _CENTRAL.unpack_from(
            directory, position
        )
        name_length, extra_length, comment, disk, _, attributes, offset = rest
        position += _CENTRAL.size
        name = directory[position : position + name_length]
        extra = directory[position + name_length : position + name_length + extra_length]
        position += name_length + extra_length
        if sign != b"PK\x01\x02" or position > len(directory) or comment or disk:
            raise ValueError("its directory is damaged")
        if flags or method or packed != size:
            raise ValueError(f"{name[:80]!r} is compressed or encrypted, so not as save() writes it")
        if stat.S_IFMT(attributes >> 16) not in (0, stat.S_IFREG):
            raise ValueError(f"{name[:80]!r} is not a regular file")
        size, _, offset = _widened(extra, [size, packed, offset])
        yield _Member(name.decode("ascii", "replace"), crc, size, offset)


def _check_names(names: list[str]) -> None:
    if "_stable_baselines3_version" in names:
        raise ValueError(
            "a model of Stable-Baselines3: its weights are pickles, which are not read here; train anew"
        )
    for name in names:
        if name not in (MANIFEST, STATE) and tensor_place(name) is None:
            raise ValueError(f"{name[:80]!r} is no name of a checkpoint file")
    if len(set(names)) != len(names):
        raise ValueError("has two files of one name")


def _check_local(file: BinaryIO, member: _Member) -> int:
    """Return where the bytes of a file begin, if what stands before them agrees with the directory."""
    header = _read(file, member.offset, _LOCAL)
    sign, _, flags, method, _, _, crc, packed, size, name_length, extra_length = header
    named = file.read(name_length)
    sizes = _widened(file.read(extra_length), [size, packed])
    if sign != b"PK\x03\x04" or flags or method or crc != member.crc or sizes != [member.size, member.size]:
        raise ValueError(f"{member.name}: what stands before it is not what the directory says")
    if named != member.name.encode("ascii", "replace"):
        raise ValueError(f"{member.name}: has two names")
    return member.offset + _LOCAL.size + int(name_length) + int(extra_length)


def _widened(extra: bytes, numbers: list[int]) -> list[int]:
    """Return numbers of which those that did not fit into 32 bits stand in an extra field, which has nothing else."""
    large = [index for index, number in enumerate(numbers) if number == _LARGE]
    if extra[:4] != (struct.pack("<2H", _WIDE, 8 * len(large)) if large else b"") or len(extra) != (
        4 + 8 * len(large) if large else 0
    ):
        raise ValueError("has fields that save() does not write")
    for index, value in zip(large, struct.unpack(f"<{len(large)}Q", extra[4:]), strict=True):
        numbers[index] = value
    return numbers


def _read(file: BinaryIO, position: int, layout: struct.Struct) -> tuple[Any, ...]:
    if position < 0:
        raise ValueError("not a zip file")
    file.seek(position)
    content = file.read(layout.size)
    if len(content) != layout.size:
        raise ValueError("shorter than it says")
    return layout.unpack(content)
