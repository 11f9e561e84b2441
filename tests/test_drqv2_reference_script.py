"""The reference script of DrQ-v2 runs as a user would run it."""

from __future__ import annotations

from pathlib import Path

from helpers.reference_scripts import run_script


def test_reference_script_trains_saves_plays_and_films(tmp_path: Path) -> None:
    printed = run_script("drqv2", tmp_path, "pendulum", 540)
    assert "observations: Box(0, 255, (3, 3, 32, 32), uint8)" in printed
    assert "one episode by hand: -" in printed
    assert (tmp_path / "run" / "episode.mp4").stat().st_size > 5_000
