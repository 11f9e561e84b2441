"""DrQ-v2's update at the paper's settings against the same mathematics written plainly.

The plain side is ``plain_drqv2.py``: images in their ordinary layout, shifts by ``grid_sample``, autograd, one
``torch.optim.Adam`` for each of encoder, critic and actor. Both sides start from the same weights, draw the same shifts
and noise, and learn from the same batches; before anything is timed, their losses and weights are compared. They take
turns with two threads each, so that whatever else the machine does hits all alike. Times are wall-clock time, the
medians of the turns. Each side has a process of its own, because how freed memory is treated holds for a whole one:
a run of this package that learns from images keeps it, which an ordinary script does not. The third side does.

Run: python benchmarks/drqv2_speed.py [--turns N] [--threads N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from plain_drqv2 import PlainDrQv2, as_plain

from rl_training.algorithms.declared.drqv2 import DrQv2Config
from rl_training.algorithms.drqv2 import DrQv2
from rl_training.data import Batch
from rl_training.models.cnn import DrQv2Network
from rl_training.runtime.allocation import keep_freed_memory

STACK, ACTIONS = 3, 6
SIDES = {"ours": "ours", "plain": "plain", "kept": "plain, with freed memory kept as we do"}
JOBS = {"84 px, batch 256 (the paper's)": (84, 256, 1024), "48 px, batch 128": (48, 128, 256)}


def random_batch(size: int, count: int, seed: int) -> Batch:
    g = torch.Generator().manual_seed(seed)
    shape = (2, count, STACK, 3, size, size)
    images = torch.randint(0, 256, shape, generator=g, dtype=torch.uint8)
    action = torch.rand((count, ACTIONS), generator=g) * 2 - 1
    reward = torch.rand(count, generator=g)
    return Batch(images[0], action, reward, torch.full((count,), 0.97), images[1])


def both_sides(size: int, hidden: int, seed: int = 0) -> tuple[DrQv2, PlainDrQv2]:
    torch.manual_seed(seed)
    network = DrQv2Network((STACK, 3, size, size), ACTIONS, (hidden, hidden))
    config = DrQv2Config(learning_starts=0)
    plain = PlainDrQv2(as_plain(network), config, np.random.default_rng(seed), std=0.5)
    rng = np.random.default_rng(seed)
    ours = DrQv2(network, config, action_shape=(ACTIONS,), total_timesteps=1, rng=rng)
    ours.std = 0.5
    return ours, plain


def differences(ours: DrQv2, plain: PlainDrQv2, batches: list[Batch]) -> tuple[float, float]:
    """Update both sides; return how far their losses and their weights are apart at most, relative to their size."""
    losses = 0.0
    for batch in batches:
        critic, actor = plain.update(batch)
        metrics = ours.update(batch).metrics
        for mine, theirs in ((metrics["critic_loss"], critic), (metrics["actor_loss"], actor)):
            losses = max(losses, abs(float(mine) - theirs) / max(abs(theirs), 1e-3))
    pairs = zip(ours.network.parameters(), plain.network.parameters(), strict=True)
    weights = max(float(((a - b).norm() / b.norm().clamp_min(1e-3)).detach()) for a, b in pairs)
    return losses, weights


def serve(pipe: Any, side: str, name: str, threads: int) -> None:
    """Make an update whenever asked to, and say how long it took."""
    torch.set_num_threads(threads)
    if side != "plain":
        keep_freed_memory()
    size, count, hidden = JOBS[name]
    ours, plain = both_sides(size, hidden)
    update = ours.update if side == "ours" else plain.update
    batches = [random_batch(size, count, seed) for seed in range(2)]
    while (turn := pipe.recv()) is not None:
        start = perf_counter()
        update(batches[turn % 2])
        pipe.send(perf_counter() - start)


def measure(name: str, turns: int, threads: int) -> dict[str, Any]:
    size, count, hidden = JOBS[name]
    losses, weights = differences(*both_sides(size, hidden), [random_batch(size, count, s) for s in range(2)])
    if losses > 1e-3 or weights > 5e-3:
        raise SystemExit(f"{name}: the two sides differ: losses by {losses:.1e}, weights by {weights:.1e}")
    context = multiprocessing.get_context("spawn")
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    pipes, workers = {}, []
    for side in SIDES:
        pipes[side], theirs = context.Pipe()
        workers.append(context.Process(target=serve, args=(theirs, side, name, threads), daemon=True))
        workers[-1].start()
    for turn in range(-2, turns):
        for side, pipe in pipes.items():
            pipe.send(turn)
            seconds = pipe.recv()
            if turn >= 0:
                times[side].append(seconds)
    for pipe in pipes.values():
        pipe.send(None)
    for worker in workers:
        worker.join()
    result: dict[str, Any] = {"job": name, "losses_differ_by": losses, "weights_differ_by": weights}
    for side, seconds in times.items():
        ratios = sorted(b / a for a, b in zip(times["ours"], seconds, strict=True))
        quarter = len(ratios) // 4
        result[side] = {
            "ms": 1e3 * statistics.median(seconds),
            "ratio": statistics.median(ratios),
            "low": ratios[quarter],
            "high": ratios[-quarter - 1],
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results = [measure(name, args.turns, args.threads) for name in JOBS]
    for r in results:
        print(
            f"{r['job']}: losses differ by {r['losses_differ_by']:.0e}, weights by {r['weights_differ_by']:.0e}"
        )
        for side, label in SIDES.items():
            speed = r[side]
            spread = f"{speed['low']:.2f} to {speed['high']:.2f}"
            print(f"  {label:38} {speed['ms']:7.0f} ms an update   x {speed['ratio']:.2f}   ({spread})")
    print(f"{args.threads} threads, torch {torch.__version__}, {platform.machine()}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
