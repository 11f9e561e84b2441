"""Reading logs of any length: what is kept of them, and logs that are torn, damaged, cut back or hostile."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.html_pages import put_log
from rl_training.experiment.report import log as reading
from rl_training.experiment.report.envelope import Envelope, thin
from rl_training.experiment.report.log import Log
from rl_training.runtime.curves import Series, extract_series


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"step": 10 * n, "train/loss": float((7 * n) % 13), **more} for n in range(1, count + 1)]


def read(path: Path) -> Log:
    log = Log(path)
    assert log.update()
    return log


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(-1e9, 1e9)), min_size=1, max_size=300),
    st.integers(1, 20),
    st.integers(1, 40),
)
def test_no_peak_is_lost_whatever_the_portions(
    moves: list[tuple[int, float]], buckets: int, portion: int
) -> None:
    check_kept(np.cumsum([m for m, _ in moves]), np.array([v for _, v in moves]), buckets, portion)


def test_no_peak_is_lost_of_a_long_curve() -> None:
    draw = np.random.default_rng(0)
    for buckets in (3, 10, 40):
        check_kept(np.cumsum(draw.integers(1, 9, 4_000)), draw.normal(size=4_000), buckets, 37)


def check_kept(steps: NDArray[np.int64], values: NDArray[np.float64], buckets: int, portion: int) -> None:
    """Compare what is kept of a curve, which comes in portions, with all of it, bucket by bucket."""
    curve = Envelope(buckets)
    for begin in range(0, len(steps), portion):
        curve.add(steps[begin : begin + portion], values[begin : begin + portion])
        curve.series()
    kept = curve.series()
    assert len(kept.steps) <= 2 * buckets + 2
    assert (np.diff(kept.steps) > 0).all()
    truth = dict(zip(steps.tolist(), values.tolist(), strict=True))
    assert all(truth[int(s)] == v for s, v in zip(*kept, strict=True)), (
        "every point kept is one that was there"
    )
    assert (kept.steps[0], kept.steps[-1]) == (steps[0], steps[-1])
    width = 1
    while steps[-1] // width - steps[0] // width >= buckets:
        width *= 2
    for bucket in np.unique(steps // width):
        inside, shown = values[steps // width == bucket], kept.values[kept.steps // width == bucket]
        assert (shown.min(), shown.max()) == (inside.min(), inside.max())


def test_a_short_curve_is_kept_as_it_is(tmp_path: Path) -> None:
    records = [*rows(40), {"step": 400, "eval/mean_reward": 5}, {"step": 410, "train/loss": None}]
    log = read(put_log(tmp_path / "m.jsonl", records))
    for key in ("train/loss", "eval/mean_reward"):
        want, got = extract_series(records, key), log.series(key)
        assert np.array_equal(want.steps, got.steps)
        assert np.array_equal(want.values, got.values)
    assert (log.rows, log.step, log.last["train/loss"]) == (42, 410, records[39]["train/loss"])
    assert log.series("nothing").steps.size == 0


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 7))
def test_steps_that_are_walked_again_count_as_walked_last(walk: list[int], portion: int) -> None:
    records = [{"step": step, "x": float(n)} for n, step in enumerate(walk)]
    curve = Envelope()
    for begin in range(0, len(walk), portion):
        part = records[begin : begin + portion]
        curve.add(np.array([r["step"] for r in part]), np.array([r["x"] for r in part]))
    want, got = extract_series(records, "x"), curve.series()
    assert np.array_equal(want.steps, got.steps)
    assert np.array_equal(want.values, got.values)


def test_a_log_is_followed_while_it_grows(tmp_path: Path) -> None:
    path = put_log(tmp_path / "m.jsonl", rows(3))
    log = read(path)
    with path.open("a") as file:
        file.write('{"step": 40, "train/loss": 9.0')
        file.flush()
        assert log.update()
        assert (log.step, log.rows, log.damaged) == (30, 3, 0), "half a line is no line yet"
        file.write("}\n")
    assert log.update()
    assert (log.step, log.rows, log.last["train/loss"]) == (40, 4, 9.0)
    assert log.series("train/loss").steps.tolist() == [10, 20, 30, 40]


@pytest.mark.parametrize("again", [2, 8, 20])
def test_a_log_that_was_cut_back_is_read_anew(tmp_path: Path, again: int) -> None:
    """A resumed run cuts its log; it may be shorter or longer by the time somebody looks."""
    path = put_log(tmp_path / "m.jsonl", rows(10))
    log = read(path)
    put_log(path, [*rows(4), *({"step": 41 + n, "train/loss": -1.0} for n in range(again))])
    assert log.update()
    assert log.series("train/loss").steps.tolist() == [10, 20, 30, 40, *range(41, 41 + again)]
    assert log.rows == 4 + again


def test_damaged_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    good = [json.dumps(row).encode() for row in rows(3)]
    bad = [
        b"\x00\xff",
        b"[1]",
        b"{}",
        b'{"step": "5"}',
        b'{"step": true}',
        b'{"step": -1}',
        b'{"step": 1e3}',
        b'{"step": 99999999999999999999}',
        b"[" * 10_000,
        b"",
    ]
    path.write_bytes(b"\n".join([good[0], *bad, *good[1:]]) + b"\n")
    log = read(path)
    assert (log.rows, log.damaged, log.series("train/loss").steps.tolist()) == (3, len(bad), [10, 20, 30])


def test_what_is_no_finite_number_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    values = ["NaN", "Infinity", '"<b>"', "true", "[1]", "1" + "0" * 400, "2.5"]
    path.write_text("".join(f'{{"step": {n}, "x": {value}}}\n' for n, value in enumerate(values)))
    assert read(path).series("x").values.tolist() == [2.5]


def test_memory_does_not_grow_with_keys_or_rows(tmp_path: Path) -> None:
    many = [{"step": n, **{f"k{n}-{i}": 1.0 for i in range(50)}, "y" * 200: 1.0} for n in range(30)]
    log = read(put_log(tmp_path / "keys.jsonl", many))
    assert len(log.curves) == reading.MAX_KEYS
    assert "y" * 200 not in log.curves
    log = read(put_log(tmp_path / "rows.jsonl", rows(20_000)))
    assert log.rows == 20_000
    assert log.series("train/loss").steps.size <= 1_002


def test_what_is_no_log_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.jsonl"
    with path.open("wb") as file:
        file.truncate(2**40)  # takes no space, and would take hours
    with pytest.raises(ValueError, match="a line of more than"):
        Log(path).update()
    path.write_bytes(b"x\n" * 300_000)
    monkeypatch.setattr(reading, "BLOCK", 20_000)
    log = Log(path)
    with pytest.raises(ValueError, match="10,000 damaged lines"):
        log.update()
    assert log.damaged < 30_000
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="not a regular file"):
        Log(path).update()


def test_a_long_log_is_sampled_and_read_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put_log(tmp_path / "m.jsonl", rows(5_000))
    log = Log(path)
    monkeypatch.setattr(reading, "_SAMPLE", 512)
    log.sample(20)
    assert log.sampled
    assert 100 < log.rows < 1_000
    assert log.step == 50_000, "its end is among the places"
    assert log.damaged == 0
    monkeypatch.setattr(reading, "BLOCK", 10_000)
    log = Log(path)
    seen = []
    while not log.update(30_000):
        seen.append(log.progress)
    assert len(seen) > 3
    assert seen == sorted(seen)
    assert (log.rows, log.progress, log.sampled) == (5_000, 1.0, False)


def test_curves_are_thinned_between_their_ends() -> None:
    steps = np.arange(1, 10_001, dtype=np.float64)
    values = np.zeros(10_000)
    values[5_000] = 99.0
    thinned = thin(Series(steps, values), 50)
    assert len(thinned.steps) <= 102
    assert (thinned.values.max(), thinned.steps[0], thinned.steps[-1]) == (99.0, 1, 10_000)
