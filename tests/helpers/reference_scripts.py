"""Running a reference script as a user would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run_script(algo: str, folder: Path, env: str = "cartpole", steps: int = 1500) -> str:
    """Run the script of an algorithm briefly in ``folder``, see that it trains and saves, and return what it prints."""
    options = ["--total-timesteps", str(steps), "--episodes", "3", "--run-dir", "run"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{algo}_{env}_reference.py"), *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "over 3 episodes" in done.stdout
    assert (folder / "run" / "exported" / "manifest.json").is_file()
    return done.stdout
