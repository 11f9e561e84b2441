"""Hours of training with frequent saves and evaluations: are memory, open files, processes and the folder's size flat?

A run of its own process, with environments in subprocesses, is watched from outside, then ended by SIGTERM; its last
checkpoint has to evaluate. Watching begins once the replay is full. Logs grow by design, a row each time, and are
counted apart from checkpoints. Exit code 1 says what was not flat.

Run: python benchmarks/soak.py [--minutes 120] [--config prioritized_dqn/cartpole] [--out soak.json] [key=value ...]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

SETTINGS = (
    "total_timesteps=1_000_000_000",
    "env.num_envs=4",
    "env.vectorization=subprocess",
    "algo_kwargs.buffer_size=20_000",
    "algo_kwargs.learning_starts=1_000",
    "algo_kwargs.train_freq=8",
    "algo_kwargs.gradient_steps=1",
    "evaluation.frequency=2_000",
    "evaluation.episodes=2",
    "evaluation.final_episodes=0",
    "checkpoint.frequency=1_000",
    "logging.frequency=5_000",
)
"""Some saves and evaluations every second or two."""
GROWTH = {"rss_mib": 1.05, "threads": 1.0, "descriptors": 1.0, "processes": 1.0, "checkpoints_mib": 1.05}
"""How far the least of the last fifth of the samples may lie above the least of the first fifth: evaluations open
environments and saves write beside what is kept, so only what never goes away again is a leak."""


@dataclass(frozen=True)
class Sample:
    """What the run and its workers held at one moment."""

    seconds: float
    steps: int
    rss_mib: float
    threads: int
    descriptors: int
    processes: int
    checkpoints_mib: float
    logs_mib: float


def descendants(pid: int) -> list[int]:
    """Return a process and all that it started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += descendants(int(child))
    return found


def megabytes(folder: Path) -> float:
    """Return the size of all files below a folder; what is gone by the time it is looked at counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total / 2**20


def newest_step(run: Path) -> int:
    """Return the step of the newest checkpoint, 0 if there is none."""
    steps = [int(path.name[5:14]) for path in (run / "checkpoints").glob("step-*")]
    return max(steps, default=0)


def look(pid: int, run: Path, since: float) -> Sample:
    """Measure a process, its workers and its folder."""
    rss, threads, descriptors, processes = 0.0, 0, 0, 0
    for process in descendants(pid):
        try:
            status = dict(
                line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines()
            )
            descriptors += len(os.listdir(f"/proc/{process}/fd"))
        except FileNotFoundError:  # a worker that has just ended
            continue
        rss += float(status.get("VmRSS", "0 kB").split()[0]) / 1024
        threads += int(status["Threads"])
        processes += 1
    checkpoints = megabytes(run / "checkpoints")
    return Sample(
        time.monotonic() - since,
        newest_step(run),
        rss,
        threads,
        descriptors,
        processes,
        checkpoints,
        megabytes(run) - checkpoints,
    )


def judge(samples: list[Sample]) -> dict[str, tuple[float, float, bool]]:
    """Return for each quantity the least of the first and of the last fifth, and whether it is flat.

    The first tenth is left out: until the best checkpoint is older than those that are kept, there is one less.
    """
    samples = samples[len(samples) // 10 :]
    fifth = max(1, len(samples) // 5)
    verdict = {}
    for name, growth in GROWTH.items():
        first = min(getattr(sample, name) for sample in samples[:fifth])
        last = min(getattr(sample, name) for sample in samples[-fifth:])
        verdict[name] = (first, last, last <= first * growth)
    return verdict


def soak(config: str, run: Path, minutes: float, interval: float, overrides: list[str]) -> list[Sample]:
    """Train for ``minutes`` after the replay is full; return what was seen every ``interval`` seconds."""
    command = [
        sys.executable,
        "-m",
        "rl_training",
        "train",
        "--config",
        config,
        "--run-dir",
        str(run),
        "--quiet",
    ]
    with open(run.with_suffix(".out"), "wb") as out:
        child = subprocess.Popen([*command, *SETTINGS, *overrides], stdout=out, stderr=subprocess.STDOUT)
        try:
            while child.poll() is None and newest_step(run) < 25_000:
                time.sleep(1.0)
            start, samples = time.monotonic(), list[Sample]()
            while child.poll() is None and time.monotonic() - start < minutes * 60:
                samples.append(look(child.pid, run, start))
                time.sleep(interval)
        finally:
            child.send_signal(signal.SIGTERM)
            code = child.wait()
    if code != 143:
        raise SystemExit(f"the run ended with {code}: {run.with_suffix('.out').read_text()[-2000:]}")
    return samples


def main() -> None:
    """Soak, evaluate what was saved, print the verdict."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between two samples")
    parser.add_argument("--config", default="prioritized_dqn/cartpole")
    parser.add_argument("--out", type=Path, default=Path("soak.json"))
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        samples = soak(given.config, run, given.minutes, given.interval, given.overrides)
        words = [sys.executable, "-m", "rl_training", "eval", str(run), "--episodes", "2", "--json"]
        evaluation = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    verdict = judge(samples)
    given.out.write_text(
        json.dumps(
            {"verdict": verdict, "evaluation": evaluation, "samples": [asdict(s) for s in samples]}, indent=1
        )
    )
    steps, minutes = samples[-1].steps - samples[0].steps, (samples[-1].seconds - samples[0].seconds) / 60
    saves, evaluations = steps // 1_000, steps // 2_000
    print(f"{minutes:.0f} minutes, {steps:,} steps, {saves:,} saves, {evaluations:,} evaluations")
    for name, (first, last, flat) in verdict.items():
        print(f"  {name:<16} {first:10.1f} → {last:10.1f}  {'flat' if flat else 'GROWS'}")
    print(
        f"  {'logs_mib':<16} {samples[0].logs_mib:10.1f} → {samples[-1].logs_mib:10.1f}  one row every 5,000 steps"
    )
    if not all(flat for *_, flat in verdict.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
