"""The other reference scripts run, and each shows what is special to its algorithm."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

from helpers.children import Child
from helpers.reference_scripts import EXAMPLES

SHOWN = {
    "c51": ["pole upright:", "pole falling:", "0 to  10"],
    "iqn": ["caution changes the action in ", "in the worst 25% of cases"],
    "rainbow": ["noise of noisy layer 0: ", "noise of noisy layer 1: "],
    "r2d2": ["episodes ended in 200 steps of three environments"],
    "ppo": [
        "pole falling to the left: a push to the right has 50% before training, ",
        "or drawn ten times [",
    ],
    "a2c": ["of a pole that is upright: ", "21 gradient steps, one for 62 env steps; 0% clipped"],
    "recurrent_ppo": ["episodes ended in 500 steps of 4 environments if actions are drawn"],
    "ddpg": ["pendulum hanging: left -", "pendulum upright: torque "],
    "td3": ["pendulum falling: the critics say -", "pendulum upright: torque "],
    "sac": ["step   1000: temperature 0.", "pendulum upright: torque "],
    "tqc": ["pendulum upright: returns from -", "pendulum upright: torque "],
    "crossq": ["speed: ", "402 batches of the actor, no target network"],
    "discrete_sac": [
        "pole upright: a push to the right has ",
        "drawn ten times for a pole that is upright: [",
    ],
    "trpo": ["step   1024: KL divergence 0.00", "2 updates, of which the line search refused "],
    "dqn_minatar": ["|##########|", "values: stay ", "action: "],
}


PENDULUM = {"ddpg", "td3", "sac", "tqc", "crossq", "drqv2"}


def script_of(algo: str) -> str:
    if algo == "dqn_minatar":
        return "dqn_minatar_reference.py"
    return f"{algo}_{'pendulum' if algo in PENDULUM else 'cartpole'}_reference.py"


@pytest.mark.parametrize("algo", SHOWN)
def test_reference_script_trains_saves_and_shows(tmp_path: Path, algo: str) -> None:
    if algo == "dqn_minatar":
        pytest.importorskip("minatar")

    def run() -> None:
        os.chdir(tmp_path)
        script = str(EXAMPLES / script_of(algo))
        sys.argv = [script, "--total-timesteps", "1304", "--episodes", "3", "--run-dir", "run"]
        runpy.run_path(script, run_name="__main__")

    child = Child(tmp_path, run)
    assert child.wait() == 0, child.err
    for text in ("over 3 episodes", *SHOWN[algo]):
        assert text in child.out
    assert (tmp_path / "run" / "exported" / "manifest.json").is_file()


def test_every_script_is_run_by_some_test() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*_reference.py")}
    apart = {"dqn", "prioritized_dqn", "qr_dqn", "drqn", "drqv2"}
    assert scripts == {script_of(algo) for algo in (*SHOWN, *apart)}
