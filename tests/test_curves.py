"""Learning curves: what is read from a run's metrics, and what the pictures show of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import colors, image
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rl_training.config import EnvConfig
from rl_training.errors import RLTrainingError
from rl_training.runtime import curves
from rl_training.runtime.curves import Series, build_run_figure, build_seeds_figure, extract_series
from rl_training.runtime.report import steps_of
from rl_training.statistics import bootstrap_interval, iqm


def train(step: int, value: float) -> dict[str, Any]:
    return {"step": step, "rollout/ep_rew_mean": value}


def evaluated(step: int, mean: float, std: float = 1.0) -> dict[str, Any]:
    return {"step": step, "eval/mean_reward": mean, "eval/std_reward": std}


def series(*points: tuple[float, float]) -> Series:
    steps, values = np.array(points, dtype=float).T
    return Series(steps, values)


def write(path: Path, records: list[dict[str, Any]], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + tail)
    return path


def points(vertices: Any) -> list[tuple[float, ...]]:
    return [tuple(vertex) for vertex in vertices]


def lines(figure: Figure) -> dict[str, list[tuple[float, ...]]]:
    return {str(line.get_label()): points(line.get_xydata()) for line in figure.axes[0].lines}


def band_corners(figure: Figure) -> set[tuple[float, ...]]:
    (band,) = figure.axes[0].collections
    return set(points(band.get_paths()[0].vertices))


def render(figure: Figure) -> None:
    FigureCanvasAgg(figure).draw()


def texts(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.axes[0].texts)


def pixels_of(path: Path, color: str) -> int:
    picture = image.imread(path)[..., :3]
    return int((np.abs(picture - colors.to_rgb(color)).max(axis=-1) < 0.01).sum())


def test_metrics_are_read_in_order(tmp_path: Path) -> None:
    records = [train(10, 1.5), evaluated(10, 2.0), {"step": 20, "train/loss": float("nan")}]
    got = curves.read_metrics(write(tmp_path / "metrics.jsonl", records))
    assert got[:2] == records[:2]
    assert got[2]["step"] == 20


@pytest.mark.parametrize(
    "tail", ['{"step": 20, "rollout/ep_r', '{"step": 20, "note": "\\ud8', "\0\0\0\0", "{"]
)
def test_a_torn_last_line_is_left_out(tmp_path: Path, tail: str) -> None:
    path = write(tmp_path / "metrics.jsonl", [train(10, 1.0)], tail)
    assert curves.read_metrics(path) == [train(10, 1.0)]


def test_a_last_line_torn_inside_a_character_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "note": "\xc3')
    assert curves.read_metrics(path) == [{"step": 1}]


def test_a_whole_last_line_without_its_newline_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "metrics.jsonl", [train(10, 1.0)], '{"step": 20}')
    assert curves.read_metrics(path)[-1] == {"step": 20}


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"loss": 1}', '{"step": "ten"}'])
def test_damage_before_the_last_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    with pytest.raises(RLTrainingError, match=r"metrics\.jsonl:2: not a JSON object"):
        curves.read_metrics(path)


def test_a_series_skips_records_without_a_finite_value() -> None:
    records = [
        train(1, 5.0),
        evaluated(2, 0.0),
        train(3, float("nan")),
        {**train(4, 0.0), curves.TRAIN_RETURN: None},
    ]
    got = extract_series([*records, train(5, 6)], curves.TRAIN_RETURN)
    assert got.steps.tolist() == [1, 5]
    assert got.values.tolist() == [5, 6]


def test_a_resumed_run_replaces_the_steps_it_walks_again() -> None:
    records = [train(10, 1), train(20, 2), train(30, 3), train(20, 7), train(35, 8)]
    got = extract_series(records, curves.TRAIN_RETURN)
    assert got.steps.tolist() == [10, 20, 35]
    assert got.values.tolist() == [1, 7, 8]


def test_run_figure_shows_both_returns_and_the_spread() -> None:
    figure = build_run_figure(
        [train(0, 1.0), evaluated(50, 4.0, 2.0), train(100, 3.0), evaluated(100, 6.0, 1.0)], "t"
    )
    drawn = lines(figure)
    assert drawn["training return, mean of the last 100 episodes"] == [(0, 1), (100, 3)]
    assert drawn["evaluation return, mean ± std"] == [(50, 4), (100, 6)]
    assert band_corners(figure) == {(50, 2), (50, 6), (100, 5), (100, 7)}


def test_an_evaluation_without_a_spread_has_a_band_of_no_height() -> None:
    figure = build_run_figure([evaluated(1, 4.0, 2.0), {"step": 2, curves.EVAL_MEAN: 5.0}], "t")
    assert band_corners(figure) == {(1, 2), (1, 6), (2, 5)}


def test_a_band_ends_where_no_episode_has_been() -> None:
    whole = {**evaluated(1, 480.0, 50.0), "eval/min_reward": 300.0, "eval/max_reward": 500.0}
    narrow = {**evaluated(2, 480.0, 5.0), "eval/min_reward": 300.0, "eval/max_reward": 500.0}
    assert band_corners(build_run_figure([whole, narrow], "t")) == {(1, 430), (1, 500), (2, 475), (2, 485)}


def test_the_evaluation_after_the_last_step_is_the_last_point() -> None:
    final = {key.replace("eval/", "final/"): value for key, value in evaluated(2, 7.0, 1.0).items()}
    figure = build_run_figure([evaluated(1, 4.0, 2.0), evaluated(2, 5.0, 2.0), final], "t")
    assert lines(figure)["evaluation return, mean ± std"] == [(1, 4), (2, 7)]
    assert band_corners(figure) == {(1, 2), (1, 6), (2, 6), (2, 8)}


def test_a_picture_says_over_how_many_episodes_it_means_and_what_it_counts() -> None:
    figure = build_run_figure([train(1, 1.0)], "t", window=7, steps="steps of the agent")
    assert list(lines(figure)) == ["training return, mean of the last 7 episodes"]
    assert figure.axes[0].get_xlabel() == "steps of the agent"
    wrappers = [{"id": "rl_training.envs.pixels:ActionRepeat", "kwargs": {"repeat": 3}}]
    env = EnvConfig.model_validate({"id": "Pendulum-v1", "wrappers": wrappers})
    assert steps_of(env) == "steps of the agent, each 3 environment steps"
    assert steps_of(EnvConfig(id="Pendulum-v1")) == "environment steps"


def test_run_figure_without_evaluation_or_without_episodes() -> None:
    assert list(lines(build_run_figure([train(1, 1.0), train(2, 2.0)], "t"))) == [
        "training return, mean of the last 100 episodes"
    ]
    assert list(lines(build_run_figure([evaluated(1, 1.0)], "t"))) == ["evaluation return, mean ± std"]


def test_a_single_point_has_a_marker_and_a_bar() -> None:
    axes = build_run_figure([train(500, 1.0), evaluated(500, 4.0, 2.0)], "t").axes[0]
    assert [line.get_marker() for line in axes.lines] == ["o", "o"]
    (bar,) = axes.collections
    np.testing.assert_array_equal(bar.get_paths()[0].vertices, [[500, 2], [500, 6]])
    several = build_run_figure([train(1, 1.0), train(2, 1.0)], "t").axes[0]
    assert several.lines[0].get_marker() == "None"


@pytest.mark.parametrize("records", [[], [{"step": 5, "train/loss": 0.1}]])
def test_figures_say_when_there_is_nothing_to_show(records: list[dict[str, Any]]) -> None:
    assert "no data yet" in texts(build_run_figure(records, "t"))
    assert "no data yet" in texts(build_seeds_figure([records, records], "t"))
    assert texts(build_run_figure([train(1, 1.0)], "t")) == ""


@pytest.mark.parametrize(("last", "expected"), [(8, "8"), (50_000, "50k"), (2_000_000, "2M")])
def test_steps_are_written_short_and_from_zero(last: int, expected: str) -> None:
    figure = build_run_figure([train(last // 2, 1.0), train(last, 2.0)], "t")
    render(figure)
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels[0] == "0"
    assert expected in labels


def test_text_never_overlaps() -> None:
    figure = build_run_figure([train(0, 3e6), evaluated(1, 3e6 + 1)], "a long title " * 12)
    render(figure)
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert legend is not None
    title = next(
        child for child in axes.get_children() if getattr(child, "get_text", str)().startswith("a long")
    )
    legend_box, title_box = legend.get_window_extent(), title.get_window_extent()
    assert axes.bbox.y1 <= legend_box.y0
    assert legend_box.y1 <= title_box.y0
    assert title_box.x1 <= 1000
    assert title_box.y1 <= 600
    assert axes.yaxis.get_offset_text().get_text() == ""


def test_summary_interpolates_only_within_each_seeds_range() -> None:
    first, second = series((0, 0), (100, 10)), series((50, 20), (150, 40))
    summary = curves.summarize_seeds([first, second])
    assert summary.steps.tolist() == [0, 50, 100, 150]
    # Alone at 0; 5 and 20 at 50; 10 and 30 at 100; alone at 150.
    assert summary.center.tolist() == [0, 12.5, 20, 40]
    assert (summary.low[0], summary.high[0]) == (0, 0)
    assert (summary.low[1], summary.high[1]) == (5, 20)


def test_summary_is_the_iqm_and_its_bootstrap_interval() -> None:
    scores = [1.0, 2.0, 4.0, 9.0, 100.0]
    summary = curves.summarize_seeds([series((10, score)) for score in scores])
    assert summary.center.tolist() == [iqm(scores)]
    assert (summary.low[0], summary.high[0]) == bootstrap_interval(scores)


def test_the_band_of_few_seeds_is_their_range() -> None:
    scores = [1.0, 2.0, 4.0, 100.0]
    summary = curves.summarize_seeds([series((10, score)) for score in scores])
    assert (summary.low[0], summary.center[0], summary.high[0]) == (1.0, 3.0, 100.0)


def test_summary_leaves_out_steps_that_few_seeds_reached() -> None:
    long = series((0, 1), (100, 1), (900, 50))
    summary = curves.summarize_seeds([long, *[series((0, 1), (100, 1))] * 2])
    assert summary.steps.tolist() == [0, 100]


def test_summary_of_many_points_is_thinned_and_keeps_the_ends() -> None:
    steps = np.arange(5000, dtype=float)
    summary = curves.summarize_seeds([Series(steps, 2 * steps)] * 2)
    assert summary.steps.size == 500
    assert (summary.steps[0], summary.steps[-1]) == (0, 4999)
    np.testing.assert_allclose(summary.center, 2 * summary.steps)


def test_seeds_figure_shows_each_seed_and_their_iqm() -> None:
    runs = [
        [evaluated(0, score), evaluated(10 + index, score)] for index, score in enumerate([1.0, 2.0, 30.0])
    ]
    axes = build_seeds_figure([*runs, []], "t").axes[0]
    *seeds, center = axes.lines
    assert points(seeds[0].get_xydata()) == [(0, 1), (10, 1)]
    assert points(seeds[2].get_xydata()) == [(0, 30), (12, 30)]
    assert center.get_label() == "evaluation return, IQM of 3 seeds with their range"
    *_, five = build_seeds_figure([runs[0]] * 5, "t").axes[0].lines
    assert five.get_label() == "evaluation return, IQM of 5 seeds with 95 % interval"
    assert points(center.get_xydata()) == [(0, 11), (10, 11), (11, 16)]
    assert all(line.get_linewidth() < center.get_linewidth() for line in seeds)
    legend = axes.get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == 2


def test_pictures_are_whole_pngs_that_show_their_data(tmp_path: Path) -> None:
    full = [
        record for step in range(1000, 9000, 1000) for record in (train(step, step), evaluated(step, -step))
    ]
    metrics = write(tmp_path / "metrics.jsonl", full, '{"step": 9000, "ev')
    empty = write(tmp_path / "empty.jsonl", [])
    curves.plot_run(metrics, tmp_path / "run.png", "DQN on $-world_^$")
    curves.plot_seeds([metrics, metrics, empty], tmp_path / "seeds.png", "DQN")
    curves.plot_run(empty, tmp_path / "empty.png", "DQN")
    for name in ("run.png", "seeds.png", "empty.png"):
        data = (tmp_path / name).read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        assert image.imread(tmp_path / name).shape[:2] == (600, 1000)
    assert pixels_of(tmp_path / "run.png", curves.EVAL_COLOR) > 500
    assert pixels_of(tmp_path / "run.png", curves.TRAIN_COLOR) > 300
    assert pixels_of(tmp_path / "seeds.png", curves.EVAL_COLOR) > 500
    assert pixels_of(tmp_path / "seeds.png", curves.TRAIN_COLOR) == 0
    assert pixels_of(tmp_path / "empty.png", curves.EVAL_COLOR) == 0
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".jsonl"] * 2 + [".png"] * 3


def test_a_failed_write_keeps_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_the_disk(canvas: FigureCanvasAgg, file: Any) -> None:
        file.write(b"half a pict")
        raise OSError("no space left on device")

    metrics, out = write(tmp_path / "metrics.jsonl", [train(1, 1.0)]), tmp_path / "curve.png"
    out.write_bytes(b"old picture")
    monkeypatch.setattr(FigureCanvasAgg, "print_png", fill_the_disk)
    with pytest.raises(OSError, match="no space"):
        curves.plot_run(metrics, out, "t")
    assert out.read_bytes() == b"old picture"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.png", "metrics.jsonl"]


def test_importing_does_not_load_matplotlib_and_plotting_does_not_load_pyplot(tmp_path: Path) -> None:
    metrics = write(tmp_path / "metrics.jsonl", [evaluated(1, 1.0)])
    script = (
        "import sys, pathlib\n"
        "from rl_training.runtime import curves\n"
        "assert 'matplotlib' not in sys.modules\n"
        "curves.plot_run(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), 't')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    command = [sys.executable, "-c", script, str(metrics), str(tmp_path / "curve.png")]
    subprocess.run(command, check=True)
    assert (tmp_path / "curve.png").exists()


@pytest.mark.parametrize("row", [{"step": 10**400}, {"step": 1, "eval/mean_reward": -(10**400)}])
def test_numbers_out_of_range_are_one_line(tmp_path: Path, row: dict[str, int]) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(RLTrainingError, match=r"metrics\.jsonl:1: a number out of range$"):
        curves.read_metrics(tmp_path / "metrics.jsonl")
