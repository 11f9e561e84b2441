"""Checkpoints hold exactly what was saved, survive any I/O failure, and refuse all else they are given."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from rl_training.errors import CheckpointError
from rl_training.runtime import checkpoint_read, strict_json
from rl_training.runtime.checkpoint import (
    Checkpoint,
    SaveFailed,
    list_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    read_hint,
    retire,
    save_checkpoint,
    tree_digest,
    write_hint,
)
from rl_training.runtime.checkpoint_format import BLOCK_BYTES, DTYPES, manifest_digest
from rl_training.runtime.storage import DISK

MUTATIONS, MUTATIONS_SLOW = 300, 5000
SECONDS_PER_READ = 5.0
INFO = {"torch": "2.0", "env_state": "exact"}


class Killed(BaseException):
    """Ends a save where a SIGKILL would."""


class FaultyStorage:
    """The disk without its slow syncs; call number ``fail_at`` goes wrong, and from there all if killed."""

    def __init__(self, fail_at: int = 0, how: str = "before") -> None:
        self.fail_at, self.how = fail_at, how
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self._call(name, *args)

    def _call(self, name: str, *args: Any) -> Any:
        self.calls.append((name, args[0]))
        due = len(self.calls) == self.fail_at
        if self.how == "kill" and 0 < self.fail_at <= len(self.calls) and name != "close":
            if due and name == "write":
                DISK.write(args[0], args[1][: len(args[1]) // 2])
            raise Killed
        if due and name == "write" and self.how in ("zero", "short"):
            return 0 if self.how == "zero" else DISK.write(args[0], args[1][: len(args[1]) // 2 or 1])
        if due and self.how == "before" and name != "close":
            raise OSError(errno.ENOSPC, "No space left on device")
        result = None if name.startswith("sync") else getattr(DISK, name)(*args)
        if due and self.how in ("before", "after"):
            raise OSError(errno.EIO, "Input/output error")
        return result


def example_tree(seed: int = 0) -> dict[str, dict[str, Any]]:
    draw = torch.Generator().manual_seed(seed)
    return {
        "model": {"net": {"w": torch.randn(4, 3, generator=draw), "b": torch.zeros(3)}, "frozen": {}},
        "replay": {"obs": torch.arange(60, dtype=torch.uint8).reshape(6, 10) + seed, "position": 4},
        "rng": {"numpy": np.arange(5, dtype=np.uint64) + seed, "kind": "PCG64", "state": 2**127 + seed},
        "loop": {"step": 100, "rate": 0.1, "journal": [[1, 2.5, None], {"done": True}], "name": "ü\n"},
    }


def assert_same(got: Any, want: Any) -> None:
    """Compare independently of ``tree_digest``, down to types and NaN payloads."""
    if isinstance(want, dict):
        assert isinstance(got, dict)
        assert set(got) == set(want)
        for key in want:
            assert_same(got[key], want[key])
    elif isinstance(want, torch.Tensor):
        assert isinstance(got, torch.Tensor)
        assert (got.dtype, got.shape, got.device.type) == (want.dtype, want.shape, "cpu")
        copies = [tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in (got, want)]
        assert torch.equal(*(copy.reshape(-1).view(torch.uint8) for copy in copies))
    else:
        assert (type(got), got) == (type(want), want)


def snapshot(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith(".tmp-")]


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    text = str(caught.value)
    assert text.isprintable()
    assert str(path) in text
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def saved(folder: Path) -> Path:
    return save_checkpoint(folder, 100, example_tree(), INFO, FaultyStorage())


# What is saved comes back.


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = getattr(torch, draw(st.sampled_from(sorted(DTYPES))))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = int(np.prod(shape)) * dtype.itemsize
    raw = bytearray(draw(st.binary(min_size=count, max_size=count)))
    if dtype is torch.bool:
        raw = bytearray(byte & 1 for byte in raw)
    tensor = (torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)).reshape(shape)
    transposed = bool(shape) and draw(st.booleans())
    return tensor.transpose(0, -1) if transposed else tensor


keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=4).filter(lambda key: key != "__metadata__")
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
plain = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
nodes = st.dictionaries(
    keys,
    st.recursive(tensors() | plain, lambda inner: st.dictionaries(keys, inner, max_size=3), max_leaves=6),
)
trees = st.dictionaries(st.sampled_from(["model", "optimizer", "rng", "x_2"]), nodes)


@settings(max_examples=80, deadline=None)
@given(trees, st.integers(0, 10**18 - 1))
def test_any_tree_round_trips(tree: dict[str, dict[str, Any]], step: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = save_checkpoint(Path(folder), step, tree, INFO, FaultyStorage())
        loaded = read_checkpoint(path)
        assert (loaded.path, loaded.step, loaded.info) == (path, step, INFO)
        assert_same(loaded.tree, tree)
        assert tree_digest(loaded.tree) == tree_digest(tree)


def test_views_and_numpy_arrays_come_back_as_plain_tensors(folder: Path) -> None:
    base = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    frozen = np.arange(6, dtype=np.int32)
    frozen.setflags(write=False)
    parameter = torch.nn.Parameter(torch.ones(2))
    cases = {
        "shared": (base, base),
        "rows": (base[1:3], base[1:3]),
        "strided": (base.T[::2], base.T[::2]),
        "one_of_many": (base.T[3:4, 1:2], base.T[3:4, 1:2]),
        "one_strided": (base[0, ::4][:1], torch.zeros(1, dtype=torch.float64)),
        "one_strided_numpy": (base.numpy()[0, ::4][:1], torch.zeros(1, dtype=torch.float64)),
        "no_stride": (torch.from_numpy(np.zeros((3, 0))), torch.zeros(3, 0, dtype=torch.float64)),
        "expanded": (base[:1].expand(3, 6), base[:1].expand(3, 6)),
        "read_only": (frozen, torch.arange(6, dtype=torch.int32)),
        "reversed": (frozen[::-1], torch.arange(6, dtype=torch.int32).flip(0)),
        "big_endian": (np.arange(3, dtype=">i4"), torch.arange(3, dtype=torch.int32)),
        "scalar": (np.array(True), torch.tensor(True)),
        "no_columns": (np.zeros((3, 0), np.float32), torch.zeros(3, 0)),
        "walker/joints~0": (parameter, torch.ones(2)),
    }
    saved = {name: given for name, (given, _) in cases.items()}
    path = save_checkpoint(folder, 1, {"replay": saved}, {}, FaultyStorage())
    assert_same(read_checkpoint(path).tree["replay"], {name: want for name, (_, want) in cases.items()})


def test_loaded_tensors_are_writable_and_leave_the_file_alone(saved: Path) -> None:
    before = snapshot(saved)
    loaded = read_checkpoint(saved).tree["replay"]["obs"]
    loaded.fill_(7)
    assert (loaded == 7).all()
    assert snapshot(saved) == before


def test_tensor_files_are_plain_safetensors_without_a_copy_of_the_data(folder: Path) -> None:
    rows = np.arange(BLOCK_BYTES // 2, dtype=np.int64).reshape(-1, 64)  # four blocks
    written = []

    class Watching(FaultyStorage):
        def write(self, handle: int, data: memoryview) -> int:
            written.append(np.frombuffer(data, np.uint8))
            return DISK.write(handle, data)

    path = save_checkpoint(folder, 1, {"replay": {"rows": rows, "flag": torch.tensor(True)}}, {}, Watching())
    blocks = [part for part in written if np.shares_memory(part, rows)]
    assert [len(part) for part in blocks] == [BLOCK_BYTES] * 4
    with safe_open(path / "replay.safetensors", "pt") as file:
        assert set(file.keys()) == {"flag", "rows"}
        assert torch.equal(file.get_tensor("rows"), torch.from_numpy(rows))
    assert read_checkpoint(path).tree["replay"]["rows"].data_ptr() % rows.itemsize == 0


def test_the_digest_sees_every_bit_and_no_order() -> None:
    def digest(**section: Any) -> str:
        return tree_digest({"model": section})

    base = torch.tensor([0.0, 1.0])
    variants = [
        digest(w=base),
        digest(v=base),
        digest(w=torch.tensor([-0.0, 1.0])),
        digest(w=base.double()),
        digest(w=base.reshape(2, 1)),
        digest(w=base.view(torch.int32)),
        digest(w={"w": base}),
        digest(w=base, e={}),
        digest(w=base, n=1),
        digest(w=base, n=1.0),
        digest(w=base, n=True),
        digest(w=base, n=None),
        tree_digest({"model": {"w": base}, "loop": {}}),
        tree_digest({"loop": {"w": base}}),
    ]
    assert len(set(variants)) == len(variants)
    assert digest(a=1, b=base, c=base) == digest(c=base.numpy(), b=base, a=1)


NESTED: list[Any] = []
NESTED.append(NESTED)
UNSAVABLE: dict[str, tuple[Any, str]] = {
    "nan": ({"loop": {"loss": [0.0, float("nan")]}}, r"loop/loss\[1\]: nan is not finite"),
    "infinity": ({"loop": {"loss": float("inf")}}, "loop/loss: inf is not finite"),
    "tuple": ({"optimizer": {"betas": (0.9, 0.999)}}, "optimizer/betas: builtins.tuple"),
    "numpy scalar": ({"loop": {"loss": np.float64(1)}}, "loop/loss: numpy.float64"),
    "tensor in a list": ({"loop": {"all": [torch.zeros(1)]}}, r"loop/all\[0\]: torch.Tensor"),
    "integer key": ({"optimizer": {"state": {0: 1}}}, "optimizer/state: key 0 is not a string"),
    "integer key in a list": ({"loop": {"a": [{0: 1}]}}, r"loop/a\[0\]: key 0 is not a string"),
    "lone surrogate": ({"loop": {"\ud800": 1}}, "key '.ud800' is not a string of valid"),
    "object array": ({"loop": {"x": np.array([{}])}}, "loop/x: dtype object is none of"),
    "complex": ({"loop": {"x": torch.zeros(1, dtype=torch.complex64)}}, "dtype torch.complex64 is none of"),
    "sparse": ({"loop": {"x": torch.eye(2).to_sparse()}}, "loop/x: not a dense tensor"),
    "meta": ({"loop": {"x": torch.zeros(1, device="meta")}}, "loop/x: not a dense tensor"),
    "cycle": ({"loop": {"x": NESTED}}, "nested deeper than"),
    "long integer": ({"loop": {"x": 10**1000}}, "loop/x: an integer of more than 1000 digits"),
    "too long": ({"loop": {"x": "y" * strict_json.MAX_BYTES}}, "bytes of JSON"),
    "reserved": ({"loop": {"__metadata__": torch.zeros(1)}}, "loop/__metadata__: .* reserves"),
    "section": ({"../loop": {}}, "'../loop' is no section name"),
}


@pytest.mark.parametrize("case", UNSAVABLE)
def test_unsavable_state_is_named_before_anything_is_written(case: str, folder: Path) -> None:
    tree, message = UNSAVABLE[case]
    storage = FaultyStorage()
    with pytest.raises(CheckpointError, match=message) as caught:
        save_checkpoint(folder, 1, tree, {}, storage)
    assert not isinstance(caught.value, SaveFailed)
    assert storage.calls == []


@pytest.mark.parametrize("step", [-1, 10**18, True, 1.0])
def test_a_step_without_a_name_is_refused(folder: Path, step: Any) -> None:
    with pytest.raises(CheckpointError, match="out of range"):
        save_checkpoint(folder, step, {}, {})


def test_info_is_checked_like_state(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="info/loss: nan"):
        save_checkpoint(folder, 1, {}, {"loss": float("nan")})


# Names, order, hints and retention.


def test_a_repeated_step_gets_a_name_of_its_own(folder: Path) -> None:
    paths = [save_checkpoint(folder, step, {"loop": {"n": n}}, {}) for n, step in enumerate([7, 7, 3, 7])]
    assert [path.name for path in paths] == [
        "step-000000007",
        "step-000000007-2",
        "step-000000003",
        "step-000000007-3",
    ]
    assert list_checkpoints(folder) == [paths[3], paths[1], paths[0], paths[2]]
    assert newest_checkpoint(folder)[0].tree == {"loop": {"n": 3}}
    assert read_hint(folder, "latest") == paths[3]


def test_names_are_ordered_by_number_from_the_tenth_of_a_step_on(folder: Path) -> None:
    paths = [save_checkpoint(folder, 7, {"loop": {"n": n}}, {}) for n in range(12)]
    assert paths[-1].name == "step-000000007-12"
    assert list_checkpoints(folder) == paths[::-1]
    assert newest_checkpoint(folder)[0].tree == {"loop": {"n": 11}}
    retire(folder, 2, ())
    assert list_checkpoints(folder) == [paths[11], paths[10]]
    assert save_checkpoint(folder, 7, {}, {}).name == "step-000000007-13", "a name is never used again"


def test_newest_skips_what_does_not_verify_and_says_so(folder: Path) -> None:
    paths = [save_checkpoint(folder, step, example_tree(step), INFO, FaultyStorage()) for step in (1, 2, 3)]
    (paths[2] / "model.safetensors").unlink()
    (paths[1] / "state.json").write_bytes(b"{}")
    loaded, refused = newest_checkpoint(folder)
    assert loaded.path == paths[0]
    assert [str(paths[2]) in refused[0], str(paths[1]) in refused[1], len(refused)] == [True, True, 2]
    shutil.rmtree(paths[0])
    with pytest.raises(CheckpointError, match=r"no checkpoint that verifies; the newest one: .*missing"):
        newest_checkpoint(folder)
    with pytest.raises(CheckpointError, match=r"no checkpoint has been saved yet$"):
        newest_checkpoint(folder / "nowhere")


def test_hints_are_untrusted_text(saved: Path) -> None:
    folder = saved.parent
    write_hint(folder, "best", saved)
    assert read_hint(folder, "best") == saved
    (folder / "step-000000200").symlink_to(saved)
    outside = folder.parent / "step-000000300"
    outside.mkdir()
    for text in ("", "step-000000100x", "../step-000000300", str(saved), "step-000000999", "step-000000200",
                 "step-000000100\n\n", "step-000000100\0", "ü", "best", ".", "x" * 10**6):  # fmt: skip
        (folder / "best").write_text(text)
        assert read_hint(folder, "best") is None, text[:40]
    (folder / "best").unlink()
    assert read_hint(folder, "best") is None
    (folder / "best").symlink_to(folder / "latest")
    assert read_hint(folder, "best") is None
    with pytest.raises(ValueError, match="hint"):
        write_hint(folder, "../best", saved)


def test_retention_keeps_the_newest_the_best_and_the_latest(folder: Path) -> None:
    for step in (1, 2, 3, 4, 5, 2):
        save_checkpoint(folder, step, example_tree(step), INFO, FaultyStorage())
    outside = folder.parent / "outside"
    shutil.copytree(folder / "step-000000005", outside)
    (folder / "step-000000000").symlink_to(outside)
    (folder / ".tmp-dead").mkdir()
    (folder / ".tmp-dead" / "state.json").write_text("{")
    (folder / ".tmp-hint").write_text("step")
    retire(folder, 2, {"step-000000001"}, FaultyStorage())
    kept = ["step-000000005", "step-000000004", "step-000000002-2", "step-000000001", "step-000000000"]
    assert [path.name for path in list_checkpoints(folder)] == kept
    assert leftovers(folder) == []
    read_checkpoint(outside)
    assert read_checkpoint(folder / "step-000000001").step == 1
    with pytest.raises(ValueError, match="at least one"):
        retire(folder, 0, ())


def test_one_folder_that_cannot_be_removed_does_not_keep_the_others(folder: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(folder, step, {}, {}, FaultyStorage())
    (folder / "step-000000002" / "foreign").mkdir()
    with pytest.raises(SaveFailed, match="old checkpoints not removed"):
        retire(folder, 1, (), FaultyStorage())
    assert [path.name for path in list_checkpoints(folder)] == ["step-000000003", "step-000000002"]
    assert "manifest.json" in refusal(folder / "step-000000002")


# Every single I/O call goes wrong once.


def count_calls(tmp_path: Path) -> int:
    folder = tmp_path / "counting" / "checkpoints"
    folder.parent.mkdir()
    save_checkpoint(folder, 100, example_tree(), INFO, FaultyStorage())
    storage = FaultyStorage()
    save_checkpoint(folder, 200, example_tree(1), INFO, storage)
    return len(storage.calls)


def two_saves(root: Path, storage: FaultyStorage) -> tuple[Path, dict[str, bytes], BaseException | None]:
    root.mkdir()
    previous = save_checkpoint(root / "checkpoints", 100, example_tree(), INFO, FaultyStorage())
    before = snapshot(previous)
    try:
        save_checkpoint(root / "checkpoints", 200, example_tree(1), INFO, storage)
    except (SaveFailed, Killed) as error:
        return previous, before, error
    return previous, before, None


def test_a_save_is_synced_before_it_gets_its_name(folder: Path) -> None:
    storage = FaultyStorage()
    path = save_checkpoint(folder, 1, example_tree(), INFO, storage)
    order = [name for name, _ in storage.calls]
    renamed = order.index("rename")
    created = [args.name for name, args in storage.calls[:renamed] if name == "create"]
    assert sorted(created) == sorted(os.listdir(path))
    assert created[-1] == "manifest.json"
    assert order[:2] == ["make_folder", "sync_folder"]
    assert [n for n in order[2:renamed] if n in ("create", "sync", "close")] == [
        "create",
        "sync",
        "close",
    ] * len(created)
    assert storage.calls[renamed - 2] == ("sync_folder", storage.calls[renamed][1])
    assert storage.calls[renamed + 1] == ("sync_folder", folder)
    assert [n for n in order[renamed + 2 :] if n != "write"] == [
        "create",
        "sync",
        "close",
        "rename",
        "sync_folder",
    ]


@pytest.mark.parametrize("how", ["before", "after", "zero", "short", "kill"])
def test_any_failed_call_leaves_the_previous_checkpoint_intact(tmp_path: Path, how: str) -> None:
    calls = count_calls(tmp_path)
    assert calls > 30
    digests = {100: tree_digest(example_tree()), 200: tree_digest(example_tree(1))}
    for fail_at in range(1, calls + 1):
        storage = FaultyStorage(fail_at, how)
        previous, before, error = two_saves(tmp_path / str(fail_at), storage)
        folder = previous.parent
        failed, _ = storage.calls[fail_at - 1]
        assert (error is None) == (how == "short" or (how == "zero" and failed != "write"))
        assert snapshot(previous) == before
        newest, refused = newest_checkpoint(folder)
        renamed = len(list_checkpoints(folder)) == 2
        assert (newest.step, refused) == (200 if renamed else 100, [])
        assert tree_digest(newest.tree) == digests[newest.step]
        if error is not None and how != "kill":
            assert leftovers(folder) == []
            assert {"create", "write", "sync", "rename"}.isdisjoint(
                name for name, _ in storage.calls[fail_at:]
            )
        save_checkpoint(folder, 200, example_tree(1), INFO, FaultyStorage())
        retire(folder, 9, (), FaultyStorage())
        assert leftovers(folder) == []
        assert newest_checkpoint(folder)[0].path.name == ("step-000000200-2" if renamed else "step-000000200")


@pytest.mark.parametrize("how", ["before", "after", "kill"])
def test_any_failed_call_while_retiring_leaves_whole_checkpoints_or_none(tmp_path: Path, how: str) -> None:
    fail_at = calls = 1
    while fail_at <= calls:
        folder = tmp_path / str(fail_at) / "checkpoints"
        folder.parent.mkdir()
        for step in (1, 2, 3):
            save_checkpoint(folder, step, example_tree(step), INFO, FaultyStorage())
        storage = FaultyStorage(fail_at, how)
        try:
            retire(folder, 1, (), storage)
        except (SaveFailed, Killed):
            calls = fail_at + 1
        for path in list_checkpoints(folder):
            if (path / "manifest.json").exists():
                assert tree_digest(read_checkpoint(path).tree) == tree_digest(
                    example_tree(int(path.name[5:]))
                )
            else:
                refusal(path)
        assert newest_checkpoint(folder)[0].step == 3
        retire(folder, 1, (), FaultyStorage())
        assert [path.name for path in list_checkpoints(folder)] == ["step-000000003"]
        fail_at += 1
    assert fail_at > 15


# Damaged and forged checkpoints.


def reseal(path: Path) -> None:
    """Make sizes and hashes agree with the files again, as a forger would."""
    manifest = json.loads((path / "manifest.json").read_bytes())
    for name in manifest["files"]:
        data = (path / name).read_bytes()
        manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    write_manifest(path, manifest)


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    sealed = {**manifest, "sha256": manifest_digest(manifest)}
    (path / "manifest.json").write_text(json.dumps(sealed))


def edit_header(path: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrite the header of a tensor file; ``edit`` changes it in place or returns the new text."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    text = edit(header) or json.dumps(header)
    path.write_bytes(len(text.encode()).to_bytes(8, "little") + text.encode() + data[end:])
    reseal(path.parent)


def pick(rng: random.Random, path: Path, pattern: str = "*") -> Path:
    return rng.choice(sorted(path.glob(pattern)))


def flip(rng: random.Random, path: Path) -> None:
    file = pick(rng, path)
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def truncate(rng: random.Random, path: Path) -> None:
    file = pick(rng, path)
    os.truncate(file, rng.randrange(file.stat().st_size))


def append(rng: random.Random, path: Path) -> None:
    with pick(rng, path).open("ab") as file:
        file.write(rng.randbytes(rng.randint(1, 64)))


def delete(rng: random.Random, path: Path) -> None:
    pick(rng, path).unlink()


def swap(rng: random.Random, path: Path) -> None:
    first, second = rng.sample(sorted(path.iterdir()), 2)
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b)
    second.write_bytes(a)


def add_file(rng: random.Random, path: Path) -> None:
    name = rng.choice(
        ["extra.safetensors", "state.json.bak", ".hidden", "model.pt", "a\nb\x1b[31m", "\udcff"]
    )
    (path / name).write_bytes(rng.randbytes(8))


def rename_file(rng: random.Random, path: Path) -> None:
    pick(rng, path).rename(path / rng.choice(["x.safetensors", "Manifest.json", "model"]))


def rename_section(rng: random.Random, path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_bytes())
    old, new = pick(rng, path, "*.safetensors").name, rng.choice(["other", "zz"]) + ".safetensors"
    (path / old).rename(path / new)
    manifest["files"][new] = manifest["files"].pop(old)
    write_manifest(path, manifest)


def edit_manifest(rng: random.Random, path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_bytes())
    record = manifest["files"]["state.json"]
    junk: Any = rng.choice([None, True, -1, 1.5, "x", [], {}, 10**30])
    target, key = rng.choice(
        [
            (manifest, "format_version"),
            (manifest, "step"),
            (manifest, "files"),
            (manifest["files"], "state.json"),
            (manifest["files"], "../x"),
            (record, "size"),
            (record, "sha256"),
            (record, "mode"),
        ]
    )
    target[key] = junk
    write_manifest(path, manifest)


def edit_manifest_unsealed(rng: random.Random, path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_bytes())
    manifest["info"]["torch"] = str(rng.random())
    (path / "manifest.json").write_text(json.dumps(manifest))


def wrong_shape(rng: random.Random, path: Path) -> None:
    def edit(header: dict[str, Any]) -> None:
        entry = header[rng.choice(sorted(header))]
        key = rng.choice(["shape", "shape", "dtype", "data_offsets"])
        entry[key] = {
            "shape": [rng.choice([7, -1, 2**40, 2**64, "3"]), 3],
            "dtype": rng.choice(["F64X", "O", 5]),
            "data_offsets": rng.choice([[0, 2**62], [8, 0], [-4, 4], [0], [1, 2, 3]]),
        }[key]

    edit_header(pick(rng, path, "*.safetensors"), edit)


def wrong_header(rng: random.Random, path: Path) -> None:
    def doubled(header: dict[str, Any]) -> str:
        text = json.dumps(header)
        return text[:-1] + "," + text[1:]

    def homeless(header: dict[str, Any]) -> None:
        name = rng.choice(sorted(header))
        header[rng.choice(["no/" + name, "~7", "frozen/no/w", "net"])] = header.pop(name)

    edit = rng.choice([doubled, homeless, lambda _: "[" * 10**5, lambda _: "null", lambda _: '{"a":NaN}'])
    edit_header(path / "model.safetensors", edit)


def wrong_length(rng: random.Random, path: Path) -> None:
    file = pick(rng, path, "*.safetensors")
    length = rng.choice([0, 1, 2**63, 2**64 - 1, 10**8, file.stat().st_size])
    file.write_bytes(length.to_bytes(8, "little") + file.read_bytes()[8:])
    reseal(path)


def wrong_json(rng: random.Random, path: Path) -> None:
    file = path / rng.choice(["state.json", "manifest.json"])
    text = file.read_text()
    text = rng.choice(
        [
            "",
            "null",
            "[]",
            "[" * 10**5,
            '{"a":' * 70 + "1" + "}" * 70,
            text[:-1] + ',"loop":{},"step":100,"loop":{},"step":100}',
            text[:-1] + ',"loss":NaN}',
            text[:-1] + ',"loss":-Infinity}',
            text[:-1] + ',"loss":1e999}',
            text[:-1] + f',"loss":{"9" * 5000}}}',
            text[:-1] + ',"loss":1}',
            text[:-1] + ',"../loss":{}}',
            text + "{}",
            "\ufeff" + text,
            '"' + '\\"' * 10**5,
        ]
    )
    file.write_text(text)
    if file.name == "state.json":
        reseal(path)


def not_a_file(rng: random.Random, path: Path) -> None:
    file = pick(rng, path)
    moved = file.rename(path.parent / f"moved-{file.name}")
    rng.choice([lambda: file.symlink_to(moved), file.mkdir, lambda: os.mkfifo(file)])()


MUTATORS = [
    flip, flip, flip, truncate, append, delete, swap, add_file, rename_file, rename_section, edit_manifest,
    edit_manifest_unsealed, wrong_shape, wrong_header, wrong_length, wrong_json, not_a_file,
]  # fmt: skip


def timed_read(path: Path) -> Checkpoint | str:
    """Read, allowing nothing but a checkpoint or one line, in bounded time."""
    start = time.monotonic()
    outcome: Checkpoint | str
    try:
        outcome = read_checkpoint(path)
    except CheckpointError as error:
        outcome = str(error)
    assert time.monotonic() - start < SECONDS_PER_READ
    if isinstance(outcome, str):
        assert outcome.isprintable(), repr(outcome)
        assert str(path) in outcome
    return outcome


def test_mutated_checkpoints_are_refused_or_harmless(
    saved: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    want = tree_digest(example_tree())
    refused = dict.fromkeys(MUTATORS, 0)
    count = MUTATIONS_SLOW if request.config.getoption("--slow", default=False) else MUTATIONS
    for seed in range(count):
        rng = random.Random(seed)
        mutate = MUTATORS[seed % len(MUTATORS)]
        path = tmp_path / f"trial-{seed}" / saved.name
        shutil.copytree(saved, path)
        mutate(rng, path)
        outcome = timed_read(path)
        if isinstance(outcome, Checkpoint):
            assert (tree_digest(outcome.tree), outcome.info, outcome.step) == (want, INFO, 100), (
                mutate,
                seed,
            )
        else:
            refused[mutate] += 1
        shutil.rmtree(path.parent)
    assert sum(refused.values()) > 0.97 * count
    assert min(refused.values()) > 0.8 * (count // len(MUTATORS))


@pytest.mark.parametrize("pattern", ["*.safetensors", "state.json"])
def test_a_forged_file_never_fails_in_another_way(saved: Path, pattern: str) -> None:
    original = snapshot(saved)
    for seed in range(150):
        rng = random.Random(seed)
        file = pick(rng, saved, pattern)
        data = bytearray(original[file.name])
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(min(len(data), 300))] = rng.choice(b'{}[]",:0159\\~/x \xff\x00')
        file.write_bytes(data)
        reseal(saved)
        timed_read(saved)
        file.write_bytes(original[file.name])


def test_a_refusal_says_what_is_wrong(saved: Path) -> None:
    original = snapshot(saved)
    file = saved / "model.safetensors"
    file.write_bytes(original[file.name][:-1])
    assert "bytes, but the manifest says" in refusal(saved)
    file.write_bytes(original[file.name][:-1] + b"!")
    assert "does not match the manifest's sha256" in refusal(saved)
    doubled = json.dumps(json.loads(original[file.name][8:].split(b"}}")[0] + b"}}"))
    for name in ("no/w", "~7", "frozen/no/w", "net", "net/w/x"):
        file.write_bytes(original[file.name])

        def rename(header: dict[str, Any], name: str = name) -> None:
            header.update({name: header.pop("net/w")})

        edit_header(file, rename)
        assert "tensor name part" in refusal(saved) if name == "~7" else "has no place" in refusal(saved)
    file.write_bytes(original[file.name])
    edit_header(file, lambda _: doubled[:-1] + "," + doubled[1:])
    assert "same key twice" in refusal(saved)
    file.write_bytes(original[file.name])
    edit_header(file, lambda header: header["net/w"].update(dtype="\x1b[2J\n"))
    assert "?[2J" in refusal(saved)


EVENTS: list[str] | None = None
RUNS_CODE = (
    "pickle.find_class",
    "exec",
    "compile",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "subprocess.Popen",
)


def record_event(event: str, _: Any) -> None:
    if EVENTS is not None and event in RUNS_CODE:
        EVENTS.append(event)


@pytest.fixture
def code_events(saved: Path) -> Any:
    """Give the list of code-running audit events that happen during the test."""
    global EVENTS
    read_checkpoint(saved)  # so that importing lazily loaded modules is not counted
    if "audited" not in globals():
        sys.addaudithook(record_event)  # stays for good: the interpreter has no way to remove it
        globals()["audited"] = True
    EVENTS = []
    yield EVENTS
    EVENTS = None


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def test_the_audit_sees_a_pickle_run(code_events: list[str], tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "ran")))
    assert "pickle.find_class" in code_events
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("framed", [False, True])
def test_pickles_do_not_run(
    saved: Path, code_events: list[str], tmp_path: Path, name: str, framed: bool
) -> None:
    content = pickle.dumps(Bomb(tmp_path / "ran"))
    if framed:
        content = len(content).to_bytes(8, "little") + content
    (saved / name).write_bytes(content)
    if name != "manifest.json":
        reseal(saved)
    assert name in refusal(saved)
    assert code_events == []
    assert not (tmp_path / "ran").exists()


def test_symlinks_and_foreign_names_are_refused(saved: Path, code_events: list[str], tmp_path: Path) -> None:
    link = saved.parent / "step-000000200"
    link.symlink_to(saved)
    assert "not a folder" in refusal(link)
    assert [str(link) in line for line in newest_checkpoint(saved.parent)[1]] == [True]
    shutil.copy(saved / "model.safetensors", tmp_path / "x")
    manifest = json.loads((saved / "manifest.json").read_bytes())
    for name in (
        "../x",
        str(tmp_path / "x"),
        "..",
        "sub/x.safetensors",
        "../x.safetensors",
        "x.pt",
        "Model.safetensors",
    ):
        files = {**manifest["files"], name: manifest["files"]["model.safetensors"]}
        write_manifest(saved, {**manifest, "files": files})
        assert "is no name of a checkpoint file" in refusal(saved)
    write_manifest(saved, manifest)
    read_checkpoint(saved)
    for name in ("model.safetensors", "state.json", "manifest.json"):
        (saved / name).rename(tmp_path / "away")
        (saved / name).symlink_to(tmp_path / "away")
        assert f"{name}: not a regular file" in refusal(saved)
        (tmp_path / "away").rename(saved / name)
    read_checkpoint(saved)
    assert code_events == []


def test_a_folder_name_must_not_lie_about_the_step(saved: Path) -> None:
    assert "not the one the folder is named after" in refusal(saved.rename(saved.parent / "step-000000900"))
    assert read_checkpoint((saved.parent / "step-000000900").rename(saved.parent / "export")).step == 100


# Other format versions.


def test_a_newer_format_is_refused_naming_both_versions(saved: Path) -> None:
    (saved / "manifest.json").write_text('{"format_version": 2, "layout": "unheard of"}')
    assert "format 2 is newer than 1" in refusal(saved)


def test_an_older_format_is_migrated_step_by_step(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def migrate(old: Checkpoint) -> Checkpoint:
        return Checkpoint(old.path, old.step, {**old.tree, "envs": {"seen": len(old.tree)}}, old.info)

    monkeypatch.setattr(checkpoint_read, "FORMAT_VERSION", 3)
    assert "format 1 is unknown" in refusal(saved)
    monkeypatch.setattr(checkpoint_read, "MIGRATIONS", {1: migrate, 2: migrate})
    assert read_checkpoint(saved).tree["envs"] == {"seen": 5}


def test_strict_json_is_linear_in_hostile_input() -> None:
    start = time.monotonic()
    for hostile in (b'"' + b'\\"' * 10**6, b"[" * 10**6, b'["' * 10**6, b"9" * 10**6, b"\\" * 10**6):
        with pytest.raises(ValueError):
            strict_json.decode(hostile)
    assert time.monotonic() - start < SECONDS_PER_READ


@pytest.mark.parametrize(
    "text", ["NaN", "-Infinity", "1e999", '{"a":1,"a":1}', "9" * 1001, "[" * 65 + "]" * 65]
)
def test_strict_json_refuses_what_has_no_single_bounded_meaning(text: str) -> None:
    with pytest.raises(ValueError):
        strict_json.decode(text.encode())


def test_strict_json_takes_brackets_in_strings_for_text() -> None:
    value = {"[" * 100: '\\"' + "{" * 100, "n": -(10**1000 - 1)}
    assert strict_json.decode(strict_json.encode(value)) == value


def test_the_disk_never_creates_over_an_existing_file_or_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            DISK.create(tmp_path / name)
    assert (tmp_path / "file").read_text() == "kept"
