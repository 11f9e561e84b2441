"""The reference script of DRQN runs as a user would run it."""

from __future__ import annotations

from pathlib import Path

from helpers.reference_scripts import run_script


def test_reference_script_trains_saves_and_plays(tmp_path: Path) -> None:
    printed = run_script("drqn", tmp_path)
    assert "one episode with memory: " in printed
    assert "one episode without memory: " in printed
