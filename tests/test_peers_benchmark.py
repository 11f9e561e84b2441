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
