"""Replay buffers: prioritized against Tianshou, uniform against Stable-Baselines3, cost by capacity, and memory.

Every buffer is full, of transitions as CartPole has them (four float32 twice, an action, a reward, a discount or
done flag); batches are of 256. In a comparison the two take turns in one process, so that whatever else the machine
does hits both alike. Times are processor time, the medians of the turns; a ratio is that of two medians, and the
spread that of the turns. Ours give torch tensors, as Stable-Baselines3 does; Tianshou gives numpy arrays.

Run: python benchmarks/replay_speed.py [--turns N] [--capacity N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch

from rl_training.data import PrioritizedReplayBuffer, ReplayBuffer, SumTree

BATCH = 256
CALLS = 20
"""Calls in one turn."""
CAPACITIES = (10_000, 100_000, 1_000_000, 10_000_000)

Action = Callable[[], object]


@dataclass(frozen=True)
class Comparison:
    name: str
    peer: str
    ours_us: float
    theirs_us: float
    ratio: float
    low: float
    high: float
    bar: float


def rows(count: int, seed: int) -> tuple[Any, ...]:
    """Return ``count`` transitions like those of CartPole."""
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.random((2, count, 4), np.float32)
    return obs, rng.integers(0, 2, count), np.ones(count), np.full(count, 0.99), next_obs


def fill(buffer: ReplayBuffer) -> ReplayBuffer:
    """Write into a buffer until it is full."""
    chunk = min(buffer.capacity, 100_000)
    for start in range(0, buffer.capacity, chunk):
        buffer.add(*rows(min(chunk, buffer.capacity - start), start))
    return buffer


def prioritized(capacity: int) -> PrioritizedReplayBuffer:
    """Return a full prioritized buffer, of which each transition has a priority of its own."""
    rng = np.random.default_rng(1)
    buffer = PrioritizedReplayBuffer(capacity, (4,), alpha=0.6, rng=rng)
    fill(buffer)
    buffer.update_priorities(np.arange(capacity), rng.random(capacity))
    return buffer


def priorities() -> Callable[[], Any]:
    """Return a source of new priorities that costs next to nothing."""
    table = np.random.default_rng(2).random((64, BATCH))
    turn = iter(range(10**12))
    return lambda: table[next(turn) % 64]


def our_sample_and_update(capacity: int) -> Action:
    buffer, errors = prioritized(capacity), priorities()

    def act() -> None:
        batch = buffer.sample(BATCH, 0.5)
        assert batch.indices is not None
        buffer.update_priorities(batch.indices, errors())

    return act


def their_sample_and_update(capacity: int) -> Action:
    from tianshou.data import Batch, PrioritizedReplayBuffer

    np.random.seed(1)
    buffer, errors = PrioritizedReplayBuffer(capacity, alpha=0.6, beta=0.5), priorities()
    obs, action, reward, _, next_obs = rows(capacity, 0)
    flags = np.zeros(capacity, bool)
    columns = {"obs": obs, "act": action, "rew": reward, "obs_next": next_obs, "info": Batch()}
    whole = Batch(**columns, terminated=flags, truncated=flags.copy(), done=flags.copy())
    buffer.set_batch(whole)  # a million calls of add would take minutes
    buffer._size = capacity
    buffer.init_weight(np.arange(capacity))
    buffer.update_weight(np.arange(capacity), np.random.rand(capacity))

    def act() -> None:
        _, indices = buffer.sample(BATCH)
        buffer.update_weight(indices, errors())

    return act


def our_tree(capacity: int) -> Action:
    rng, values = np.random.default_rng(1), priorities()
    tree = SumTree(capacity)
    tree.update(np.arange(capacity), rng.random(capacity))
    parts = np.arange(BATCH)

    def act() -> None:
        tree.update(tree.find((parts + rng.random(BATCH)) * (tree.total / BATCH * (1 - 1e-12))), values())

    return act


def their_tree(capacity: int) -> Action:
    from tianshou.data import SegmentTree

    rng, values = np.random.default_rng(1), priorities()
    tree = SegmentTree(capacity)
    tree[np.arange(capacity)] = rng.random(capacity)

    def act() -> None:
        tree[tree.get_prefix_sum_idx(rng.random(BATCH) * tree.reduce())] = values()

    return act


def our_uniform_sample(capacity: int) -> Action:
    buffer = fill(ReplayBuffer(capacity, (4,), rng=np.random.default_rng(1)))
    return lambda: buffer.sample(BATCH)


def their_uniform_sample(capacity: int) -> Action:
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer

    buffer = ReplayBuffer(capacity, Box(-np.inf, np.inf, (4,), np.float32), Discrete(2), device="cpu")
    obs, action, reward, _, next_obs = rows(capacity, 0)
    buffer.observations[:, 0], buffer.next_observations[:, 0] = obs, next_obs
    buffer.actions[:, 0, 0], buffer.rewards[:, 0] = action, reward
    buffer.full = True
    return lambda: buffer.sample(BATCH)


def seconds(act: Action) -> float:
    start = process_time()
    for _ in range(CALLS):
        act()
    return process_time() - start


def compare(name: str, peer: str, ours: Action, theirs: Action, turns: int, bar: float) -> Comparison:
    """Let both take turns, after one that does not count."""
    seconds(ours), seconds(theirs)
    mine, other = np.array([(seconds(ours), seconds(theirs)) for _ in range(turns)]).T
    low, high = np.percentile(mine / other, [10, 90])
    own, peers = float(np.median(mine)) / CALLS * 1e6, float(np.median(other)) / CALLS * 1e6
    result = Comparison(name, peer, own, peers, own / peers, low, high, bar)
    print(f"{name}\n  rl_training {result.ours_us:8.1f} us\n  {peer:11} {result.theirs_us:8.1f} us")
    print(f"  ratio {result.ratio:.2f} (80 % of the turns {low:.2f} to {high:.2f}; bar {bar})", flush=True)
    return result


def by_capacity(turns: int) -> dict[int, float]:
    """Return microseconds for a prioritized sample and update, by capacity; all capacities take turns."""
    acts = {capacity: our_sample_and_update(capacity) for capacity in CAPACITIES}
    times: dict[int, list[float]] = {capacity: [] for capacity in CAPACITIES}
    for turn in range(turns + 1):
        for capacity, act in acts.items():
            taken = seconds(act) / CALLS * 1e6
            if turn:
                times[capacity].append(taken)
    costs = {capacity: float(np.median(values)) for capacity, values in times.items()}
    print("Prioritized sample and update by capacity")
    for capacity, cost in costs.items():
        print(
            f"  {capacity:10,} {cost:8.1f} us, {cost / costs[CAPACITIES[0]]:.2f} times the first", flush=True
        )
    return costs


def memory(capacity: int) -> dict[str, float]:
    """Return the measured bytes per transition over the bytes of its fields."""
    fields = sum(column[0].nbytes for column in rows(1, 0)[:2]) + 16 + 4 + 4
    shares = {}
    print("Memory per transition (obs, next_obs, action, reward and discount; a priority of 8 bytes)")
    for name, kind, extra in (("uniform", ReplayBuffer, 0), ("prioritized", PrioritizedReplayBuffer, 8)):
        kind(10, (4,))  # what is made only once does not count
        tracemalloc.start()
        buffer = fill(kind(capacity, (4,)))
        measured = tracemalloc.get_traced_memory()[0] / len(buffer)
        tracemalloc.stop()
        shares[name] = measured / (fields + extra)
        print(f"  {name:11} {measured:6.2f} bytes, {shares[name]:.3f} of its fields (bar 1.05)", flush=True)
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    torch.set_num_threads(1)
    import stable_baselines3 as sb3
    import tianshou

    versions = f"stable-baselines3 {sb3.__version__}, tianshou {tianshou.__version__}"
    print(f"torch {torch.__version__}, {versions}, {platform.machine()}, one thread; batches of {BATCH}")
    size = args.capacity
    jobs = (
        ("Prioritized: sample and update", "tianshou", our_sample_and_update, their_sample_and_update),
        ("Tree alone: find and update", "tianshou", our_tree, their_tree),
        ("Uniform: sample", "sb3", our_uniform_sample, their_uniform_sample),
    )
    comparisons = [
        compare(f"{name}, {size:,} slots", peer, ours(size), theirs(size), args.turns, 0.5)
        for name, peer, ours, theirs in jobs
    ]
    costs, shares = by_capacity(args.turns), memory(100_000)
    if args.json:
        numbers = {"comparisons": [asdict(one) for one in comparisons], "us_by_capacity": costs}
        args.json.write_text(json.dumps({**numbers, "memory": shares}, indent=2) + "\n")


if __name__ == "__main__":
    main()
