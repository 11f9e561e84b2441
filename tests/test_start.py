"""How a process starts: what it imports before its first step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def modules_after(code: str) -> set[str]:
    """Run Python code in a process of its own, which has to end well; return what it printed, word by word."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_training_process_imports_nothing_it_does_not_need(tmp_path: Path) -> None:
    modules = modules_after(f"""
import sys
from rl_training import Callback, load_config
from rl_training.experiment.registry import train
class First(Callback):
    def on_step(self, training):
        print(*sys.modules)
        training.stop("seen")
config = load_config("ppo/cartpole_quick", {{"evaluation.final_episodes": 0}})
train(config, run_dir={str(tmp_path / "run")!r}, callback=First(), console=False)
""")
    assert {"torch", "gymnasium", "rl_training.algorithms.ppo"} <= modules
    heavy = {"numba", "matplotlib", "PIL", "rich", "typer", "pandas", "scipy", "sympy", "cv2", "pygame"}
    assert not {name.split(".")[0] for name in modules} & heavy
    others = ("dqn", "sac", "trpo", "drqn", "drqv2", "recurrent_ppo")
    assert not {f"rl_training.algorithms.{name}" for name in others} & modules
    # torch is most of a start by itself; our code makes it import no more of itself.
    bare = modules_after("import sys, torch; print(*sys.modules)")
    assert {name for name in modules if name.startswith("torch.")} <= bare
