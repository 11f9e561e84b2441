"""The reference script of Prioritized DQN runs as a user would run it, and says what it replays."""

from __future__ import annotations

from pathlib import Path

from helpers.reference_scripts import run_script


def test_reference_script_trains_saves_and_predicts(tmp_path: Path) -> None:
    printed = run_script("prioritized_dqn", tmp_path)
    assert "a tenth of the 1498 transitions makes up" in printed, "the last two wait for their three steps"
    share = int(printed.split("makes up ")[1].split("%")[0])
    assert 10 < share < 100, "more than a tenth of what is replayed, and less than all of it"
