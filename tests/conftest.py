"""Options and small tools that tests share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import settings

from rl_training.cli import main

# No deadline, since machines differ; the same examples every time, so that a red test stays red.
settings.register_profile("package", deadline=None, derandomize=True, database=None)
settings.load_profile("package")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", default=False, help="also run what takes minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="takes minutes; run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Small networks are fastest, and bit-identical, with one thread."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def slow(request: pytest.FixtureRequest) -> bool:
    """Whether the long variants are wanted."""
    return bool(request.config.getoption("--slow"))


class Outcome(NamedTuple):
    """What a command printed and ended with."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line in this process."""

    def run(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["rl-training", *map(str, words)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        return Outcome(code, *capsys.readouterr())

    return run
