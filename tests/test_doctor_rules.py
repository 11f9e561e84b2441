"""The doctor's rules over the metrics of a run, each on a log that shows the fault, and on healthy ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_training.experiment.configs import load_config
from rl_training.experiment.doctor.findings import Finding, Section
from rl_training.experiment.doctor.log import Log
from rl_training.experiment.doctor.rules import RULES, check_metrics

ROWS = 20
RISING = np.linspace(20.0, 400.0, ROWS)
STARTS = ["algo_kwargs.learning_starts=100"]
FLAT = np.array([20.0, 21.0] * (ROWS // 2))


def log_of(name: str, *overrides: str, evaluation: Any = None, **metrics: Any) -> Log:
    """Return the log of a run, of one row for every 1,000 steps; names are without ``train/``."""
    given = {"returns": RISING, "lengths": RISING, **metrics}
    records: list[dict[str, Any]] = []
    for row in range(ROWS):
        values = {
            key: float(value if np.isscalar(value) else value[row])  # type: ignore[arg-type]
            for key, value in given.items()
            if value is not None
        }
        named = {
            "rollout/ep_rew_mean": values.pop("returns"),
            "rollout/ep_len_mean": values.pop("lengths"),
            **{f"train/{key}": value for key, value in values.items()},
        }
        records.append({"step": 1_000 * (row + 1), "train/n_updates": 100 * row, **named})
        if evaluation is not None:
            records.append({"step": 1_000 * (row + 1), "eval/mean_reward": float(evaluation[row])})
    return Log(load_config(name, overrides), records)


def found(log: Log) -> dict[str, Finding]:
    section = Section("")
    check_metrics(log, section)
    return {finding.cause: finding for finding in section.findings if finding.bad}


HEALTHY: dict[str, dict[str, Any]] = {
    "dqn/cartpole": {
        "q_value_mean": np.linspace(1, 300, ROWS),
        "grad_norm": 3.0,
        "exploration_rate": np.linspace(1, 0.04, ROWS),
    },
    "c51/cartpole": {
        "q_value_mean": 50.0 + np.arange(ROWS),
        "targets_outside": 0.0,
        "end_targets_outside": 0.0,
    },
    "ppo/cartpole": {
        "entropy": np.linspace(0.69, 0.2, ROWS),
        "explained_variance": np.linspace(-0.5, 0.8, ROWS),
        "epochs": 10.0,
        "approx_kl": 0.01,
        "clip_fraction": 0.1,
        "grad_norm": 0.5,
    },
    "ppo/pendulum": {
        "entropy": np.linspace(1.4, 0.3, ROWS),
        "std": np.linspace(1.0, 0.3, ROWS),
        "grad_norm": 0.5,
    },
    "sac/pendulum": {
        "entropy": np.linspace(0.5, -1.0, ROWS),
        "ent_coef": np.linspace(0.8, 0.1, ROWS),
        "q_value_mean": np.linspace(-1, -80, ROWS),
        "critic_grad_norm": 20.0,
    },
    "td3/pendulum": {
        "action_saturation": 0.99,
        "q_value_mean": np.linspace(-1, -80, ROWS),
    },  # bang-bang, and good
    "trpo/cartpole": {"line_search_success": 1.0, "explained_variance": 0.5},
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_logs_raise_no_alarm(name: str) -> None:
    log = log_of(name, **HEALTHY[name], evaluation=RISING)
    assert found(log) == {}
    section = Section("")
    check_metrics(log, section)
    assert len(section.findings) >= 5  # it says what it looked at


BAD: list[tuple[str, str, list[str], dict[str, Any]]] = [
    ("values", "dqn/cartpole", [], {"q_value_mean": 10.0 ** np.linspace(0, 6, ROWS)}),
    ("dead_network", "dqn/cartpole", [], {"q_value_mean": 0.125, "returns": FLAT}),
    ("dead_network", "ppo/cartpole", [], {"grad_norm": np.where(np.arange(ROWS) < 5, 1.0, 0.0)}),
    ("explained_variance", "ppo/cartpole", [], {"explained_variance": -0.8, "returns": FLAT}),
    ("support", "c51/cartpole", [], {"targets_outside": 0.3, "end_targets_outside": 0.0}),
    ("support", "c51/cartpole", [], {"targets_outside": 0.0, "end_targets_outside": np.eye(ROWS)[7]}),
    ("entropy", "ppo/cartpole", [], {"entropy": 0.69 * 0.5 ** np.arange(ROWS), "returns": FLAT}),
    ("entropy", "ppo/cartpole", [], {"entropy": 0.6931, "returns": FLAT}),
    ("entropy", "ppo/pendulum", [], {"entropy": 1.0, "std": np.linspace(1.0, 6.0, ROWS)}),
    ("entropy", "ppo/pendulum", [], {"entropy": 1.0, "std": 0.5 ** np.arange(ROWS), "returns": FLAT}),
    ("entropy", "sac/pendulum", [], {"entropy": -1.0, "ent_coef": 2.0 ** np.arange(ROWS)}),
    ("exploration", "dqn/cartpole", ["algo_kwargs.exploration_fraction=0", *STARTS], {"exploration_rate": 0.01}),
    ("exploration", "dqn/cartpole", ["total_timesteps=20000"], {"exploration_rate": np.linspace(1.0, 0.8, ROWS)}),
    ("saturation", "td3/pendulum", [], {"action_saturation": 0.99, "returns": FLAT}),
    ("kl_stop", "ppo/cartpole", ["algo_kwargs.target_kl=0.01"], {"epochs": 1.0, "approx_kl": 0.02}),
    ("kl", "ppo/cartpole", [], {"epochs": 10.0, "approx_kl": 0.9, "clip_fraction": 0.7}),
    ("line_search", "trpo/cartpole", [], {"line_search_success": 0.1}),
    ("fall", "dqn/cartpole", [], {"returns": np.concatenate([np.linspace(20, 400, 10), np.linspace(380, 60, 10)])}),
    ("evaluation", "dqn/cartpole", [], {"evaluation": np.full(ROWS, 20.0) + np.arange(ROWS)}),
    ("not_learning", "dqn/cartpole", [], {"returns": FLAT}),
    ("worse", "dqn/cartpole", [], {"returns": RISING[::-1]}),
    ("sign", "dqn/cartpole", [], {"returns": np.linspace(-22.0, -9.4, ROWS), "lengths": np.linspace(22.0, 9.4, ROWS)}),
    ("sign", "dqn/cartpole", ["evaluation.env.wrappers=[FlattenObservation]"], {"evaluation": RISING[::-1]}),
    ("reward_scale", "dqn/cartpole", [], {"returns": 1e4 * RISING}),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "name", "overrides", "metrics"), BAD, ids=lambda value: str(value)[:24])
def test_faults_are_named_with_evidence_and_a_remedy(
    cause: str, name: str, overrides: list[str], metrics: dict[str, Any]
) -> None:
    alarms = found(log_of(name, *overrides, **metrics))
    assert cause in alarms
    assert any(character.isdigit() for character in alarms[cause].text)
    assert alarms[cause].remedy


def test_every_rule_can_find_something() -> None:
    """No rule is without a log above that it names."""
    silent = {rule.__name__ for rule in RULES} - {"finite"}
    for _, name, overrides, metrics in BAD:
        for rule in RULES:
            section = Section("")
            rule(log_of(name, *overrides, **metrics), section)
            if any(finding.bad for finding in section.findings):
                silent.discard(rule.__name__)
    assert silent == set()


def test_numbers_that_are_not_finite_are_named_with_their_step() -> None:
    log = log_of("dqn/cartpole")
    log.records[7]["train/loss"] = None
    assert "train/loss was not finite at step 8,000" in found(log)["finite"].text


def test_goals_reached_sooner_are_no_wrong_sign() -> None:
    """Acrobot: each step costs 1 until the goal, and episodes of a random policy are cut at 500 steps."""
    lengths = np.linspace(495.0, 90.0, ROWS)
    assert found(log_of("dqn/cartpole", "env.id=Acrobot-v1", returns=-lengths, lengths=lengths)) == {}


def test_few_rows_are_said_to_be_too_few() -> None:
    log = log_of("dqn/cartpole", returns=FLAT)
    section = Section("")
    check_metrics(Log(log.config, log.records[:3]), section)
    assert [finding.level for finding in section.findings] == ["ok", "note"]
    assert "3 rows of training are too few" in section.findings[1].text
