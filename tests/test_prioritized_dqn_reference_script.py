"""The reference script of Prioritized DQN runs as a user would run it, and says what it replays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "examples" / "prioritized_dqn_cartpole_reference.py"


def test_reference_script_trains_saves_and_predicts(tmp_path: Path) -> None:
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
    assert "a tenth of the 1500 transitions makes up" in done.stdout
    share = int(done.stdout.split("makes up ")[1].split("%")[0])
    assert 10 < share < 100, "more than a tenth of what is replayed, and less than all of it"
    assert (tmp_path / "run" / "exported" / "manifest.json").is_file()
