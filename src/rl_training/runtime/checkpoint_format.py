"""What a checkpoint is made of: names, and how a tree of state becomes JSON, tensor files and a digest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from rl_training.errors import CheckpointError
from rl_training.runtime import strict_json
from rl_training.segment import Segment

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
STATE = "state.json"
TENSORS = ".safetensors"
SECTION_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
# SECTION.safetensors, or with a segment's path behind the section; file systems end names at 255 bytes.
_TENSOR_FILE = re.compile(rf"(?=.{{1,200}}\Z)({SECTION_NAME.pattern}(?:\.[a-z0-9_]{{1,64}})*)\.safetensors")
# Exactly one spelling per (step, repeat), so that names and numbers agree.
_STEP_NAME = re.compile(r"step-([0-9]{9}|[1-9][0-9]{9,17})(?:-([2-9]|[1-9][0-9]{1,8}))?")

DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "int64": "I64",
    "uint64": "U64",
    "float64": "F64",
}
"""Every element type a checkpoint holds, by torch's and numpy's name, with safetensors' name for it."""

BLOCK_BYTES = 4 * 2**20
LEFT_OUT = {"left_out": True}
"""The section ``replay`` of a checkpoint that was asked to do without one."""

Array: TypeAlias = torch.Tensor | npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
Tree: TypeAlias = Mapping[str, Mapping[str, Any]]


def step_name(step: int, repeat: int = 1) -> str:
    """Return the folder name of the ``repeat``-th checkpoint saved at ``step``."""
    return f"step-{step:09d}" + (f"-{repeat}" if repeat > 1 else "")


def parse_step_name(name: str) -> tuple[int, int] | None:
    """Return the step and the repeat that a folder name stands for, or None for any other name."""
    match = _STEP_NAME.fullmatch(name)
    return (int(match[1]), int(match[2] or 1)) if match else None


def tensor_place(name: str) -> tuple[str, ...] | None:
    """Return the section, or the path of a segment, that a file of tensors is named after, or None."""
    match = _TENSOR_FILE.fullmatch(name)
    return tuple(match[1].split(".")) if match else None


@contextmanager
def unsavable() -> Iterator[None]:
    """Turn a ``ValueError`` into the ``CheckpointError`` that state cannot be saved."""
    try:
        yield
    except ValueError as error:
        raise CheckpointError(f"state that cannot be saved: {error}") from error


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Return the sha256 over a manifest's entries that the manifest itself carries as ``sha256``."""
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(strict_json.encode(content)).hexdigest()


def split_tree(tree: Tree) -> tuple[dict[str, Any], dict[str, Arrays], dict[str, Callable[[], Arrays]]]:
    """Part a tree into the content of ``state.json``, the tensors by section, and the segments.

    Tensors have their paths for names. Segments go by the names of their files; what is returned for each
    gives its tensors, or raises ``ValueError``.
    """
    state: dict[str, Any] = {}
    tensors: dict[str, Arrays] = {}
    segments: dict[str, Callable[[], Arrays]] = {}
    with unsavable():
        for section, content in tree.items():
            if not SECTION_NAME.fullmatch(section):
                raise ValueError(f"{section!r} is no section name ({SECTION_NAME.pattern})")
            found: Arrays = {}
            state[section] = _split(content, (section,), found, segments)
            if found:
                tensors[section] = found
    return state, tensors, segments


