"""What every algorithm learns without any setting: its classic task, as its docstring says, on three seeds.

Results are added to ``benchmarks/defaults.json`` as they come, so a stopped benchmark goes on with the same command.
The table in docs/benchmarks.md is made from them by `make generated`.

Run: python benchmarks/defaults.py [ALGO ...] [--seeds 3] [--first-seed 400]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from rl_training.algorithms.catalogue import PACKAGED, packaged
from rl_training.algorithms.spec import AlgorithmSpec
from rl_training.api import managed_class

RESULTS = Path(__file__).parent / "defaults.json"
EPISODES = 100


def load() -> dict[str, Any]:
    """Return what was measured so far, by algorithm."""
    measured: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return measured


def measure(spec: AlgorithmSpec, seed: int) -> tuple[float, float]:
    """Return the mean return of a trained agent, and the seconds that its training took."""
    assert spec.classic is not None
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        agent = managed_class(spec)(spec.classic.env, seed=seed, run_dir=Path(folder) / "run")
        agent.learn(spec.classic.steps, progress_bar=False)
        assert agent.result is not None
        assert agent.result.evaluation is not None
        assert len(agent.result.evaluation.returns) == EPISODES
        return agent.result.evaluation.mean, time.perf_counter() - start


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("algorithms", nargs="*", metavar="ALGO", help="default: all that have a classic task")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=400)
    given = parser.parse_args()
    for name in given.algorithms or PACKAGED:
        spec = packaged(name)
        if spec.classic is None:
            print(f"{name}: no classic task")
            continue
        defaults = spec.config().model_dump(mode="json")
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            entry = load().get(name, {})
            if entry.get("defaults") != defaults or entry.get("steps") != spec.classic.steps:
                entry = {
                    "defaults": defaults,
                    "env": spec.classic.env,
                    "steps": spec.classic.steps,
                    "scores": {},
                }
            if str(seed) in entry["scores"]:
                continue
            mean, seconds = measure(spec, seed)
            entry["scores"][str(seed)] = round(mean, 2)
            entry["seconds"] = round(seconds, 1)
            RESULTS.write_text(
                json.dumps({**load(), name: entry}, indent=1, sort_keys=True) + "\n", encoding="utf-8"
            )
            print(
                f"{name} on {spec.classic.env}, {spec.classic.steps:,} steps, seed {seed}: {mean:.1f} ({seconds:.0f} s)"
            )


if __name__ == "__main__":
    main()
