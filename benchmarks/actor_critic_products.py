"""How far updates of the actor-critics are from the products of matrices that they cannot do without, on one thread.

The products of one update, each as a call of its own, by the compiled code and by torch; beside them, whole updates
from batches that lie ready. What lies between is activations, normalisation, losses, Adam, slow copies, and Python.

Run: python benchmarks/actor_critic_products.py [--repeats 200]
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
import torch

from rl_training import load_config, native
from rl_training.algorithms.catalogue import find
from rl_training.algorithms.compiled_mlp import CompiledMLP
from rl_training.algorithms.spec import BuildContext
from rl_training.data.transitions import Batch
from rl_training.observations import ObsSpec
from rl_training.runtime.streams import Streams
from rl_training.spaces import ContinuousActions, DiscreteActions

Product = tuple[int, int, int]
"""Rows, what is added up, columns."""
OBS, ACTIONS = 3, 1
SETTINGS: dict[str, tuple[int, tuple[int, ...], int]] = {
    "sac": (256, (256, 256), 1),
    "td3": (256, (256, 256), 2),
    "ddpg": (256, (256, 256), 1),
    "crossq": (256, (256, 256), 3),
    "discrete_sac": (64, (64, 64), 1),
}
"""Batch, hidden layers, updates of the critics for each of the actor."""


def forward(sizes: tuple[int, ...], rows: int) -> list[Product]:
    return [(rows, inputs, outputs) for inputs, outputs in pairwise(sizes)]


def down(sizes: tuple[int, ...], rows: int) -> list[Product]:
    """Return the products of a way back to the sums of the first layer."""
    return [(rows, outputs, inputs) for inputs, outputs in list(pairwise(sizes))[1:]]


def weights(sizes: tuple[int, ...], rows: int) -> list[Product]:
    return [(outputs, rows, inputs) for inputs, outputs in pairwise(sizes)]


def products(algo: str) -> Counter[Product]:
    """Count the products of ``policy_delay`` updates, one of which is of the actor, too."""
    batch, hidden, delay = SETTINGS[algo]
    discrete = algo == "discrete_sac"
    actor = (
        4 if discrete else OBS,
        *hidden,
        2 if discrete else ACTIONS * (1 if algo in ("td3", "ddpg") else 2),
    )
    critic = (4, *hidden, 2) if discrete else (OBS + ACTIONS, *hidden, 1)
    count = 1 if algo == "ddpg" else 2
    of_critics: list[Product] = forward(actor, batch)
    if algo == "crossq":
        both = 2 * batch
        of_critics += count * [*forward(critic, both), *down(critic, both), *weights(critic, both)]
        of_critics += count * [
            (both, hidden[0], critic[0])
        ]  # the inputs are normalised, too, and that is learned
    else:
        of_critics += 2 * count * forward(critic, batch) + count * [
            *down(critic, batch),
            *weights(critic, batch),
        ]
    of_actor = [*forward(actor, batch), *down(actor, batch), *weights(actor, batch)]
    if discrete:
        of_actor += count * forward(critic, batch)
    else:  # each critic goes back through the rows of which it has the smaller value
        asked = 1 if algo in ("td3", "ddpg") else 2
        of_actor += asked * forward(critic, batch) + [*down(critic, batch), (batch, hidden[0], ACTIONS)]
    return Counter(of_critics * delay) + Counter(of_actor)


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(repeats):
        begin = perf_counter()
        call()
        times.append(perf_counter() - begin)
    return statistics.median(times)


def one_product(product: Product, repeats: int) -> tuple[float, float]:
    """Return the seconds of a product by the compiled code and by torch."""
    rows, inner, columns = product
    a, b = torch.randn(rows, inner), torch.randn(inner, columns)
    library = native.library()
    assert library is not None, native.problem()
    flat = torch.randn((inner + 1) * columns)
    parts = [flat[: inner * columns], flat[inner * columns :]]
    layer = CompiledMLP(library, (inner, columns), "relu", parts, None)
    return seconds(lambda: layer.forward(a), repeats), seconds(lambda: torch.mm(a, b), repeats)


def one_update(algo: str, repeats: int) -> float:
    """Return the seconds of an update, the mean over those with and without the actor."""
    batch, hidden, delay = SETTINGS[algo]
    discrete = algo == "discrete_sac"
    spec = find(algo)
    config = load_config(
        {
            "algo": algo,
            "env": {"id": "CartPole-v1" if discrete else "Pendulum-v1"},
            "total_timesteps": 100_000,
            "algo_kwargs": {"batch_size": batch, "policy_delay": delay},
            "network": {"hidden_sizes": list(hidden)},
        }
    )
    low = np.full(ACTIONS, -1.0, np.float32)
    space: Any = DiscreteActions(2, 0) if discrete else ContinuousActions(low, -low)
    seen = ObsSpec((4 if discrete else OBS,), np.dtype(np.float32))
    learner = spec.build_learner(BuildContext(config, seen, space, Streams(0), torch.device("cpu")))
    action = torch.randint(2, (batch,)) if discrete else torch.rand(batch, ACTIONS) * 2.0 - 1.0
    obs, following = torch.randn(batch, *seen.shape), torch.randn(batch, *seen.shape)
    data = Batch(obs, action, torch.randn(batch), torch.full((batch,), 0.99), following)

    def updates() -> None:
        for _ in range(delay):
            learner.update(data)

    updates()
    return seconds(updates, repeats) / delay


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    torch.set_flush_denormal(True)  # as runs do
    torch.set_num_threads(1)
    print(
        "| algorithm | million multiplications | products, ours | by torch | an update | of which products |"
    )
    print("|---|---|---|---|---|---|")
    for algo, (_, _, delay) in SETTINGS.items():
        needed = products(algo)
        each = {product: one_product(product, repeats) for product in needed}
        ours, torchs = (sum(n * each[p][i] for p, n in needed.items()) / delay for i in (0, 1))
        work = sum(n * p[0] * p[1] * p[2] for p, n in needed.items()) / delay / 1e6
        whole = one_update(algo, repeats)
        print(
            f"| {algo} | {work:.0f} | {1e3 * ours:.2f} ms | {1e3 * torchs:.2f} ms | {1e3 * whole:.2f} ms "
            f"| {ours / whole:.0%} |"
        )


if __name__ == "__main__":
    main()
