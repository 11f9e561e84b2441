"""The harness of the contest with the peers, as far as it goes without any of them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).parent.parent / "benchmarks" / "peers"
INSTALLED = [name for name in ("stable_baselines3", "sbx", "tianshou") if importlib.util.find_spec(name)]


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PEERS / "run.py"), *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)


def test_an_interpreter_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run("--peers", tmp_path / "python", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "does not exist; 'make bench-peers' installs it" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(bool(INSTALLED), reason="a peer is installed here")
def test_without_the_peers_ours_is_measured_and_theirs_is_one_line_each(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("--peers", sys.executable, "--only", "A", "--quick", "--turns", 1, "--out", out)
    assert done.returncode == 1
    failures = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert [line.split(":")[1].strip() for line in failures] == ["A, sb3", "A, sbx", "A, tianshou"]
    assert all("No module named" in line for line in failures)
    results = json.loads((out / "results.json").read_text())
    assert results["failures"] == failures
    ours = results["sections"]["A"]["ours"]
    assert (ours["steps"], ours["updates"]) == (2_000, 200)
    assert sum(ours["seconds"]) > 0
    assert ours["peak_rss"] > 50 * 2**20
    assert set(results["sections"]["A"]) == {"ours"}
    table = (out / "table.md").read_text()
    assert "| rl_training | " in table
    assert "Stable-Baselines3 |" not in table
    again = run("--peers", sys.executable, "--only", "A", "--out", out)
    assert again.returncode == 1
    assert "holds results already" in again.stderr


@pytest.mark.skipif(bool(INSTALLED), reason="a peer is installed here")
def test_without_the_peers_our_curves_are_drawn_and_nobody_is_compared(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run("--peers", sys.executable, "--only", "curves-A", "--quick", "--seeds", 2, "--out", out)
    assert done.returncode == 1
    failures = [line.split(":")[1].strip() for line in done.stdout.splitlines() if line.startswith("error: ")]
    others = ("sb3", "sbx", "tianshou")
    assert sorted(failures) == sorted(f"curves-A, {side}, seed {seed}" for side in others for seed in (0, 1))
    runs = json.loads((out / "results.json").read_text())["sections"]["curves-A"]
    assert [(run["side"], run["seed"], len(run["means"])) for run in runs] == [
        ("ours", 0, 20),
        ("ours", 1, 20),
    ]
    table = (out / "table.md").read_text()
    first, second = (run["final"] for run in runs)
    assert f"| rl_training | {first:.1f}, {second:.1f} | {(first + second) / 2:.1f} |" in table
    assert "above" not in table
    assert not (out / "curves" / "A.png").exists()


def test_curves_of_two_sides_are_compared_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    import sections
    from context import Context
    from report import Report

    class Told:
        """A worker that writes the results of a run at once: the first side's seeds end above all others'."""

        def __init__(self, side: str) -> None:
            self.side = side

        def __enter__(self) -> Told:
            return self

        def __exit__(self, *error: object) -> None: ...

        def ask(self, **request: object) -> None:
            folder, seed = Path(str(request["folder"])), int(str(request["seed"]))
            folder.mkdir(parents=True)
            score = seed + (100.0 if self.side == "ours" else 0.0)
            rows = [{"step": step, "eval/mean_reward": score} for step in (1, 2)]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            evaluation = {"mean": score, "std": 0.0, "returns": [score], "lengths": [1]}
            result = {"steps": 2, "updates": 1, "seconds": 1.0, "evaluation": evaluation}
            (folder / "result.json").write_text(json.dumps(result))

    monkeypatch.setattr(Context, "start", lambda self, side, name: Told(side))
    nobody = Path("python")
    report = Report(tmp_path, load_before=0.0)
    context = Context(nobody, nobody, tmp_path, turns=1, seeds=5, quick=True, report=report)
    table = sections.SECTIONS["curves-B"](context)
    assert [row[:3] for row in table.rows] == [
        ["rl_training", "100.0, 101.0, 102.0, 103.0, 104.0", "102.0"],
        ["Stable-Baselines3", "0.0, 1.0, 2.0, 3.0, 4.0", "2.0"],
    ]
    assert "rl_training above Stable-Baselines3: 1.00; rl_training is better (p = 0.0079)." in table.notes
    assert (tmp_path / "curves" / "B.png").stat().st_size > 0


def test_ratios_are_those_of_the_total_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    from turns import Times, ratios

    ours = Times(seconds=[1.0, 1.0, 4.0], cpu=[1.0, 1.0, 1.0], steps=300, updates=30)
    theirs = Times(seconds=[3.0, 5.0, 4.0], cpu=[3.0, 3.0, 3.0], steps=300, updates=30)
    found = ratios(ours, theirs)
    assert found["wall"] == pytest.approx(2.0)
    assert found["cpu"] == pytest.approx(3.0)
    assert found["low"] == pytest.approx(1.4)
    assert found["high"] == pytest.approx(4.6)
    assert ours.updates_per_step == pytest.approx(0.1)
