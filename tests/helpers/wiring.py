"""How every option of every algorithm is read back from a live run, and which odd values they are set to."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from helpers.contracts import small_config
from rl_training.algorithms.catalogue import algorithms
from rl_training.algorithms.declared.on_policy import OnPolicyConfig
from rl_training.config import ExperimentConfig
from rl_training.data.experience import ByPriority
from rl_training.data.rollout_buffer import Rollout
from rl_training.errors import ConfigError
from rl_training.models.actors import StateDependentActor
from rl_training.models.batch_renorm import BatchRenorm
from rl_training.models.distributions import GaussianHead, TanhGaussianHead
from rl_training.models.noisy import NoisyLinear
from rl_training.models.recurrent.body import RecurrentBody
from rl_training.runtime.loop import train
from rl_training.runtime.run import Run

FAR = 10**9
"""Env steps after which every schedule has come to its end."""
PENDULUM = {"env.id": "Pendulum-v1"}

NEEDS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("alpha", "beta", "beta_final", "priority_eps", "priority_eta"), {"prioritized": True}),  # noqa: RUF024
    **dict.fromkeys(("ou_theta", "ou_dt"), {"action_noise": "ou"}),  # noqa: RUF024
    **dict.fromkeys(("sde_sample_freq", "sde_log_std_init"), {"use_sde": True}),  # noqa: RUF024
    **dict.fromkeys(("log_std_init", "action_distribution"), PENDULUM),
    "exploration_initial_eps": {"learning_starts": 0, "noisy": False},
    "exploration_final_eps": {"learning_starts": 0, "noisy": False},
    "exploration_fraction": {"learning_starts": 0, "noisy": False},
    "gamma": {"n_step_return": 1},
    "n_step_return": {"sequence_length": 9, "burn_in": 0},
    "tau": {"target_update_interval": 20},
    "noisy_sigma": {"noisy": True},
    "double": {"learning_rate": 0.5, "target_update_interval": 20},
    **dict.fromkeys(("line_search_shrinking", "line_search_steps"), {"cg_damping": 0.0, "target_kl": 0.5}),  # noqa: RUF024
    "target_critics": {"n_critics": 3},
    "sequence_period": {"burn_in": 0},
    "restart_memory": {"burn_in": 2},
    "encoder_dim": {"network.factory": "helpers.wiring:Encoder"},
    "std_clip": {"std_final": 1.0},
}
"""What has to be set besides, where an algorithm has it, for an option to be allowed and to mean something."""

TOGETHER: dict[str, dict[str, Any]] = {
    "clip_range_vf": {"value_clipping": "maximum"},
    "value_clipping": {"clip_range_vf": 0.003},
}
"""What cannot be set without an option, nor the option without it."""

ODD: dict[str, tuple[Any, ...]] = {
    "target_entropy": (-1.7,),
    "policy_delay": (3, 2),
    "target_critics": (2,),
    "n_critics": (3,),
    "hidden_sizes": ([7, 5],),
    "critic_hidden_sizes": ([11, 9],),
    "head_sizes": ([6],),
    "shift_pad": (2,),
    "n_step_return": (2, 3),
    "sequence_length": (7,),
    "sequence_period": (3,),
    "target_update_interval": (17,),
    "std_duration": (64,),
    "clip_range": (0.01,),
    "clip_range_vf": (0.003,),
    "cg_max_steps": (2,),
    "target_kl": (1e-4,),
    "line_search_steps": (40,),
    "v_min": (-3.25,),
    "std_clip": (0.02,),
}
"""Odd values of options whose type does not say enough."""


class Encoder(nn.Module):
    """A custom encoder that knows what it was asked for."""

    def __init__(self, obs_shape: tuple[int, ...], size: int) -> None:
        super().__init__()
        self.asked = size
        self.layer = nn.Linear(int(np.prod(obs_shape)), size)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(obs.flatten(1).float() / 255.0)
        return out


# Odd values


def alternatives(annotation: Any, number: int) -> Iterator[Any]:
    """Yield values of a type; ``number`` keeps those of different options apart."""
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        yield from args
    elif origin is tuple:
        parts = args[:1] * 2 if args[-1] is Ellipsis else args
        yield [next(alternatives(part, number + 7 * i)) for i, part in enumerate(parts)]
    elif args:  # a union; none is no odd value
        for part in sorted((part for part in args if part is not type(None)), key=lambda part: part is str):
            yield from alternatives(part, number)
    elif annotation is bool:
        yield from (True, False)
    elif annotation is int:
        yield from (11 + number, 5 + number % 4, 3, 2, 1)
    elif annotation is float:
        yield 0.0517 + 0.0131 * number


def settings(algo: str, option: str, value: Any) -> dict[str, Any]:
    """Return the overrides under which an option means something, and with it."""
    known = algorithms()[algo].config.model_fields
    given = {
        key if "." in key else f"algo_kwargs.{key}": own
        for key, own in NEEDS.get(option, {}).items()
        if ("." in key or key in known) and key != option
    }
    if value is None:
        return given
    together = {f"algo_kwargs.{key}": own for key, own in TOGETHER.get(option, {}).items()}
    return {**given, **together, f"algo_kwargs.{option}": value}


def odd_values(algo: str, option: str) -> list[Any]:
    """Return legal values of an option other than its default and what the smallest settings have."""
    field = algorithms()[algo].config.model_fields[option]
    number = list(algorithms()[algo].config.model_fields).index(option)
    literal = typing.get_origin(field.annotation) is Literal or field.annotation is bool
    annotation: Any = field.annotation
    for constraint in field.metadata:
        annotation = typing.Annotated[annotation, constraint]
    try:
        taken = [getattr(config(algo, settings(algo, option, None)).algo_kwargs, option), field.default]
    except ConfigError:  # what it needs is not allowed without it
        taken = [field.default]
    found = []
    for value in ODD[option] if option in ODD else alternatives(annotation, number):
        if value is None or any(_equal(value, other) for other in (taken if not literal else taken[:1])):
            continue
        try:
            config(algo, settings(algo, option, value))
        except ConfigError:
            continue
        found.append(value)
        if not literal:
            break
    return found


def _equal(value: Any, other: Any) -> bool:
    return tuple(value) == other if isinstance(value, list) else bool(value == other)


def config(algo: str, overrides: dict[str, Any]) -> ExperimentConfig[Any]:
    return small_config(algo, **overrides)


# What a live run shows


def driven(run: Run, updates: int = 1) -> Run:
    """Train until so many gradient steps have been made, or to the end."""
    for _ in train(run):
        if run.clock.updates >= updates:
            break
    assert run.clock.updates
    return run


def first_rounds(run: Run) -> list[tuple[int, int]]:
    """Return at which env steps the first two rounds of updates are made, and how many gradient steps they are."""
    rounds: list[tuple[int, int]] = []
    for _ in train(run):
        before = sum(count for _, count in rounds)
        if run.clock.updates > before:
            rounds.append((run.clock.steps, run.clock.updates - before))
        if len(rounds) == 2:
            break
    return rounds


def batch_of(run: Run) -> Any:
    """Return the first batch that the experience deals out."""
    steps = 0
    while True:
        step, _ = run.collector.step(run.algorithm)
        run.experience.add(step)
        steps += len(step)
        for batch in run.experience.batches(steps):
            return batch


def networks(run: Run) -> list[nn.Module]:
    live: Any = run.algorithm
    return list(live.networks.values())


def modules(run: Run, kind: Any, inside: str = "") -> list[Any]:
    """Return the modules of a kind in all networks, slow copies included, or of one part of the first."""
    live: Any = run.algorithm
    roots = [getattr(live.network, inside)] if inside else networks(run)
    return [module for root in roots for module in root.modules() if isinstance(module, kind)]


def after(run: Run, steps: int) -> Any:
    """Return the learner as it is after so many env steps, schedules moved on."""
    run.algorithm.advance(steps)
    return run.algorithm


def optimizers(run: Run, name: str, *, leave_out: tuple[str, ...] = ()) -> Any:
    """Return the value that an attribute has in every optimizer, compiled ones included."""
    live: Any = run.algorithm
    found = {getattr(one, name) for key, one in live.optimizers.items() if key not in leave_out}
    compiled = getattr(getattr(live, "_compiled", None), "_adam", None)
    if compiled is not None and name != "lr":
        found.add((compiled.beta1, compiled.beta2) if name == "betas" else getattr(compiled, name))
    assert len(found) == 1, f"{name}: {found}"
    return found.pop()


def learning_rate(run: Run) -> Any:
    own = run.config.algo_kwargs
    rated = own.actor_rate() is not None if hasattr(own, "actor_rate") else False
    return optimizers(run, "lr", leave_out=("actor", "temperature") if rated else ())


def worth_of_nothing(run: Run) -> tuple[float, float]:
    """Return gamma and lambda as advantages show them, of rewards of 0 and values of 1."""
    live: Any = run.algorithm
    rollout: Rollout = batch_of(run)
    shape = rollout.reward.shape
    ones, extra = np.ones(shape, np.float32), np.ones(len(rollout.extra_obs), np.float32)
    gained, _ = live.worth(rollout, np.zeros(shape, np.float32), ones, extra)
    gamma = 1.0 + max(
        float(gained[i]) for i in np.ndindex(shape) if not rollout.done[i] and _last(rollout, i)
    )
    going_on = [i for i in np.ndindex(shape) if i[0] + 2 == shape[0] and not rollout.done[i]]
    if not going_on or rollout.done[-1].any():
        return gamma, float("nan")
    return gamma, (float(gained[going_on[0]]) / (gamma - 1.0) - 1.0) / gamma


def _last(rollout: Rollout, place: tuple[int, ...]) -> bool:
    return place[0] + 1 == len(rollout.reward)


def gamma(run: Run) -> float:
    if hasattr(run.algorithm, "worth"):
        return worth_of_nothing(run)[0]
    batch = batch_of(run)
    if isinstance(batch, list):  # raw steps, which the learner itself discounts
        live: Any = run.algorithm
        return float(live.config.gamma)
    return float(batch.discount.max())


def n_step_return(run: Run) -> int:
    discount = batch_of(run).discount
    found = np.log(float(discount[discount > 0].min())) / np.log(run.config.algo_kwargs.gamma)
    assert abs(found - round(found)) < 1e-3
    return round(found)


def epsilon_fraction(run: Run) -> float:
    own = run.config.algo_kwargs
    first, last = own.exploration_initial_eps, own.exploration_final_eps
    found = after(run, 5).epsilon
    return float((last - first) * 5 / (found - first) / run.config.total_timesteps)


def std_duration(run: Run) -> float:
    own = run.config.algo_kwargs
    return float((own.std_final - own.std_initial) * 16 / (after(run, 16).std - own.std_initial))


def beta(run: Run, steps: int) -> float:
    experience: Any = run.experience
    experience.batches(steps)
    return float(experience.beta)


def outputs_seen(run: Run) -> dict[str, int]:
    """Return at how many fractions IQN looks, by what for."""
    live: Any = run.algorithm
    seen, plain = {}, live.output

    def output(network: Any, obs: Any, role: str) -> Any:
        out = plain(network, obs, role)
        seen[role] = out.shape[2]
        return out

    live.output = output
    driven(run)
    live.q_values(np.zeros((20, *run.policy.obs.shape), np.float32))
    return seen


def bodies(run: Run, name: str) -> Any:
    found = {getattr(body, name) for body in modules(run, RecurrentBody)}
    assert len(found) == 1
    return found.pop()


def width(run: Run) -> int:
    """Return how many numbers for each action a learner of quantiles or atoms has to do with."""
    live: Any = driven(run).algorithm
    return int((live.support if hasattr(live, "support") else live.fractions).shape[-1])


def entropy_weight(run: Run) -> Any:
    live: Any = run.algorithm
    return float(live.temperature())


def trunk_size(run: Run) -> set[int]:
    return {layer.out_features for part in ("actor", "critic") for layer in _trunks(run, part)}


def _trunks(run: Run, part: str) -> list[nn.Linear]:
    live: Any = run.algorithm
    return [getattr(live.network, part).trunk[0]]


def live(name: str) -> Callable[[Run], Any]:
    """Read an attribute of the learner, dotted."""
    return lambda run: functools.reduce(getattr, name.split("."), run.algorithm)


def held(name: str) -> Callable[[Run], Any]:
    """Read an attribute of the experience, dotted."""
    return lambda run: functools.reduce(getattr, name.split("."), run.experience)


Reader = Callable[[Run], Any]
READERS: dict[str, Reader] = {
    # How weights follow gradients
    "learning_rate": learning_rate,
    "learning_rate_final": lambda run: optimizers(_moved(run), "lr"),
    "actor_learning_rate": lambda run: optimizers(run, "lr", leave_out=("critic",)),
    "adam_eps": lambda run: optimizers(run, "eps"),
    "adam_betas": lambda run: list(optimizers(run, "betas", leave_out=("temperature",))),
    "max_grad_norm": lambda run: optimizers(run, "max_grad_norm"),
    # What is kept, and when it is learned from
    "gamma": gamma,
    "n_steps": lambda run: first_rounds(run)[0][0] // run.config.env.num_envs,
    "buffer_size": held("buffer.capacity"),
    "learning_starts": lambda run: first_rounds(run)[0][0] - run.config.algo_kwargs.train_freq,
    "train_freq": lambda run: (lambda rounds: rounds[1][0] - rounds[0][0])(first_rounds(run)),
    "gradient_steps": lambda run: first_rounds(run)[0][1],
    "batch_size": lambda run: batch_of(run).reward.shape[-1],
    "n_step_return": n_step_return,
    "prioritized": lambda run: isinstance(run.experience, ByPriority),
    "alpha": held("buffer.priorities.alpha"),
    "priority_eps": held("buffer.priorities.eps"),
    "beta": lambda run: beta(run, 0),
    "beta_final": lambda run: beta(run, FAR),
    "sequence_period": held("buffer.period"),
    "restart_memory": lambda run: "age" in (run.algorithm.initial_carry(1) or {}),
    # Exploration
    "exploration_initial_eps": lambda run: after(run, 0).epsilon,
    "exploration_final_eps": lambda run: after(run, FAR).epsilon,
    "exploration_fraction": epsilon_fraction,
    "action_noise": live("noise.kind"),
    "action_noise_std": live("noise.std"),
    "ou_theta": live("noise.theta"),
    "ou_dt": live("noise.dt"),
    "std_initial": lambda run: after(run, 0).std,
    "std_final": lambda run: after(run, FAR).std,
    "std_duration": std_duration,
    "use_sde": lambda run: bool(modules(run, StateDependentActor, "actor")),
    "sde_sample_freq": live("_matrices.period"),
    "sde_log_std_init": lambda run: float(
        modules(run, StateDependentActor, "actor")[0].log_std.detach().mean()
    ),
    # Networks
    "dueling": lambda run: {module.dueling for module in _dueling(run)} == {True},
    "noisy": lambda run: bool(modules(run, NoisyLinear)),
    "noisy_sigma": lambda run: next(
        float(layer.weight_sigma.detach().mean()) * layer.weight.shape[1] ** 0.5
        for layer in modules(run, NoisyLinear)
    ),
    "num_atoms": width,
    "v_min": lambda run: float(run.algorithm.support[0]),  # type: ignore[attr-defined]
    "v_max": lambda run: float(run.algorithm.support[-1]),  # type: ignore[attr-defined]
    "num_quantiles": width,
    "num_target_quantiles": lambda run: outputs_seen(run)["target"],
    "num_policy_quantiles": lambda run: outputs_seen(run)["policy"],
    "num_cosines": lambda run: len(networks(run)[0].frequencies),  # type: ignore[arg-type]
    "core": lambda run: {nn.LSTM: "lstm", nn.GRU: "gru"}[type(modules(run, RecurrentBody)[0].core)],
    "core_size": lambda run: {body.core.hidden_size for body in modules(run, RecurrentBody)},
    "core_layers": lambda run: {body.core.num_layers for body in modules(run, RecurrentBody)},
    "prev_action": lambda run: bodies(run, "prev_action"),
    "prev_reward": lambda run: bodies(run, "prev_reward"),
    "n_critics": lambda run: len(run.algorithm.network.critic.members),  # type: ignore[attr-defined]
    "critic_layer_norm": lambda run: (
        bool(modules(run, nn.LayerNorm, "critic")) and not modules(run, nn.LayerNorm, "actor")
    ),
    "critic_dropout": lambda run: {layer.p for layer in modules(run, nn.Dropout, "critic")},
    "batch_norm_momentum": lambda run: {layer.momentum for layer in modules(run, BatchRenorm)},
    "renorm_warm_up": lambda run: {layer.warm_up for layer in modules(run, BatchRenorm)},
    "feature_dim": trunk_size,
    "encoder_dim": live("network.encoder.asked"),
    "action_distribution": lambda run: {GaussianHead: "gaussian", TanhGaussianHead: "tanh_gaussian"}[
        type(run.algorithm.head)  # type: ignore[attr-defined]
    ],
    "log_std_init": lambda run: set(run.algorithm.network.log_std.tolist()),  # type: ignore[attr-defined]
    "shared_trunk": live("network.shared"),
    "orthogonal_init": lambda run: float(_head(run).bias.detach().abs().max()) == 0.0,
    "head_sizes": lambda run: list(run.algorithm.network.actor.sizes[1:-1]),  # type: ignore[attr-defined]
    # Learning
    "policy_delay": lambda run: (lambda one: one.updates // one.actor_updates)(driven(run, 6).algorithm),  # type: ignore[attr-defined]
    "target_entropy": live("target_entropy"),
    "ent_coef_init": entropy_weight,
    "normalize_reward": lambda run: run.algorithm.reward_scale is not None,  # type: ignore[attr-defined]
    "gae_lambda": lambda run: worth_of_nothing(run)[1],
    "clip_range_final": lambda run: after(run, FAR).clip_range,
    "target_kl_final": lambda run: after(run, FAR).target_kl,
}
"""What an option has become in a live run; a set stands for values that several places have to agree on."""

EFFECTS = frozenset(
    {
        *("tau", "target_update_interval", "double", "loss", "kappa", "value_rescaling", "burn_in"),
        *("priority_eta", "target_policy_noise", "target_noise_clip", "target_critics", "drop_quantiles"),
        *("target_entropy_ratio", "critic_entropy", "target", "std_clip", "reward_scale", "shift_pad"),
        *("normalize_advantage", "clip_range", "vf_coef", "value_clipping", "clip_range_vf", "target_kl"),
        *("recompute_advantages", "n_epochs", "sequence_length", "n_critic_updates", "cg_max_steps"),
        *("cg_damping", "line_search_shrinking", "line_search_steps", "ent_coef", "passes", "noise"),
        *("gamma", "learning_starts"),
    }
)
"""Options that learners read where they use them: with another value, something else is learned."""

MEANINGLESS = {
    ("a2c", name): "of one step on a rollout, the first ratio is 1 and no value has moved"
    for name in (*("clip_range", "value_clipping", "clip_range_vf", "target_kl", "recompute_advantages"),)
}
"""Options that an algorithm has from its family, and which change nothing by its own definition."""


def by_effect(algo: str, option: str) -> bool:
    """Say whether an option is seen by what is learned, and not read back."""
    if option == "batch_size":  # of a rollout, minibatches
        return issubclass(algorithms()[algo].config, OnPolicyConfig)
    return option in EFFECTS


def _moved(run: Run) -> Run:
    run.algorithm.advance(FAR)
    return run


def _dueling(run: Run) -> list[Any]:
    return [module for root in networks(run) for module in root.modules() if hasattr(module, "dueling")]


def _head(run: Run) -> nn.Linear:
    live_: Any = run.algorithm
    found: nn.Linear = live_.network.actor.linears[-1]
    return found
