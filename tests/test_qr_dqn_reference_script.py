"""The reference script of QR-DQN runs as a user would run it, and shows quantiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "examples" / "qr_dqn_cartpole_reference.py"


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
    rows = [line for line in done.stdout.splitlines() if ", pushed " in line]
    assert len(rows) == 6
    assert all(len(row.split()) == 3 + 6 for row in rows), "five quantiles and their mean"
    assert (tmp_path / "run" / "exported" / "manifest.json").is_file()
