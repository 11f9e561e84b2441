"""The reference script of DRQN runs as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "examples" / "drqn_cartpole_reference.py"


def test_reference_script_trains_saves_and_plays(tmp_path: Path) -> None:
    options = ["--total-timesteps", "1500", "--episodes", "3", "--run-dir", "run"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "over 3 episodes" in done.stdout
    assert "one episode with memory: " in done.stdout
    assert "one episode without memory: " in done.stdout
    assert (tmp_path / "run" / "exported" / "manifest.json").is_file()
