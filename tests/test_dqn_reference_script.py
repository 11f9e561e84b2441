"""The reference script runs as a user would run it."""

from __future__ import annotations

from pathlib import Path

from helpers.reference_scripts import run_script


def test_reference_script_trains_saves_and_predicts(tmp_path: Path) -> None:
    run_script("dqn", tmp_path)