def attach_tensors(section: dict[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Put tensors read from a file back in their places in a section of ``state.json``."""
    for name, tensor in tensors.items():
        *parents, last = (_unescape(part) for part in name.split("/"))
        node: Any = section
        for key in parents:
            node = node.get(key) if isinstance(node, dict) else None
        if not isinstance(node, dict) or last in node:
            raise ValueError(f"tensor {name!r} has no place in {STATE}")
        node[last] = tensor


def tensor_file(tensors: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    """Return the content of a safetensors file piece by piece; contiguous arrays are never copied."""
    # Widest first: each tensor then starts at a multiple of its item size, as memory mapping needs.
    ordered = dict(sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])))
    header: dict[str, Any] = {}
    end = 0
    for name, array in ordered.items():
        start, end = end, end + array.nbytes
        dtype, shape = _kind(array)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = strict_json.encode(header)
    text += b" " * (-len(text) % 8)
    head: Iterable[bytes] = (len(text).to_bytes(8, "little"), text)
    return chain(head, chain.from_iterable(map(_blocks, ordered.values())))


def tree_digest(tree: Tree) -> str:
    """Return a sha256 over every path, dtype, shape, byte and plain value; the order of keys has no part."""
    state, tensors, segments = split_tree(tree)
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    with unsavable():
        for file, arrays in segments.items():
            tensors.setdefault(file.partition(".")[0], {}).update(arrays())
    for section, found in sorted(tensors.items()):
        for name, array in sorted(found.items()):
            digest.update(json.dumps([section, name, *_kind(array)]).encode())
            for block in _blocks(array):
                digest.update(block)
    return digest.hexdigest()


def _split(
    node: Mapping[Any, Any],
    path: tuple[str, ...],
    tensors: Arrays,
    segments: dict[str, Callable[[], Arrays]],
) -> dict[str, Any]:
    """Return ``node`` without its tensors and segments, which are collected; every dict of the tree stays."""
    where = "/".join(path)
    if len(path) > strict_json.MAX_DEPTH:
        raise ValueError(f"{where[:60]}: nested deeper than {strict_json.MAX_DEPTH}")
    plain: dict[str, Any] = {}
    for key, value in node.items():
        if type(key) is not str or not _is_utf8(key):
            raise ValueError(f"{where}: key {key!r} is not a string of valid characters")
        if isinstance(value, Mapping):
            plain[key] = _split(value, (*path, key), tensors, segments)
        elif isinstance(value, (torch.Tensor, np.ndarray)):
            name = "/".join(map(_escape, (*path[1:], key)))
            _check_array(value, name, f"{where}/{key}")
            tensors[name] = value
        elif isinstance(value, Segment):
            segments[_segment_file((*path, key))] = partial(_segment_arrays, value, (*path, key))
            plain[key] = {}
        else:
            strict_json.check(value, f"{where}/{key}", len(path))
            plain[key] = value
    return plain


def _segment_file(path: tuple[str, ...]) -> str:
    name = ".".join(path) + TENSORS
    if tensor_place(name) != path:
        raise ValueError(f"{'/'.join(path)}: {name!r} is no name of a checkpoint file")
    return name


def _segment_arrays(segment: Segment, path: tuple[str, ...]) -> Arrays:
    found: Arrays = {}
    for key in _split(segment.arrays(), path, found, {}):
        raise ValueError(f"{'/'.join(path)}: a segment holds arrays only, not {key!r}")
    return found


def _check_array(array: Array, name: str, where: str) -> None:
    if isinstance(array, torch.Tensor) and (array.layout is not torch.strided or array.is_meta):
        raise ValueError(f"{where}: not a dense tensor")
    if _dtype_name(array) not in DTYPES:
        raise ValueError(f"{where}: dtype {array.dtype} is none of {', '.join(DTYPES)}")
    if name == "__metadata__":
        raise ValueError(f"{where}: the safetensors format reserves this name")


def _dtype_name(array: Array) -> str:
    return array.dtype.name if isinstance(array, np.ndarray) else str(array.dtype).removeprefix("torch.")


def _kind(array: Array) -> tuple[str, list[int]]:
    return DTYPES[_dtype_name(array)], list(array.shape)


def _blocks(array: Array) -> Iterator[memoryview]:
    """Yield the array's bytes, little-endian and in C order, in blocks of whole rows."""
    rows = array if array.ndim else array.reshape(1)
    step = max(1, BLOCK_BYTES * len(rows) // max(1, rows.nbytes))
    for start in range(0, len(rows), step):
        # Copies what is strided or on another device, but only one block of it at a time.
        yield _raw(rows[start : start + step]).data


def _raw(block: Array) -> npt.NDArray[np.uint8]:
    if isinstance(block, torch.Tensor):
        dense = block.detach().cpu().resolve_neg().contiguous()
        # The stride of a single element is arbitrary even then, and a view as bytes needs it to be one.
        flat = dense.as_strided((dense.numel(),), (1,))
        raw: npt.NDArray[np.uint8] = flat.view(torch.uint8).numpy()
        return raw
    little = np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8)


def _escape(key: str) -> str:
    # As in JSON pointers: observation keys such as "walker/joints" are common.
    return key.replace("~", "~0").replace("/", "~1")


def _unescape(part: str) -> str:
    key = part.replace("~1", "/").replace("~0", "~")
    if _escape(key) != part:
        raise ValueError(f"tensor name part {part!r} is malformed")
    return key


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
