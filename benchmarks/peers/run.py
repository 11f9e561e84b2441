"""The same jobs by rl_training, Stable-Baselines3, sb3-contrib, SBX, Tianshou and rlox: speed, learning, memory.

Every side is a process of its own with one thread, the peers' in an environment of their own. In a contest of speed
they take turns, so that whatever else the machine does hits all of them; all have warmed up before, and every step
timed includes its share of updates. Ratios are those of the total times. ``README.md`` says what is equal and what not.

Run: python benchmarks/peers/run.py --peers .venv-peers/bin/python [--only NAME ...] [--out FOLDER] [--quick]
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import datetime
from pathlib import Path

import job_kinds
import jobs
from context import TITLES, Context
from report import Report
from sections import SECTIONS

ON_POLICY = [
    name for name, contest in jobs.CONTESTS.items() if isinstance(contest.job, job_kinds.OnPolicyJob)
]
ACTOR_CRITIC = [
    name for name, contest in jobs.CONTESTS.items() if isinstance(contest.job, job_kinds.ActorCriticJob)
]
GROUPS = {
    "speed": [*jobs.CONTESTS, *jobs.PHASED],
    "on-policy": [*ON_POLICY, "ppo-scaling", "ppo-bar"],
    "actor-critic": ACTOR_CRITIC,
    "curves": [f"curves-{name}" for name in jobs.CURVES],
}

USUAL = [name for name in SECTIONS if name not in {f"curves-{long}" for long in jobs.LONG_CURVES}]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers", type=Path, default=Path(".venv-peers/bin/python"), help="their interpreter"
    )
    parser.add_argument("--ours", type=Path, default=Path(sys.executable), help="our interpreter")
    parser.add_argument(
        "--only", nargs="+", choices=[*GROUPS, *SECTIONS], help="default: all but long curves"
    )
    parser.add_argument("--sides", nargs="+", choices=list(TITLES), default=list(TITLES), help="default: all")
    parser.add_argument("--turns", type=positive, help="turns of each side (default 15, quick 3)")
    parser.add_argument("--seeds", type=positive, help="seeds of each run that learns (default 3, quick 1)")
    parser.add_argument(
        "--observations", type=positive, help="stored by dqn-images (default 100000, quick 1000)"
    )
    parser.add_argument("--jobs", type=positive, default=2, help="runs that learn at a time (default 2)")
    parser.add_argument("--out", type=Path, help="default: runs/peers/DATE")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see whether everything works")
    args = parser.parse_args()
    for name, python in (("--peers", args.peers), ("--ours", args.ours)):
        if not python.exists():
            parser.error(f"{name}: {python} does not exist; 'make bench-peers' installs it")
        if not (python.is_file() and os.access(python, os.X_OK)):
            parser.error(f"{name}: {python} is no interpreter")
    return args


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def main() -> int:
    args = parse()
    out: Path = args.out or Path("runs/peers") / datetime.now().strftime("%Y%m%d-%H%M%S")
    if (out / "results.json").exists():
        raise SystemExit(f"error: --out: {out} holds results already")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"error: --out: {out}: {error.strerror}") from None
    report = Report(out.absolute(), load_before=os.getloadavg()[0])
    context = Context(
        # Not resolved: the interpreter of a virtual environment is a link, and knows it by its own place.
        ours=args.ours.absolute(),
        peers=args.peers.absolute(),
        out=out.absolute(),
        turns=args.turns or (3 if args.quick else 15),
        jobs=args.jobs,
        seeds=args.seeds or (1 if args.quick else 3),
        quick=args.quick,
        report=report,
        sides=tuple(args.sides),
        observations=args.observations,
    )
    wanted = {name for word in args.only or USUAL for name in GROUPS.get(word, [word])}
    for name, section in SECTIONS.items():
        if name in wanted:
            report.add(name, section(context))
    report.write()
    print(f"Written to {out}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped; what was finished is in --out", file=sys.stderr)
        sys.exit(130)
