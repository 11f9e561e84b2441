"""Runs of pytest in forked processes, which need not import torch and the like again and again.

Nothing of the package itself is imported before the fork, so each process sees the package as it is then.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shlex
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutations.tree import Tree

_HEAVY = (
    *("torch", "numpy", "gymnasium", "gymnasium.vector", "numba", "pytest", "hypothesis", "hypothesis.numpy"),
    *("scipy.stats", "scipy.optimize", "yaml", "pydantic", "typer", "typer.rich_utils", "safetensors.torch"),
    *("torch._dynamo", "PIL.Image", "matplotlib.pyplot", "hypothesis.extra.numpy", "tensorboard"),
)
TIMEOUT = 300.0
"""Seconds after which a run counts as one that hangs, which nobody would overlook."""


@dataclass(frozen=True)
class Outcome:
    """How the tests went: which one failed first, if any did."""

    failed: str | None
    seconds: float
    """Of computing; a machine that is busy with other things makes no difference."""


def warm_up() -> None:
    """Import what tests and package need besides the package."""
    os.environ.setdefault("MPLBACKEND", "agg")
    for name in _HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert not any(name.partition(".")[0] == "rl_training" for name in sys.modules)


def run_tests(tree: Tree, tests: str, log: Path) -> Outcome:
    """Run tests in the tree until the first one fails; what they print goes to the log."""
    begun = time.monotonic()
    report = log.with_suffix(".json")
    report.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _inside(tree, tests, log, report)
        finally:
            os._exit(code)
    ended, seconds = _wait(child, begun + TIMEOUT)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what the tests have left behind
    if ended is None:
        return Outcome(f"none came to an end within {TIMEOUT:g} s", seconds)
    held: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}
    failed = held.get("failed")
    if ended and (failed is None or held["on_import"]):
        raise RuntimeError(f"{tests}: pytest ended with code {ended}, {failed}:\n{log.read_text()[-2000:]}")
    return Outcome(failed, seconds)


def failing(tree: Tree, tests: list[str], log: Path) -> set[str]:
    """Return which of these tests fail."""
    report = log.with_suffix(".json")
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = _inside(tree, shlex.join(tests), log, report, first_only=False)
        finally:
            os._exit(code)
    os.waitpid(child, 0)
    return set(json.loads(report.read_text())["every"])


def _wait(child: int, deadline: float) -> tuple[int | None, float]:
    """Return the exit code, none after the deadline, and the seconds that were computed."""
    while time.monotonic() < deadline:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, _, used = os.wait4(child, 0)
    return None, used.ru_utime + used.ru_stime


class _First:
    """Notes the first test that fails, and all."""

    def __init__(self) -> None:
        self.failed: str | None = None
        self.every: list[str] = []
        self.on_import = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid
            self.every.append(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.failed is None:
            self.failed, self.on_import = report.nodeid, True


def _inside(tree: Tree, tests: str, log: Path, report: Path, *, first_only: bool = True) -> int:
    os.setsid()
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.environ.clear()
    os.environ.update(tree.variables)
    os.chdir(tree.path)
    sys.dont_write_bytecode = True
    ours = str(Path(__file__).parent.parent)
    for name in [name for name in sys.modules if name.partition(".")[0] == "mutations"]:
        del sys.modules[name]
    sys.path[:] = [*tree.variables["PYTHONPATH"].split(os.pathsep), *(p for p in sys.path if p != ours)]
    import pytest

    words = [f"tests/{word}" if word.startswith("test_") else word for word in shlex.split(tests)]
    quiet = (
        *(["-x"] if first_only else []),
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--tb=short",
    )
    first = _First()
    code = int(pytest.main([*quiet, *words], plugins=[first]))
    report.write_text(json.dumps(vars(first)))
    sys.stdout.flush()
    return code
