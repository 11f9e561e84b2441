"""Results side by side, and the sentence that says what their seeds can tell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.errors import ConfigError
from rl_training.experiment.comparison import compare, name_folders
from rl_training.runtime.curves import Series, build_comparison_figure
from rl_training.statistics import bootstrap_interval, iqm


def put_run(
    path: Path, mean: float, *, steps: int = 1_000, env: str | None = "CartPole-v1", **more: Any
) -> None:
    path.mkdir(parents=True)
    evaluation = {"mean": mean, "std": 0.0, "returns": [mean] * 4, "lengths": [1] * 4}
    result = {"algo": "dqn", "env": env, "steps": steps, "seconds": 2.5, "evaluation": evaluation, **more}
    (path / "result.json").write_text(json.dumps(result))
    rows = [{"step": n, "eval/mean_reward": mean * n / steps} for n in range(100, steps + 1, 100)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def put_seeds(folder: Path, scores: list[float], **options: Any) -> Path:
    for seed, score in enumerate(scores):
        put_run(folder / f"seed-{seed}", score, **options)
    return folder


HIGH, LOW = [490.0, 500.0, 495.0, 499.0, 480.0], [100.0, 90.0, 210.0, 95.0, 70.0]


def test_scores_that_never_overlap_are_told_apart(tmp_path: Path) -> None:
    a, b = put_seeds(tmp_path / "a", LOW), put_seeds(tmp_path / "b", HIGH)
    comparison = compare({"low": a, "high": b})
    (pair,) = comparison.pairs
    assert (pair.probability, pair.interval, pair.lead < 0) == (0.0, (0.0, 0.0), True)
    assert pair.p_value == pytest.approx(2 / 252)
    assert pair.better == "high"
    assert pair.verdict == "high is better (p = 0.0079)"
    low, high = comparison.results
    assert (low.iqm, low.interval) == (iqm(LOW), bootstrap_interval(LOW))
    assert high.scores == tuple(HIGH)
    assert [curve.values[-1] for curve in high.curves] == HIGH
    assert compare({"high": b, "low": a}).pairs[0].better == "high"


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ([500.0, 480.0, 470.0, 500.0, 300.0], r"^these seeds cannot tell them apart \(p = 0\.\d+\)$"),
        (HIGH, r"^these seeds cannot tell them apart \(p = 1\)$"),
    ],
)
def test_scores_that_overlap_are_not(tmp_path: Path, scores: list[float], verdict: str) -> None:
    comparison = compare({"a": put_seeds(tmp_path / "a", HIGH), "b": put_seeds(tmp_path / "b", scores)})
    assert comparison.pairs[0].better is None
    assert re.match(verdict, comparison.pairs[0].verdict)


@pytest.mark.parametrize(("few", "many"), [(3, 3), (3, 20), (4, 5)])
def test_fewer_than_five_seeds_never_tell_anything(tmp_path: Path, few: int, many: int) -> None:
    high = [480.0 + n for n in range(many)]
    comparison = compare({"a": put_seeds(tmp_path / "a", LOW[:few]), "b": put_seeds(tmp_path / "b", high)})
    assert comparison.pairs[0].interval == (0.0, 0.0), "which is why the interval does not decide"
    assert comparison.pairs[0].better is None
    assert comparison.pairs[0].verdict.endswith("it takes five of each to tell anything")


def test_every_two_are_compared_and_more_pairs_need_more_proof(tmp_path: Path) -> None:
    folders = {name: put_seeds(tmp_path / name, LOW) for name in "abc"}
    folders["d"] = put_seeds(tmp_path / "d", HIGH)
    pairs = {(pair.first, pair.second): pair for pair in compare(folders).pairs}
    assert len(pairs) == 6
    assert pairs["a", "d"].p_value == pytest.approx(6 * 2 / 252)
    assert pairs["a", "d"].better == "d"
    assert pairs["a", "b"].better is None
    assert compare(folders).notes == ["p is adjusted for 6 pairs"]


def test_pairs_that_can_never_be_told_apart_need_no_more_proof_of_others(tmp_path: Path) -> None:
    folders = {"low": put_seeds(tmp_path / "low", LOW), "high": put_seeds(tmp_path / "high", HIGH)}
    folders |= {name: put_seeds(tmp_path / name, LOW[:2]) for name in ("few", "fewer")}
    comparison = compare(folders)
    pairs = {(pair.first, pair.second): pair for pair in comparison.pairs}
    assert pairs["low", "high"].p_value == pytest.approx(2 / 252)
    assert pairs["low", "high"].better == "high"
    assert not any(pair.possible for names, pair in pairs.items() if names != ("low", "high"))
    assert comparison.notes == []


def test_what_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put_seeds(tmp_path / "a", LOW)
    put_seeds(tmp_path / "b", HIGH)

    def refuse(run: Path) -> None:
        raise PermissionError(13, "Permission denied", str(run))

    monkeypatch.setattr("rl_training.experiment.comparison.read_result", refuse)
    with pytest.raises(ConfigError, match=r"a/seed-0: Permission denied$"):
        compare({"a": folder, "b": tmp_path / "b"})


def test_single_runs_unfinished_seeds_and_unequal_effort_are_said(tmp_path: Path) -> None:
    put_run(tmp_path / "one", 50.0, steps=500)
    put_seeds(tmp_path / "many", LOW)
    (tmp_path / "many" / "seed-10").mkdir()
    comparison = compare({"one": tmp_path / "one", "many": tmp_path / "many"})
    assert comparison.results[0].scores == (50.0,)
    assert comparison.results[1].unfinished == ("seed-10",)
    assert comparison.notes == [
        "many: left out as not finished: seed-10",
        "the numbers of steps differ, so that scores are not of equal effort",
    ]


def test_unequal_seeds_within_a_folder_are_said(tmp_path: Path) -> None:
    put_run(tmp_path / "a" / "seed-0", 9.0)
    put_run(tmp_path / "a" / "seed-1", 9.0, steps=500)
    comparison = compare({"a": tmp_path / "a", "b": put_seeds(tmp_path / "b", [1.0, 2.0])})
    assert comparison.notes == ["the numbers of steps differ, so that scores are not of equal effort"]


def put_env(run: Path, settings: str) -> None:
    (run / "config.yaml").write_text(f"env: {{id: CartPole-v1, {settings}}}\n")


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ("kwargs: {g: 9.8}", "kwargs: {g: 1.6}", True),
        ("kwargs: {}, wrappers: [{id: A}]", "kwargs: {}, wrappers: [{id: B}]", True),
        ("kwargs: {g: 10, h: 1}, num_envs: 2", "kwargs: {h: 1, g: 10.0}, num_envs: 4, wrappers: []", False),
    ],
)
def test_environments_that_differ_in_their_settings_are_said(
    tmp_path: Path, one: str, other: str, differ: bool
) -> None:
    a, b = put_seeds(tmp_path / "a", HIGH), put_seeds(tmp_path / "b", HIGH)
    for seed in range(len(HIGH)):
        put_env(a / f"seed-{seed}", one)
    assert compare({"a": a, "unknown": b}).notes == []
    put_env(b / "seed-3", other)
    notes = compare({"a": a, "b": b}).notes
    assert [note[:48] for note in notes] == (
        ["the environments differ in their kwargs or wrapp"] if differ else []
    )


def test_a_stopped_run_is_finished_whatever_its_config_says(tmp_path: Path) -> None:
    put_run(tmp_path / "a", 9.0, stop_reason="solved")
    (tmp_path / "a" / "config.yaml").write_text("seed: &a 1\nthreads: *a\n")
    put_run(tmp_path / "b", 8.0)
    assert compare({"a": tmp_path / "a", "b": tmp_path / "b"}).results[0].scores == (9.0,)
    (tmp_path / "b" / "config.yaml").write_text("seed: &a 1\nthreads: *a\n")
    with pytest.raises(ConfigError, match="aliases"):
        compare({"a": tmp_path / "a", "b": tmp_path / "b"})


def test_what_was_carried_on_or_never_begun_is_not_finished(tmp_path: Path) -> None:
    put_seeds(tmp_path / "a", HIGH)
    put_seeds(tmp_path / "b", HIGH)
    (tmp_path / "a" / "seed-0" / "config.yaml").write_text("total_timesteps: 2000\n")
    (tmp_path / "b" / "config.yaml").write_text("total_timesteps: 1000\n")
    comparison = compare({"a": tmp_path / "a", "b": tmp_path / "b"})
    assert [result.unfinished for result in comparison.results] == [
        ("seed-0",),
        ("seeds that were never begun",),
    ]
    (tmp_path / "a" / "seed-0" / "config.yaml").write_text("total_timesteps: 1000\n")
    (tmp_path / "b" / "summary.json").write_text("{}")
    assert compare({"a": tmp_path / "a", "b": tmp_path / "b"}).notes == []


def test_ranks_alone_do_not_make_a_winner(tmp_path: Path) -> None:
    mostly = [101.0 + n / 100 for n in range(22)] + [n / 100 for n in range(8)]
    steady = [100.0 + n / 100 for n in range(30)]
    pair = compare({"a": put_seeds(tmp_path / "a", mostly), "b": put_seeds(tmp_path / "b", steady)}).pairs[0]
    assert pair.probability == pytest.approx(22 / 30)
    assert pair.p_value < 0.05
    assert pair.lead < 0
    assert pair.better is None
    assert pair.verdict.startswith("these seeds cannot tell which is better: ranks and means disagree")


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    good = put_seeds(tmp_path / "good", HIGH)
    other = put_seeds(tmp_path / "other", HIGH, env="Acrobot-v1")
    suite = tmp_path / "suite"
    put_seeds(suite / "dqn", HIGH)
    (suite / "dqn" / "summary.json").write_text("{}")
    put_run(tmp_path / "unscored", 1.0, evaluation=None)
    put_run(tmp_path / "nan", float("nan"))
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "result.json").write_text('{"steps": 1')
    (tmp_path / "empty").mkdir()
    put_run(tmp_path / "mixed" / "seed-0", 1.0)
    put_run(tmp_path / "mixed" / "seed-1", 1.0, env="Acrobot-v1")
    for folder, message in (
        (other, "good is of CartPole-v1 and x of Acrobot-v1: their scores cannot be compared"),
        (suite, "holds several experiments; give one of them, such as .*dqn"),
        (tmp_path / "unscored", "not evaluated at its end"),
        (tmp_path / "nan", "damaged"),
        (tmp_path / "mixed", "runs of different environments: Acrobot-v1, CartPole-v1"),
        (tmp_path / "torn", "damaged"),
        (tmp_path / "empty", "holds no finished run$"),
        (tmp_path / "none", "no such folder"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            compare({"good": good, "x": folder})
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="two results or more"):
        compare({"good": good})
    assert compare({"good": good, "x": put_seeds(tmp_path / "peer", HIGH, env=None)}).pairs


def test_names_are_the_ends_of_paths_that_differ(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("x/dqn", "y/dqn", "y/c51"))
    assert list(name_folders([str(a), str(c)])) == ["dqn", "c51"]
    assert list(name_folders([str(a), str(b)])) == ["x/dqn", "y/dqn"]
    assert list(name_folders([str(c), f"z={a}", str(b)])) == ["c51", "z", "dqn"], "the order given"
    assert name_folders([f"ours={a}", f"theirs={b}"]) == {"ours": a, "theirs": b}
    odd = tmp_path / "lr=1"
    odd.mkdir()
    assert name_folders([str(odd), str(a)]) == {"lr=1": odd, "dqn": a}
    with pytest.raises(ConfigError, match="two results are named 'dqn'"):
        name_folders([str(a), str(a)])
    with pytest.raises(ConfigError, match="two results are named 'n'"):
        name_folders([f"n={a}", f"n={b}"])


def test_the_command_prints_a_table_and_draws(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_seeds(tmp_path / "a", LOW)
    put_seeds(tmp_path / "b", HIGH)
    (tmp_path / "folder.png").mkdir()
    monkeypatch.chdir(tmp_path)
    done = cli("compare", "a", "better=b", "--out", "ab.png")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[1].split()[:5] == ["a", "5", "1,000", "95.00", "2"]
    assert lines[2].split()[:3] == ["better", "5", "1,000"]
    assert "95 % interval" in lines[2]
    assert lines[3] == "P(a > better) = 0.00: better is better (p = 0.0079)"
    assert lines[-1] == "Picture ab.png"
    assert (tmp_path / "ab.png").read_bytes().startswith(b"\x89PNG")
    plain = json.loads(cli("compare", "a", "b", "--json").out)
    assert plain["pairs"][0]["better"] == "b"
    assert [result["iqm"] for result in plain["results"]] == [iqm(LOW), iqm(HIGH)]
    assert plain["picture"] == "compare.png"
    unwritable = cli("compare", "a", "b", "--out", "/proc/x.png")
    assert (unwritable.code, unwritable.err.count("\n")) == (2, 1)
    assert unwritable.err.startswith("error: --out: /proc/x.png: ")
    assert "b is better" in unwritable.out  # the numbers do not depend on the picture
    for words, message in (
        (("a",), "two results or more"),
        (("a", "nothing"), "no such folder"),
        (("a", "b", "--out", "x.pdf"), "--out: x.pdf"),
        (("a", "b", "--out", "no/x.png"), "--out: no/x.png"),
        (("a", "b", "--out", "folder.png"), "--out: folder.png"),
        (("a", "b="), "b=: no such folder"),
    ):
        refused = cli("compare", *words)
        assert refused.code == 2
        assert message in refused.err
        assert refused.err.count("\n") == 1


def test_each_result_has_a_colour_and_a_band() -> None:
    steps = np.arange(1.0, 6.0)
    results = {f"result {n}": [Series(steps, steps * n), Series(steps, steps * n + 1)] for n in range(1, 6)}
    figure = build_comparison_figure(results, "Title")
    (axes,) = figure.axes
    assert len({line.get_color() for line in axes.lines}) == 5
    assert len(axes.collections) == 5
    assert axes.lines[0].get_label() == "result 1, 2 seeds"
    figure.canvas.draw()
    legend = axes.get_legend()
    assert legend is not None
    title = axes._left_title  # type: ignore[attr-defined]
    assert not title.get_window_extent().overlaps(legend.get_window_extent())
