"""The parts of the benchmark, each of which ends in a table."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import job_kinds
import jobs
from context import TITLES, Context, library
from memory import dqn_images, memory
from report import Section
from speeds import phased, speed
from turns import Entrant, Times, take_turns
from worker import WorkerDied

from rl_training.experiment.comparison import compare, judge
from rl_training.statistics import iqm


def scaling(context: Context) -> Section:
    """More environments at the same number of updates per env step, ours only."""
    each = {n: replace(jobs.A, num_envs=n) for n in jobs.SCALING_ENVS}
    title = "Environments, ours: the network of A, an update every 10 steps of all environments together"
    return _scaling(context, "scaling", title, each, jobs.SCALING_TURN, jobs.SCALING_WARM_UP)


def ppo_scaling(context: Context) -> Section:
    """More environments at the same size of a rollout, so at fewer steps of each, ours only."""
    job = jobs.PPO_NATIVE_LARGE
    each = {n: replace(job, num_envs=n, n_steps=job.rollout // n) for n in jobs.SCALING_ENVS}
    title = f"Environments, ours, native: PPO as ppo-native-large, rollouts of {job.rollout:,} steps of all of them"
    return _scaling(context, "ppo-scaling", title, each, jobs.PPO_SCALING_TURN, jobs.PPO_SCALING_WARM_UP)


def _scaling(
    context: Context, name: str, title: str, each: Mapping[int, job_kinds.AnyJob], turn: int, warm_up: int
) -> Section:
    entrants = [Entrant(f"{n}", "ours", job) for n, job in each.items()]
    times = take_turns(context, name, entrants, turn=turn, warm_up=warm_up)
    table = Section(
        title, ("environments", "steps/s", "updates/s", "updates a step", "faster than the first")
    )
    first: Times | None = next(iter(times.values()), None)
    for name, spent in times.items():
        assert first is not None
        table.rows.append(
            [
                name,
                f"{spent.speed:,.0f}",
                f"{spent.speed * spent.updates_per_step:,.0f}",
                f"{spent.updates_per_step:.4f}",
                f"{spent.speed / first.speed:.2f}",
            ]
        )
    table.data = {name: asdict(spent) for name, spent in times.items()}
    return table


def time_to_bar(name: str) -> Callable[[Context], Section]:
    """Return the section of the seconds from a process's start to an evaluation at the bar, one process at a time."""
    race = jobs.RACES[name]

    def section(context: Context) -> Section:
        every, episodes, bar = jobs.BAR_EVERY, jobs.BAR_EPISODES, jobs.BAR
        total = 2 * every if context.quick else jobs.BAR_STEPS
        request = {
            "mode": "time-to-bar",
            "config": race.config,
            "job": asdict(race.job),
            "every": every,
            "episodes": episodes,
            "bar": bar,
            "total": total,
        }
        results: dict[str, list[dict[str, Any]]] = {side: [] for side in context.among(["ours", "sb3"])}
        for seed in range(context.seeds):
            for side, runs in results.items():
                begin = time.perf_counter()
                try:
                    with context.start(side, f"{name}-{side}-{seed}") as worker:
                        answer = worker.ask(**request, seed=seed)
                        runs.append({**answer, "seconds": time.perf_counter() - begin, "seed": seed})
                except WorkerDied as error:
                    context.report.fail(f"{name}, {side}, seed {seed}", str(error))
        table = Section(
            f"{race.title}: time to a mean of {bar:g} over {episodes} greedy episodes on CartPole-v1, imports included",
            ("side", "got there", "median seconds", *(f"seed {seed}" for seed in range(context.seeds))),
        )
        for side, runs in results.items():
            cells = {run["seed"]: _bar_cell(run) for run in runs}
            reached = [run["seconds"] for run in runs if run["reached"]]
            # Those that did not get there would have taken longer than any that did.
            times = sorted([*reached, *[math.inf] * (context.seeds - len(reached))])
            middle = statistics.median_high(times)
            table.rows.append(
                [
                    TITLES[side],
                    f"{len(reached)} of {context.seeds}",
                    f"{middle:.1f}" if math.isfinite(middle) else "",
                    *(cells.get(seed, "died") for seed in range(context.seeds)),
                ]
            )
        table.notes.append(
            f"Evaluated every {every:,} steps. Ours is `{race.config}` as packaged; Stable-Baselines3 has the "
            f"RL-Zoo's settings, and goes on to {total:,} steps."
        )
        table.data = results
        return table

    return section


