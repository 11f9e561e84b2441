"""Words of Stable-Baselines3 in ours: what means the same is taken; of anything else, one line says what to write."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rl_training.algorithms.catalogue import algorithms
from rl_training.algorithms.options import MemoryOptions
from rl_training.algorithms.spec import AlgorithmSpec
from rl_training.errors import ConfigError, did_you_mean

POLICIES = frozenset(
    f"{kind}{memory}Policy" for kind in ("Mlp", "Cnn", "MultiInput") for memory in ("", "Lstm")
)
"""Names of policies. They say nothing here: the encoder follows from the observations."""
WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "_init_setup_model": (True,),
    "action_noise": (None,),
    "monitor_wrapper": (True, False),
    "optimize_memory_usage": (False, True),
    "replay_buffer_class": (None,),
    "replay_buffer_kwargs": (None,),
    "rollout_buffer_class": (None,),
    "rollout_buffer_kwargs": (None,),
    "sde_sample_freq": (-1,),
    "use_sde": (False,),
    "use_sde_at_warmup": (False,),
    "custom_objects": (None,),
    "force_reset": (True, False),
    "print_system_info": (False,),
}
"""Arguments with the values that ask for nothing: episodes are always counted, and images are always kept once."""
INSTEAD = {
    "action_noise": "this algorithm explores in another way",
    "create_eval_env": "evaluation={'frequency': 10_000, 'episodes': 10} evaluates while training",
    "custom_objects": "settings are keywords: load(path, learning_rate=1e-4)",
    "eval_env": "evaluation={'frequency': 10_000, 'env': {'kwargs': {...}}} evaluates while training",
    "print_system_info": "metadata.json in the run folder says what it was made with",
    "n_envs": "num_envs=N makes that many environments",
    "replay_buffer_class": "prioritized=True replays by priority; there is no other choice",
    "replay_buffer_kwargs": "prioritized=True, alpha= and beta= replay by priority",
    "rollout_buffer_class": "rollouts are of one kind here",
    "rollout_buffer_kwargs": "rollouts are of one kind here",
    "sde_sample_freq": "the noise of use_sde is drawn at the beginning of each episode",
    "use_sde_at_warmup": "the first learning_starts actions are uniformly random",
}
"""What to write instead of an argument of the constructor that does not exist here."""
ELSEWHERE = {
    "action_noise": "agent.config.algo_kwargs has the options of exploration",
    "collect_rollouts": "learn() collects and updates; a Callback sees every step",
    "env": "environments live while learn() runs; agent.config.env says what they are",
    "ep_info_buffer": "agent.result.metrics['rollout/ep_rew_mean'], and metrics.csv in agent.run_dir",
    "get_env": "environments live while learn() runs; agent.evaluate(10) and agent.record('agent.mp4') play episodes, "
    "and gymnasium.make makes one to step by hand",
    "get_parameters": "agent.parameters has the tensors by name",
    "get_vec_normalize_env": "the agent normalises: network={'normalize_obs': True}, normalize_reward=True",
    "learning_starts": "agent.config.algo_kwargs.learning_starts",
    "load_replay_buffer": "a checkpoint has the replay inside: load(path) brings it along",
    "logger": "a Callback has training.log({'my/value': 1.0}); metrics.csv in agent.run_dir has everything logged",
    "lr_schedule": "agent.config.algo_kwargs.learning_rate, and learning_rate_final",
    "replay_buffer": "save() and load() carry the replay; Python code does not reach it",
    "rollout_buffer": "save() and load() carry the rollout; Python code does not reach it",
    "save_replay_buffer": "save() has the replay inside, unless it is told replay=False",
    "set_logger": "logging={'tensorboard': True, 'csv': True} chooses what is written besides metrics.jsonl",
    "set_parameters": "load(path) loads weights; network= takes a callable whose module has weights of its own",
    "set_random_seed": "seed= is an argument of the constructor",
    "train": "learn() collects and updates",
    "verbose": "learn(progress_bar=False) is quiet",
}
"""What to use instead of an attribute of a model that does not exist here."""
_ACTIVATIONS = {"ReLU": "relu", "Tanh": "tanh", "ELU": "elu", "GELU": "gelu", "SiLU": "silu"}
_RENAMED = {
    "lstm_hidden_size": "core_size",
    "n_lstm_layers": "core_layers",
    "n_quantiles": "num_quantiles",
    "n_critics": "n_critics",
    "log_std_init": "log_std_init",
    "ortho_init": "orthogonal_init",
}
_POLICY_KWARGS = ("net_arch", "activation_fn", *_RENAMED)


class Elsewhere(ConfigError, AttributeError):
    """An attribute of Stable-Baselines3's models that has another place here."""


