"""Custom networks with batch statistics and dropout: active while learning, and never while acting."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rl_training import load_config
from rl_training.algorithms import catalogue
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run

CARTPOLE = {
    "env": {"id": "CartPole-v1", "num_envs": 2},
    "total_timesteps": 200,
    "algo_kwargs": {"learning_starts": 20, "batch_size": 8, "train_freq": 2},
    "network": {"hidden_sizes": [6]},
}
PLAIN = {"double": True}
SEQUENCES = {"sequence_length": 6, "core_size": 4}
OPTIONS: dict[str, dict[str, Any]] = {
    "dqn": PLAIN,
    "prioritized_dqn": PLAIN,
    "c51": {"num_atoms": 5, "v_min": 0, "v_max": 50},
    "rainbow": {"num_atoms": 5, "v_min": 0, "v_max": 50, "dueling": False, "noisy": False},
    "qr_dqn": {"num_quantiles": 5},
    "iqn": {"num_quantiles": 5, "num_target_quantiles": 5},
    "drqn": SEQUENCES,
    "r2d2": {**SEQUENCES, "burn_in": 2},
    "drqv2": {},
}


class Own(nn.Module):
    """From observations (and fractions) to an output of any shape, by way of both kinds of layers."""

    def __init__(self, size: int, output: tuple[int, ...]) -> None:
        super().__init__()
        self.norm, self.dropout = nn.BatchNorm1d(size, momentum=0.5), nn.Dropout(0.5)
        self.head, self.output = nn.Linear(size, torch.Size(output).numel()), output

    def forward(self, obs: torch.Tensor, fractions: torch.Tensor | None = None) -> torch.Tensor:
        x = self.head(self.dropout(self.norm(obs.reshape(-1, self.norm.num_features).float())))
        if fractions is None:
            return x.view(len(x), *self.output)
        return x[:, :, None] + fractions[:, None]


def mean_of(network: Own) -> torch.Tensor:
    assert network.norm.running_mean is not None
    return network.norm.running_mean.clone()


def config_of(algo: str) -> dict[str, Any]:
    if algo == "drqv2":
        smallest = dict(catalogue.find(algo).smallest)
        options = {**smallest["algo_kwargs"], "shift_pad": 0, "encoder_dim": 6, "train_freq": 2}
        return {"algo": algo, **smallest, "algo_kwargs": {**options, "learning_starts": 20, "batch_size": 8}}
    return {"algo": algo, **CARTPOLE, "algo_kwargs": {**CARTPOLE["algo_kwargs"], **OPTIONS[algo]}}  # type: ignore[dict-item]


def make_run(algo: str) -> tuple[Run, list[Own]]:
    made: list[Own] = []
    numbers = {"c51": 5, "rainbow": 5, "qr_dqn": 5}

    def factory(shape: tuple[int, ...], count: int) -> nn.Module:
        output = (count, numbers[algo]) if algo in numbers else (count,)
        made.append(Own(torch.Size(shape).numel(), output))
        return made[-1]

    return Run(load_config(config_of(algo)), network=factory), made


@pytest.mark.parametrize("algo", OPTIONS)
def test_batch_statistics_and_dropout_are_active_while_learning_only(
    algo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, (own,) = make_run(algo)
    algorithm: Any = run.algorithm
    modes: list[tuple[bool, bool]] = []
    dropout = nn.functional.dropout

    def watched(x: torch.Tensor, p: float, training: bool, inplace: bool) -> torch.Tensor:
        modes.append((training, torch.is_grad_enabled()))
        return dropout(x, p, training, inplace)

    monkeypatch.setattr(nn.functional, "dropout", watched)
    act, update, learned = algorithm.act, algorithm.update, []

    def acting(*args: Any, **options: Any) -> Any:
        before = mean_of(own)
        modes.clear()
        decision = act(*args, **options)
        assert not any(training for training, _ in modes)
        assert torch.equal(mean_of(own), before)
        return decision

    def learning(*args: Any, **options: Any) -> Any:
        before = mean_of(own)
        modes.clear()
        result = update(*args, **options)
        assert all(training == graph for training, graph in modes), "what targets are made of is as in acting"
        learned.append(any(training for training, _ in modes))
        assert not torch.equal(mean_of(own), before)
        return result

    monkeypatch.setattr(algorithm, "act", acting)
    monkeypatch.setattr(algorithm, "update", learning)
    steps = train(run)
    while len(learned) < 4:
        next(steps)
    run.close()
    assert all(learned)


def test_these_are_all_the_algorithms_that_take_custom_networks() -> None:
    taken = set()
    for spec in catalogue.PACKAGED:
        config = {"algo": spec, **catalogue.find(spec).smallest}
        try:
            Run(load_config(config), network=lambda shape, count: nn.Identity()).close()
        except Exception as error:
            if "takes no custom network" in str(error):
                continue
        taken.add(spec)
    assert taken == OPTIONS.keys()
