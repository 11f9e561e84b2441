"""The reference script of QR-DQN runs as a user would run it, and shows quantiles."""

from __future__ import annotations

from pathlib import Path

from helpers.reference_scripts import run_script


def test_reference_script_trains_saves_and_predicts(tmp_path: Path) -> None:
    printed = run_script("qr_dqn", tmp_path)
    rows = [line for line in printed.splitlines() if ", pushed " in line]
    assert len(rows) == 6
    assert all(len(row.split()) == 3 + 6 for row in rows), "five quantiles and their mean"