def check_policy(name: str, spec: AlgorithmSpec) -> None:
    """Refuse the name of a policy with a memory for an algorithm without one."""
    if "Lstm" in name and not issubclass(spec.config, MemoryOptions):
        able = [
            other.class_name for other in algorithms().values() if issubclass(other.config, MemoryOptions)
        ]
        raise ConfigError(f"{name}: {spec.class_name} has no memory; {', '.join(able)} have one")


def from_policy_kwargs(given: Any, spec: AlgorithmSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what ``policy_kwargs`` says of the section ``network``, and of the hyper-parameters."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"policy_kwargs: should be a dict, not {type(given).__name__}")
    network: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name == "net_arch":
            network.update(_layers(value, spec))
        elif name == "activation_fn":
            network["activation"] = _activation(value)
        elif name in _RENAMED:
            options[_RENAMED[name]] = value
        elif (name, value) not in (("normalize_images", True), ("share_features_extractor", True)):
            near = did_you_mean(str(name), _POLICY_KWARGS)
            raise ConfigError(
                f"policy_kwargs.{name}: has no counterpart{near or '; network= takes a dict of options or a callable'}"
            )
    return network, options


def _layers(arch: Any, spec: AlgorithmSpec) -> dict[str, Any]:
    if isinstance(arch, Mapping):
        actor, critic = arch.get("pi", arch.get("qf")), arch.get("qf", arch.get("vf", arch.get("pi")))
        if arch.keys() - {"pi", "qf", "vf"} or actor is None:
            raise ConfigError(
                "policy_kwargs.net_arch: should be a list of sizes, or a dict with pi and qf, or vf"
            )
        if list(actor) == list(critic):
            return {"hidden_sizes": list(actor)}
        if not spec.config.separate_critic:
            raise ConfigError(
                f"policy_kwargs.net_arch: actor and critic of {spec.name} have the same sizes: "
                f"network={{'hidden_sizes': {list(actor)}}}"
            )
        return {"hidden_sizes": list(actor), "critic_hidden_sizes": list(critic)}
    if not isinstance(arch, list | tuple) or not all(type(size) is int for size in arch):
        raise ConfigError(f"policy_kwargs.net_arch: should be a list of whole numbers, not {arch!r:.60}")
    return {"hidden_sizes": list(arch)}


def _activation(given: Any) -> str:
    name = getattr(given, "__name__", repr(given))
    if name not in _ACTIVATIONS:
        raise ConfigError(f"policy_kwargs.activation_fn: {name:.60} is none of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def from_schedules(options: Mapping[str, Any], spec: AlgorithmSpec) -> dict[str, Any]:
    """Return hyper-parameters in which a schedule that is a straight line is its two ends."""
    plain: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, type) or not callable(value):
            plain[name] = value
            continue
        first, last = _ends(name, value, spec)
        plain[name] = first
        if first != last:
            plain[f"{name}_final"] = last
    return plain


def _ends(name: str, schedule: Callable[[float], Any], spec: AlgorithmSpec) -> tuple[float, float]:
    final = f"{name}_final"
    if final not in spec.config.model_fields:
        raise ConfigError(f"{name}: a schedule is not possible here; give a number")
    advice = f"only straight lines are possible: {name}=A, {final}=B, from A to B over total_timesteps"
    try:
        first, last = float(schedule(1.0)), float(schedule(0.0))
        bend = max(
            abs(float(schedule(left)) - (last + left * (first - last)))
            for left in (0.1, 0.25, 0.5, 0.75, 0.9)
        )
    except Exception as error:
        raise ConfigError(
            f"{name}: a schedule is called with the share that is left, from 1 to 0: {error}"
        ) from None
    if not math.isfinite(bend) or bend > 1e-6 * max(abs(first), abs(last)):
        raise ConfigError(f"{name}: this schedule is bent; {advice}")
    return first, last


def check_learn(progress_bar: Any, log_interval: Any, *, again: Any) -> None:
    """Refuse arguments of ``learn`` that mean something else here."""
    if log_interval is not None or not isinstance(progress_bar, bool | None):
        raise ConfigError(
            "log_interval: logging={'frequency': 1_000} of the constructor says how often, in env steps"
        )
    if again:
        raise ConfigError(
            "reset_num_timesteps: learn() goes on where the last one ended; a new agent begins at 0"
        )


def train_frequency(given: Any) -> Any:
    """Return the number of a ``train_freq`` that comes with its unit, such as ``(4, "step")``."""
    if not isinstance(given, tuple | list):
        return given
    if len(given) == 2 and given[1] == "step":
        return given[0]
    raise ConfigError(f"train_freq: {given!r:.60} is not possible; it counts env steps: train_freq=4")


def check_gradient_steps(given: Any) -> None:
    """Refuse the -1 that stands for as many updates as steps."""
    if given == -1 and type(given) is int:
        raise ConfigError(
            "gradient_steps: -1 is not allowed; as many updates as steps is gradient_steps=N, train_freq=N"
        )
