"""Segments: what is complete is written once, linked from then on, and read like everything else."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.errors import CheckpointError
from rl_training.runtime import checkpoint_read, soundness
from rl_training.runtime.checkpoint import (
    Saved,
    SaveFailed,
    list_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    read_hint,
    retire,
    save_checkpoint,
    tree_digest,
    write_checkpoint,
)
from rl_training.runtime.run import Run
from rl_training.runtime.saving import Saver
from rl_training.runtime.storage import DISK, DiskStorage
from rl_training.segment import Segment
from test_checkpoint_format import (
    FaultyStorage,
    Killed,
    assert_same,
    edit_header,
    leftovers,
    refusal,
    reseal,
    snapshot,
    timed_read,
    write_manifest,
)
from test_session import resume, start

SIZE = 5000
INFO = {"torch": "2.0"}


def arrays(number: int) -> dict[str, Any]:
    """The content of a segment; it is the same at every save."""
    draw = torch.Generator().manual_seed(number)
    return {
        "obs": torch.randint(0, 255, (SIZE,), generator=draw, dtype=torch.uint8),
        "reward/scaled": torch.randn(3, generator=draw),
    }


def file_of(number: int) -> str:
    return f"replay.buffer.segments.e0_{number}.safetensors"


class Ring:
    """A replay of complete segments and an open end, which counts how often a segment's arrays are asked for."""

    def __init__(self, segments: int) -> None:
        self.segments = segments
        self.asked: list[int] = []

    def tree(self, *, whole: bool = False) -> dict[str, dict[str, Any]]:
        leaf = arrays if whole else lambda number: Segment(lambda: self._content(number))
        segments = {f"e0_{number}": leaf(number) for number in range(self.segments)}
        tail = torch.full((4,), self.segments)
        return {
            "model": {"w": torch.ones(2)},
            "replay": {"buffer": {"segments": segments, "tail": tail}, "count": self.segments},
        }

    def save(self, folder: Path, storage: Any = None, previous: Saved | None = None) -> Saved:
        return write_checkpoint(
            folder, 100 * self.segments, self.tree(), INFO, storage or FaultyStorage(), previous
        )

    def _content(self, number: int) -> dict[str, Any]:
        self.asked.append(number)
        return arrays(number)


