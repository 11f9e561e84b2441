"""One config over several seeds, with one honest summary."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.algorithms.spec import NetworkFactory
from rl_training.config import ExperimentConfig
from rl_training.config.loading import dump_yaml
from rl_training.envs import EnvFactory
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment import registry
from rl_training.runtime.console import notice
from rl_training.runtime.curves import plot_seeds
from rl_training.runtime.folder import new_run_path, write_whole
from rl_training.statistics import bootstrap_interval, iqm


@dataclass(frozen=True)
class Summary:
    """Final evaluation means of all seeds, their IQM and its 95 % bootstrap interval."""

    folder: Path
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    iqm: float
    interval: tuple[float, float]


class ExperimentManager:
    """Runs seeds ``config.seed, config.seed + 1, ...`` into one folder and gathers the results.

    A seed that is already finished there is not run again, and one that was cut short is resumed, so calling
    ``run`` once more after an interruption completes the experiment. ``jobs`` above 1 runs that many seeds at
    a time, each in a process of its own.
    """

    def __init__(
        self,
        config: ExperimentConfig[Any],
        *,
        seeds: int = 5,
        folder: str | Path | None = None,
        jobs: int = 1,
        env: EnvFactory | None = None,
        network: NetworkFactory | None = None,
    ) -> None:
        if not config.evaluation.final_episodes:
            raise ConfigError("evaluation.final_episodes: 0 leaves nothing to compare seeds by")
        if jobs > 1 and (env is not None or network is not None):
            raise ConfigError(
                "jobs: an own env or network given as an object runs in this process only, so jobs is 1"
            )
        self.config = config
        self.seeds = tuple(range(config.seed, config.seed + seeds))
        default = new_run_path(config)
        self.folder = (
            Path(folder) if folder is not None else default.with_name(f"{default.name}-{seeds}seeds")
        )
        self._jobs = jobs
        self._options: dict[str, Any] = {"env": env, "network": network}

    def run(self, *, console: bool = True) -> Summary:
        """Run what is missing and return the summary, which is also written to ``summary.json``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "config.yaml", dump_yaml(self.config))
        train = self._train_apart if self._jobs > 1 else self._train_here
        with ThreadPoolExecutor(self._jobs) if self._jobs > 1 else _Sequentially() as pool:
            for seed in pool.map(lambda seed: train(seed, console), self.seeds):
                if console:
                    notice(f"seed {seed}: {self._score(seed):.2f}")
        return self._summarise()

    def _train_here(self, seed: int, console: bool) -> int:
        path = self._path(seed)
        if not self._finished(seed):
            if (path / "config.yaml").exists():
                registry.resume(path, console=console, **self._options)
            else:
                config = self.config.model_copy(update={"seed": seed})
                registry.train(config, run_dir=path, console=console, **self._options)
        return seed

    def _train_apart(self, seed: int, console: bool) -> int:
        path = self._path(seed)
        if self._finished(seed):
            return seed
        if (path / "config.yaml").exists():
            command = ["resume", str(path)]
        else:
            command = [
                "train",
                "--config",
                str(self.folder / "config.yaml"),
                "--run-dir",
                str(path),
                "--seed",
                str(seed),
            ]
        done = subprocess.run(
            [sys.executable, "-m", "rl_training", *command, "--quiet"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise SeedFailed(f"seed {seed}: {reason[0].removeprefix('error: ')}", done.returncode)
        return seed

    def _summarise(self) -> Summary:
        scores = tuple(self._score(seed) for seed in self.seeds)
        summary = Summary(self.folder, self.seeds, scores, iqm(scores), bootstrap_interval(scores))
        plot_seeds(
            [self._path(seed) / "metrics.jsonl" for seed in self.seeds],
            self.folder / "curve.png",
            f"{registry.get(self.config.algo).title} on {self.config.env.id}, {len(self.seeds)} seeds",
        )
        plain = {
            "algo": self.config.algo,
            "env": self.config.env.id,
            "total_timesteps": self.config.total_timesteps,
            "episodes": self.config.evaluation.final_episodes,
            "scores": {str(seed): score for seed, score in zip(self.seeds, scores, strict=True)},
            "iqm": summary.iqm,
            "interval": list(summary.interval),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S"),
        }
        write_whole(self.folder / "summary.json", json.dumps(plain, indent=2) + "\n")
        return summary

    def _path(self, seed: int) -> Path:
        return self.folder / f"seed-{seed}"

    def _result(self, seed: int) -> dict[str, Any] | None:
        try:
            result = json.loads((self._path(seed) / "result.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return result if isinstance(result, dict) else None

    def _finished(self, seed: int) -> bool:
        result = self._result(seed)
        if result is None or result.get("evaluation") is None:
            return False
        return bool(result["stop_reason"]) or result["steps"] >= self.config.total_timesteps

    def _score(self, seed: int) -> float:
        result = self._result(seed)
        assert result is not None
        return float(result["evaluation"]["mean"])


class SeedFailed(RLTrainingError):
    """One seed's process ended with an error, whose exit code is passed on."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code if exit_code > 0 else 1


class _Sequentially:
    """Stands in for a pool where everything runs in this thread (signals need the main one)."""

    map = staticmethod(map)

    def __enter__(self) -> _Sequentially:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to wind up."""
