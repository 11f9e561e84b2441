"""Say whether other versions of Python find what ``constraints.txt`` pins: ``tools/resolve.py PYTHON...``.

Nothing is installed. torch is left out: on Linux, its wheels on PyPI bring CUDA along.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def requirements() -> list[str]:
    """Return what the package itself depends on, without its extras and torch."""
    tomllib = importlib.import_module("tomllib")  # of Python 3.11 and newer
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [line for line in project["dependencies"] if not line.startswith("torch")]


def resolve(python: str) -> str:
    """Return what pip says of one interpreter, nothing if all is well."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as place:
        constraints = Path(place, "constraints.txt")
        constraints.write_text("\n".join(line for line in pins if not line.startswith("torch==")))
        options = (
            "--dry-run",
            "--ignore-installed",
            "--only-binary=:all:",
            "--quiet",
            "-c",
            str(constraints),
        )
        words = [sys.executable, "-m", "pip", "--python", python, "install", *options, *requirements()]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def main() -> int:
    """Print a line for each interpreter; exit 1 if one of them does not find everything."""
    bad = 0
    for python in sys.argv[1:]:
        problem = resolve(python)
        bad += bool(problem)
        print(f"{python}: {problem or 'ok'}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
