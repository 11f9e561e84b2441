"""Most memory of a whole process, of a run that fills its replay, to its very end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import jobs
from context import Context
from report import Section, mib
from worker import WorkerDied


@dataclass(frozen=True)
class Case:
    """A process to be measured: what it stores, whose it is, and its request."""

    replay: str
    side: str
    title: str
    request: dict[str, Any]


def memory(context: Context) -> Section:
    """Compare a replay of vectors, a tenth of it filled, and one of colour images."""
    steps = 5_000 if context.quick else jobs.REPLAY_STEPS
    vectors = replace(jobs.REPLAY, learning_starts=steps - 1_000)
    images = jobs.Images(observations=1_000) if context.quick else jobs.Images()
    fill = {"mode": "memory", "job": asdict(vectors), "total": steps}
    first = f"CartPole-v1, {steps:,} of {vectors.buffer_size:,} transitions"
    cases = [
        Case(first, "ours", "rl_training, DQN", fill),
        Case(first, "sb3", "Stable-Baselines3, DQN", fill),
        *_of_images("images [9, 84, 84]", images, "DrQ-v2", "TD3"),
    ]
    return _measure(context, "Memory", "memory", cases)


def dqn_images(context: Context) -> Section:
    """Compare replays of DQN that hold stacks of four grey frames."""
    observations = context.observations or (1_000 if context.quick else jobs.DQN_IMAGES.observations)
    images = replace(jobs.DQN_IMAGES, observations=observations)
    cases = _of_images("images [4, 84, 84]", images, "DQN", "DQN")
    return _measure(context, "Memory of DQN on images", "dqn-images", cases)


def _of_images(what: str, images: jobs.Images, ours: str, theirs: str) -> list[Case]:
    show = {"mode": "images", **asdict(images)}
    replay = f"{what}, {images.observations:,} of as many"
    peer = f"Stable-Baselines3, {theirs}"
    return [
        Case(replay, "ours", f"rl_training, {ours}", show),
        Case(replay, "sb3", peer, {**show, "shared": False}),
        Case(replay, "sb3", f"{peer}, optimize_memory_usage", {**show, "shared": True}),
    ]


def _measure(context: Context, title: str, part: str, cases: Sequence[Case]) -> Section:
    """Run one process after the other."""
    table = Section(title, ("replay", "side", "peak MiB", "of which imports", "the rest", "updates"))
    table.data = []
    for case in cases:
        if case.side not in context.sides:
            continue
        try:
            with context.start(case.side, f"{part}-{case.request['mode']}-{case.side}") as worker:
                answer = worker.ask(**case.request)
        except WorkerDied as error:
            context.report.fail(f"{part}, {case.title}", str(error))
            continue
        peak, imported = answer["peak_rss"], answer["imported"]
        sizes = [mib(peak), mib(imported), mib(peak - imported)]
        table.rows.append([case.replay, case.title, *sizes, str(answer["updates"])])
        table.data.append({"replay": case.replay, "side": case.title, **answer})
    return table