def _bar_cell(run: dict[str, Any]) -> str:
    if run["reached"]:
        return f"{run['seconds']:.1f} s, {run['steps']:,} steps"
    return f"not in {run['steps']:,} steps and {run['seconds']:.0f} s; best {run['best']:.0f}"


def curves(name: str) -> Callable[[Context], Section]:
    """Return the section of the learning curves of one job, several processes at a time."""
    task = {**jobs.CURVES, **jobs.LONG_CURVES}[name]

    def section(context: Context) -> Section:
        sides, scale = context.among(task.sides), 10 if context.quick else 1
        every, steps = task.every // scale, task.steps // scale
        folders = {side: context.out / "curves" / name / side for side in sides}

        def run(entry: tuple[str, int]) -> dict[str, Any] | None:
            side, seed = entry
            folder = folders[side] / f"seed-{seed}"
            request = {
                "mode": "curve",
                "job": asdict(task.job),
                "total": steps,
                "seed": seed,
                "folder": str(folder),
                "every": every,
            }
            try:
                with context.start(side, f"curve-{name}-{side}-{seed}") as worker:
                    worker.ask(**request)
            except WorkerDied as error:
                context.report.fail(f"curves-{name}, {side}, seed {seed}", str(error))
                return None
            return _read_run(folder)

        # Seed by seed, so that whatever else the machine does hits all sides.
        runs = [(side, seed) for seed in range(context.seeds) for side in sides]
        with ThreadPoolExecutor(max_workers=context.jobs) as pool:
            results = dict(zip(runs, pool.map(run, runs), strict=True))
        final = f"mean of {jobs.FINAL_EPISODES} final episodes"
        columns = ("side", final, "their IQM", "mean of the curve", "seconds")
        table = Section(f"Learning curves of {name}: {task.title}, {steps:,} steps", columns)
        found = {
            side: [r for seed in range(context.seeds) if (r := results[side, seed]) is not None]
            for side in sides
        }
        for side, each in found.items():
            finals = [r["final"] for r in each]
            table.rows.append(
                [
                    library(name, side),
                    ", ".join(f"{score:.1f}" for score in finals),
                    f"{iqm(finals):.1f}" if finals else "",
                    ", ".join(f"{r['mean']:.1f}" for r in each),
                    ", ".join(f"{r['seconds']:.0f}" for r in each),
                ]
            )
        table.notes.append(
            f"Evaluated every {every:,} steps; {context.jobs} at a time, evaluations included."
        )
        ran = {library(name, side): folders[side] for side in sides if found[side]}
        if len(ran) > 1:
            compare(ran).plot(context.out / "curves" / f"{name}.png")
        for measure, key in (("Final scores", "final"), ("Means of the curves", "mean")):
            scores = {library(name, side): [r[key] for r in each] for side, each in found.items() if each}
            table.notes += [f"{measure}: {line}" for line in _against_us(scores)]
        table.data = [
            {"side": side, "seed": seed, **result}
            for (side, seed), result in results.items()
            if result is not None
        ]
        return table

    return section


def _against_us(scores: dict[str, list[float]]) -> list[str]:
    """Say for each peer how often a seed of ours is above one of its, and whether that can be told from chance."""
    ours = scores.pop(TITLES["ours"], None)
    if ours is None:
        return []
    pairs = judge([((TITLES["ours"], ours), theirs) for theirs in scores.items()])
    return [
        f"ours above {p.second} in {p.probability:.2f} of all pairs of seeds "
        f"({p.interval[0]:.2f} to {p.interval[1]:.2f}); {p.verdict}."
        for p in pairs
    ]


def _read_run(folder: Path) -> dict[str, Any]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    means: dict[int, float] = {}
    for row in rows:
        if "eval/mean_reward" in row and row["step"]:  # the peers are not evaluated before they learn
            means.setdefault(row["step"], row["eval/mean_reward"])
    result = json.loads((folder / "result.json").read_text())
    return {
        "steps": list(means),
        "means": list(means.values()),
        "mean": statistics.fmean(means.values()),
        "final": result["evaluation"]["mean"],
        "seconds": result["seconds"],
    }


SECTIONS: dict[str, Callable[[Context], Section]] = {
    **{name: speed(name) for name in jobs.CONTESTS},
    **{name: phased(name) for name in jobs.PHASED},
    "scaling": scaling,
    "ppo-scaling": ppo_scaling,
    **{name: time_to_bar(name) for name in jobs.RACES},
    "memory": memory,
    "dqn-images": dqn_images,
    **{f"curves-{name}": curves(name) for name in (*jobs.CURVES, *jobs.LONG_CURVES)},
}