class CountingStorage(FaultyStorage):
    """Counts the bytes that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def write(self, handle: int, data: memoryview) -> int:
        self.written += len(data)
        return DISK.write(handle, data)


class UnlinkingStorage(FaultyStorage):
    """A disk that cannot link."""

    def __init__(self, reason: int) -> None:
        super().__init__()
        self.reason = reason

    def link(self, source: Path, target: Path) -> None:
        self.calls.append(("link", source))
        raise OSError(self.reason, os.strerror(self.reason))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def first(folder: Path) -> Saved:
    return Ring(2).save(folder)


def inode(path: Path) -> int:
    return path.stat().st_ino


def check_whole(path: Path, segments: int) -> None:
    """Compare with a tree that never heard of segments."""
    assert tree_digest(read_checkpoint(path).tree) == tree_digest(Ring(segments).tree(whole=True))


# What is saved comes back.


def test_a_segment_is_a_file_of_its_own_and_comes_back_as_a_dict(first: Saved) -> None:
    assert sorted(os.listdir(first.path)) == [
        "manifest.json",
        "model.safetensors",
        "replay.buffer.segments.e0_0.safetensors",
        "replay.buffer.segments.e0_1.safetensors",
        "replay.safetensors",
        "state.json",
    ]
    loaded = read_checkpoint(first.path)
    assert_same(loaded.tree, Ring(2).tree(whole=True))
    assert loaded.files == first.files == json.loads((first.path / "manifest.json").read_text())["files"]
    state = json.loads((first.path / "state.json").read_text())
    assert state["replay"]["buffer"] == {"segments": {"e0_0": {}, "e0_1": {}}}
    assert (first.path / "replay.safetensors").stat().st_size < SIZE


def test_the_digest_takes_a_segment_for_a_dict() -> None:
    plain = Ring(3).tree(whole=True)
    want = tree_digest(plain)
    assert tree_digest(Ring(3).tree()) == want
    plain["replay"]["buffer"]["segments"]["e0_1"] = Segment(arrays(1))
    assert tree_digest(plain) == want
    plain["replay"]["buffer"]["segments"]["e0_1"] = Segment(arrays(7))
    assert tree_digest(plain) != want
    assert tree_digest({"replay": {"x": Segment({})}}) == tree_digest({"replay": {"x": {}}})


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"": np.arange(3), "a.b": np.array(True), "Ü~/": torch.zeros(0, 3)},
        {"view": torch.arange(24).reshape(4, 6).T[::2]},
    ],
)
def test_any_arrays_make_a_segment(folder: Path, content: dict[str, Any]) -> None:
    tree = {"replay": {"x": Segment(content), "y": {"safetensors": Segment(lambda: content)}}}
    path = save_checkpoint(folder, 1, tree, INFO, FaultyStorage())
    tensors = {name: torch.as_tensor(array) for name, array in content.items()}
    assert_same(read_checkpoint(path).tree, {"replay": {"x": tensors, "y": {"safetensors": tensors}}})


def test_many_segments_are_read_with_few_open_files(folder: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    tree = {"replay": {str(number): Segment({"x": np.array(number)}) for number in range(300)}}
    path = save_checkpoint(folder, 1, tree, INFO, FaultyStorage())
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, hard))
    try:
        loaded = read_checkpoint(path).tree["replay"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [int(loaded[str(number)]["x"]) for number in range(300)] == list(range(300))


UNSAVABLE: dict[str, tuple[Any, str]] = {
    "dot": ({"a.b": Segment({})}, "replay/a.b: .* is no name of a checkpoint file"),
    "slash": ({"a/b": Segment({})}, "replay/a/b: .* is no name"),
    "upper case": ({"e0": {"E1": Segment({})}}, "replay/e0/E1: .* is no name"),
    "empty": ({"": Segment({})}, "is no name"),
    "parent": ({"..": Segment({})}, "is no name"),
    "line break": ({"a\n": Segment({})}, "is no name"),
    "other digits": ({"e٣": Segment({})}, "is no name"),
    "long key": ({"a" * 65: Segment({})}, "is no name"),
    "long path": ({"a" * 64: {"b" * 64: {"c" * 64: Segment({})}}}, "is no name"),
    "number": ({"x": Segment({"n": 1})}, "replay/x: a segment holds arrays only, not 'n'"),  # type: ignore[dict-item]
    "deeper": ({"x": Segment({"n": {}})}, "replay/x: a segment holds arrays only, not 'n'"),  # type: ignore[dict-item]
    "nested": ({"x": Segment({"n": Segment({})})}, "replay/x: a segment holds arrays only, not 'n'"),  # type: ignore[dict-item]
    "dtype": ({"x": Segment(lambda: {"n": np.array([{}])})}, "replay/x/n: dtype object is none of"),
    "in a list": ({"x": [Segment({})]}, r"replay/x\[0\]: .*Segment is neither"),
    "integer key": ({"x": Segment({0: torch.ones(1)})}, "replay/x: key 0 is not a string"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("case", UNSAVABLE)
def test_an_unsavable_segment_is_named_before_anything_is_written(case: str, folder: Path) -> None:
    content, message = UNSAVABLE[case]
    storage = FaultyStorage()
    with pytest.raises(CheckpointError, match=message) as caught:
        save_checkpoint(folder, 1, {"replay": content}, {}, storage)
    assert not isinstance(caught.value, SaveFailed)
    assert storage.calls == []


def test_more_segments_than_a_manifest_can_list_are_refused_before_anything_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_training.runtime.strict_json.MAX_BYTES", 20_000)
    storage = FaultyStorage()
    with pytest.raises(CheckpointError, match=r"state that cannot be saved: .* bytes of JSON"):
        Ring(200).save(folder, storage)
    assert storage.calls == []
    check_whole(Ring(60).save(folder, storage).path, 60)


# What is complete is linked.


def test_a_second_save_writes_what_is_new_and_links_the_rest(folder: Path, first: Saved) -> None:
    ring, storage = Ring(3), CountingStorage()
    second = ring.save(folder, storage, first)
    assert ring.asked == [2]
    for number in range(2):
        assert inode(second.path / file_of(number)) == inode(first.path / file_of(number))
        assert second.files[file_of(number)] == first.files[file_of(number)]
    assert SIZE < storage.written < 2 * SIZE
    created = [path.name for name, path in storage.calls if name == "create"]
    assert file_of(2) in created
    assert {file_of(0), file_of(1)}.isdisjoint(created)
    check_whole(first.path, 2)
    check_whole(second.path, 3)


def test_only_segments_are_linked(folder: Path, first: Saved) -> None:
    second = Ring(2).save(folder, None, first)
    shared = {name for name in first.files if inode(first.path / name) == inode(second.path / name)}
    assert shared == {file_of(0), file_of(1)}


def test_a_checkpoint_that_was_read_is_as_good_as_one_that_was_saved(folder: Path, first: Saved) -> None:
    loaded = read_checkpoint(first.path)
    ring = Ring(3)
    second = ring.save(folder, None, Saved(loaded.path, loaded.files))
    assert ring.asked == [2]
    check_whole(second.path, 3)


def test_a_segment_that_is_gone_from_the_tree_is_gone_from_the_checkpoint(folder: Path) -> None:
    before = Ring(3).save(folder)
    after = Ring(2).save(folder, None, before)
    assert file_of(2) not in os.listdir(after.path)
    check_whole(after.path, 2)


def test_without_a_previous_checkpoint_everything_is_written(folder: Path, first: Saved) -> None:
    ring = Ring(2)
    second = ring.save(folder)
    assert ring.asked == [0, 1]
    assert inode(second.path / file_of(0)) != inode(first.path / file_of(0))


@pytest.mark.parametrize("reason", [errno.EXDEV, errno.EMLINK, errno.EPERM, errno.ENOENT])
def test_what_cannot_be_linked_is_written_anew(folder: Path, first: Saved, reason: int) -> None:
    ring, storage = Ring(3), UnlinkingStorage(reason)
    second = ring.save(folder, storage, first)
    assert [name for name, _ in storage.calls].count("link") == 2
    assert ring.asked == [2, 0, 1]
    assert inode(second.path / file_of(0)) != inode(first.path / file_of(0))
    shutil.rmtree(first.path)
    check_whole(second.path, 3)


def test_a_previous_checkpoint_that_is_gone_is_written_anew(folder: Path, first: Saved) -> None:
    shutil.rmtree(first.path)
    check_whole(Ring(3).save(folder, None, first).path, 3)


def cut(file: Path) -> None:
    os.truncate(file, SIZE // 2)


def replace_by_link(file: Path) -> None:
    file.rename(file.parent.parent / "moved")
    file.symlink_to(file.parent.parent / "moved")


@pytest.mark.parametrize("damage", [cut, replace_by_link, Path.unlink])
def test_a_file_that_is_not_what_was_saved_is_not_linked(
    folder: Path, first: Saved, damage: Callable[[Path], None]
) -> None:
    damage(first.path / file_of(1))
    ring = Ring(2)
    second = ring.save(folder, None, first)
    assert ring.asked == [1]
    assert inode(second.path / file_of(0)) == inode(first.path / file_of(0))
    check_whole(second.path, 2)


def test_state_that_turns_out_unsavable_after_a_failed_link_leaves_nothing(
    folder: Path, first: Saved
) -> None:
    tree = Ring(2).tree()
    tree["replay"]["buffer"]["segments"]["e0_0"] = Segment({"x": np.array([{}])})
    storage = UnlinkingStorage(errno.EXDEV)
    with pytest.raises(CheckpointError, match="dtype object"):
        write_checkpoint(folder, 300, tree, INFO, storage, first)
    assert "write" not in [name for name, _ in storage.calls]
    assert leftovers(folder) == []
    assert newest_checkpoint(folder)[0].path == first.path


def test_checkpoints_that_share_files_live_and_die_on_their_own(folder: Path, first: Saved) -> None:
    second = Ring(3).save(folder, None, first)
    third = Ring(4).save(folder, None, second)
    copy = shutil.copytree(third.path, folder.parent / third.path.name)
    retire(folder, 1, (), FaultyStorage())
    assert list_checkpoints(folder) == [third.path]
    check_whole(third.path, 4)
    retire(folder, 1, (), FaultyStorage())
    shutil.rmtree(third.path)
    check_whole(copy, 4)


def test_loaded_segments_are_writable_and_leave_the_file_alone(first: Saved) -> None:
    before = snapshot(first.path)
    read_checkpoint(first.path).tree["replay"]["buffer"]["segments"]["e0_0"]["obs"].fill_(7)
    assert snapshot(first.path) == before


# Every single I/O call goes wrong once.


@pytest.mark.parametrize("how", ["before", "after", "zero", "short", "kill"])
def test_any_failed_call_leaves_the_previous_checkpoint_intact(tmp_path: Path, how: str) -> None:
    (tmp_path / "counting").mkdir()
    counting = FaultyStorage()
    Ring(3).save(tmp_path / "counting", counting, Ring(2).save(tmp_path / "counting"))
    assert len(counting.calls) > 30
    assert [name for name, _ in counting.calls].count("link") == 2
    for fail_at, (failed, _) in enumerate(counting.calls, 1):
        folder = tmp_path / str(fail_at)
        folder.mkdir()
        first = Ring(2).save(folder)
        before, saved = snapshot(first.path), None
        with suppress(SaveFailed, Killed):
            saved = Ring(3).save(folder, FaultyStorage(fail_at, how), first)
        harmless = {"before": failed == "link", "after": failed == "link", "zero": failed != "write"}
        assert (saved is not None) == harmless.get(how, how == "short")
        assert snapshot(first.path) == before
        newest, refused = newest_checkpoint(folder)
        renamed = len(list_checkpoints(folder)) == 2
        assert (newest.step, refused) == (300 if renamed else 200, [])
        check_whole(newest.path, newest.step // 100)
        assert how == "kill" or leftovers(folder) == []
        again = Ring(3).save(folder, None, first)
        retire(folder, 1, (again.path.name,), FaultyStorage())
        assert leftovers(folder) == []
        check_whole(again.path, 3)


# Damaged and forged checkpoints.


def test_a_damaged_segment_is_refused_by_its_name(folder: Path, first: Saved) -> None:
    second = Ring(3).save(folder, None, first)
    file = second.path / file_of(1)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    file.write_bytes(data)
    assert f"{file}: its content does not match the manifest's sha256" in refusal(second.path)
    check_whole(first.path, 2)
    file.write_bytes(data[:-1])
    assert f"{file}: " in refusal(second.path)
    file.unlink()
    assert f"'{file.name}' is missing" in refusal(second.path)


@pytest.mark.parametrize(
    "name",
    [
        "replay.../x.safetensors",
        "../replay.x.safetensors",
        "replay.x/../y.safetensors",
        "/replay.x.safetensors",
        "replay..x.safetensors",
        "replay...safetensors",
        "replay..safetensors",
        ".replay.x.safetensors",
        "replay.x.",
        "replay.X.safetensors",
        "Replay.x.safetensors",
        "0replay.x.safetensors",
        "replay.x-y.safetensors",
        "replay.x y.safetensors",
        "replay.x\n.safetensors",
        "replay.x.safetensors\n",
        "replay.x.safetensors\0",
        "replay.é.safetensors",
        "replay.x.SAFETENSORS",
        "replay.x.pt",
        "replay." + "x" * 65 + ".safetensors",
        "replay" + ".x" * 120 + ".safetensors",
        "state.json.safetensors/x",
    ],
)
def test_an_odd_name_is_no_file_of_a_segment(first: Saved, name: str) -> None:
    manifest = json.loads((first.path / "manifest.json").read_bytes())
    files = {**manifest["files"], name: manifest["files"][file_of(0)]}
    write_manifest(first.path, {**manifest, "files": files})
    assert "is no name of a checkpoint file" in refusal(first.path)


def rename_segment(path: Path, name: str) -> None:
    (path / file_of(0)).rename(path / name)
    manifest = json.loads((path / "manifest.json").read_bytes())
    manifest["files"][name] = manifest["files"].pop(file_of(0))
    write_manifest(path, manifest)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("other.buffer.segments.e0_0.safetensors", "state.json has no section other"),
        ("replay.buffer.segments.e0_2.safetensors", "belongs to another file"),
        ("replay.buffer.segments.e0.safetensors", "belongs to another file"),
        ("model.safetensors.safetensors", "belongs to another file"),
    ],
)
def test_a_segment_under_another_name_is_refused(first: Saved, name: str, reason: str) -> None:
    rename_segment(first.path, name)
    assert f"{first.path / name}: " in refusal(first.path)
    assert reason in refusal(first.path)


def test_a_segment_that_holds_what_another_file_holds_is_refused(first: Saved) -> None:
    edit_header(
        first.path / "replay.safetensors",
        lambda header: header.update({"buffer/segments/e0_0/obs": header.pop("buffer/tail")}),
    )
    assert "has no place in state.json" in refusal(first.path)


def test_a_migrated_checkpoint_has_no_files_to_link(first: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_read, "FORMAT_VERSION", 2)
    monkeypatch.setattr(checkpoint_read, "MIGRATIONS", {1: lambda old: old})
    assert read_checkpoint(first.path).files == {}


def test_a_forged_segment_never_fails_in_another_way(first: Saved) -> None:
    file = first.path / file_of(0)
    original = file.read_bytes()
    for position in range(0, 200, 3):
        file.write_bytes(original[:position] + b'"' + original[position + 1 :])
        reseal(first.path)
        outcome = timed_read(first.path)
        if not isinstance(outcome, str):
            assert_same(outcome.tree["model"], {"w": torch.ones(2)})


# A run hands on what it saved or loaded.


def test_the_saver_remembers_its_last_good_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saver, asked = Saver(folder, 1), []

    def save(segments: int) -> Path | None:
        ring = Ring(segments)
        path = saver.save(100 * segments, ring.tree(), INFO, best=False)
        asked.append(ring.asked)
        return path

    save(1)
    save(2)
    with monkeypatch.context() as patch:

        def refuse(self: DiskStorage, handle: int, data: memoryview) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(DiskStorage, "write", refuse)
        assert save(3) is None
    last = save(4)
    assert asked == [[0], [1], [2], [2, 3]]
    assert last is not None
    assert list_checkpoints(folder) == [last]
    check_whole(last, 4)


def test_the_saver_hands_on_a_checkpoint_whose_hint_failed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saver = Saver(folder, 1)
    rename = DiskStorage.rename

    def refuse(self: DiskStorage, source: Path, target: Path) -> None:
        if target.name == "latest":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(self, source, target)

    monkeypatch.setattr(DiskStorage, "rename", refuse)
    asked = []
    for segments in (1, 2):
        ring = Ring(segments)
        assert saver.save(100 * segments, ring.tree(), INFO, best=False)
        asked.append(ring.asked)
    assert asked == [[0], [1]]
    assert capsys.readouterr().err.count("itself is saved") == 2
    assert [path.name for path in list_checkpoints(folder)] == ["step-000000200"]
    assert read_hint(folder, "latest") is None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let every run save a segment per hundred steps; return the list of those that are asked for."""
    real, seen = Run.state_dict, []

    def content(number: int) -> dict[str, Any]:
        seen.append(number)
        return arrays(number)

    def state_dict(self: Run, **options: Any) -> dict[str, Any]:
        segments = {
            f"s{number}": Segment(partial(content, number)) for number in range(self.clock.steps // 100)
        }
        return {**real(self, **options), "frames": segments}

    monkeypatch.setattr(Run, "state_dict", state_dict)
    monkeypatch.setattr(soundness, "SECTIONS", soundness.SECTIONS | {"frames"})
    return seen


def shared(folder: Path, number: int) -> int:
    """Return how many files there are of a segment that all checkpoints of a folder have."""
    return len({inode(path / f"frames.s{number}.safetensors") for path in list_checkpoints(folder)})


def test_a_resumed_run_links_what_the_checkpoint_it_came_from_holds(tmp_path: Path, asked: list[int]) -> None:
    start(tmp_path / "run")
    assert asked == [0, 1, 2, 3]
    resume(tmp_path / "run", "total_timesteps=600")
    assert asked == [0, 1, 2, 3, 4, 5]
    assert shared(tmp_path / "run" / "checkpoints", 0) == 1
    frames = newest_checkpoint(tmp_path / "run" / "checkpoints")[0].tree["frames"]
    assert_same(frames, {f"s{number}": arrays(number) for number in range(6)})


def test_a_run_that_fell_back_links_nothing_of_the_past_it_left(tmp_path: Path, asked: list[int]) -> None:
    start(tmp_path / "run")
    left = tmp_path / "run" / "checkpoints" / "step-000000400"
    (left / "model.safetensors").unlink()
    resume(tmp_path / "run")
    assert asked == [0, 1, 2, 3, 3]
    again = left.with_name("step-000000400-2")
    assert inode(again / "frames.s3.safetensors") != inode(left / "frames.s3.safetensors")
    assert inode(again / "frames.s2.safetensors") == inode(left / "frames.s2.safetensors")


def test_a_branch_has_files_of_its_own_and_links_them(tmp_path: Path, asked: list[int]) -> None:
    start(tmp_path / "run")
    source = tmp_path / "run" / "checkpoints" / "step-000000300"
    resume(source)
    assert asked == [0, 1, 2, 3, 3]
    branch = tmp_path / "run_from-step-000000300" / "checkpoints"
    assert [path.name for path in list_checkpoints(branch)] == ["step-000000400", "step-000000300"]
    assert shared(branch, 0) == 1
    shutil.rmtree(tmp_path / "run")
    for path in list_checkpoints(branch):
        frames = read_checkpoint(path).tree["frames"]
        assert_same(frames, {f"s{number}": arrays(number) for number in range(len(frames))})


# The disk itself.


def test_a_link_is_a_second_name_and_never_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "symlink").symlink_to(tmp_path / "file")
    DISK.link(tmp_path / "file", tmp_path / "second")
    assert inode(tmp_path / "second") == inode(tmp_path / "file")
    DISK.link(tmp_path / "symlink", tmp_path / "third")
    assert (tmp_path / "third").is_symlink()
    (tmp_path / "other").write_text("other")
    with pytest.raises(FileExistsError):
        DISK.link(tmp_path / "other", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"
