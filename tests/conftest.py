"""Options and small tools that tests share."""

from __future__ import annotations

import pytest
import torch


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
