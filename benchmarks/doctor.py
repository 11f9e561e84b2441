"""What the doctor finds in twelve broken set-ups, and in the packaged configs, where it should find nothing.

Run ``python benchmarks/doctor.py broken``, ``python benchmarks/doctor.py packaged [NAME...]`` or ``python
benchmarks/doctor.py runs FOLDER...`` for runs that are known to be healthy.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

from broken_setups import SETUPS

from rl_training.experiment.configs import load_config, packaged_configs
from rl_training.experiment.doctor.examine import examine_config, examine_run
from rl_training.experiment.doctor.findings import Report

SECONDS = 120.0
"""For each packaged config, so that every probe is decided even on a busy machine."""
MEMORYLESS = {"dqn/cartpole_no_velocity", "ppo/minigrid_memory"}
"""Packaged for comparison: agents without a memory on tasks that need one, which is what the doctor should say."""


def causes(report: Report) -> list[str]:
    """Return the causes of what was found."""
    return list(dict.fromkeys(finding.cause or finding.check for finding in report.bad))


def broken() -> bool:
    """Examine the broken set-ups; return whether enough of their causes were named."""
    named = 0
    for setup in SETUPS:
        report = examine_config(load_config(setup.config, setup.overrides))
        found = causes(report)
        named += setup.cause in found
        verdict = "named" if setup.cause in found else "MISSED"
        print(f"{setup.what:<38} {verdict:<7} {report.seconds:5.1f} s  {', '.join(found)}", flush=True)
    print(f"{named} of {len(SETUPS)} causes named")
    return named >= 10


def packaged(names: Iterable[str]) -> bool:
    """Examine packaged configs; return whether nothing was found where nothing is wrong."""
    wrong = undecided = count = 0
    begun = time.monotonic()
    for name in names:
        report = examine_config(load_config(name), seconds=SECONDS)
        found = causes(report)
        right = found == (["memory"] if name in MEMORYLESS else [])
        left = [finding.check for finding in report.findings if "undecided" in finding.text]
        count, wrong, undecided = count + 1, wrong + (not right), undecided + len(left)
        said = "; ".join(f"{finding.check}: {finding.text}" for finding in report.bad)
        print(
            (f"{name:<36} {'ok' if right else 'ALARM':<5} {report.seconds:5.1f} s  undecided {left} {said}"),
            flush=True,
        )
    took = time.monotonic() - begun
    print(f"{count} configs, {wrong} false alarms, {undecided} probes undecided, {took:.0f} s")
    return not wrong


def runs(folders: Iterable[str]) -> bool:
    """Examine runs that went well; return whether nothing was found."""
    alarms = 0
    for folder in folders:
        found = [f"{finding.check}: {finding.text}" for finding in examine_run(Path(folder)).bad]
        alarms += bool(found)
        print(f"{folder:<36} {'ALARM' if found else 'ok':<5} {'; '.join(found)}", flush=True)
    print(f"{alarms} runs with alarms")
    return not alarms


def main(what: str, *names: str) -> bool:
    if what == "broken":
        return broken()
    if what == "packaged":
        return packaged(names or packaged_configs())
    if what == "runs" and names:
        return runs(names)
    raise SystemExit(__doc__)


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
