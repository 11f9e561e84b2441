"""What the arguments of a managed class mean: settings of a config, and callables that no config can hold."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
from pydantic import TypeAdapter, ValidationError
from torch import nn

from rl_training.algorithms import catalogue
from rl_training.algorithms.spec import AlgorithmSpec, NetworkFactory
from rl_training.api import stable_baselines as sb3
from rl_training.api.instances import section_of
from rl_training.config import EnvConfig, EvaluationConfig, ExperimentConfig, NetworkConfig
from rl_training.config.loading import apply_overrides, put
from rl_training.config.schema import CheckpointConfig, Count, LoggingConfig
from rl_training.envs import EnvFactory, resolve
from rl_training.errors import ConfigError, did_you_mean
from rl_training.experiment.configs import Source, check_source, load_config, read_source
from rl_training.runtime.folder import claimed, new_run_path, numbered

Env = str | EnvFactory | gym.Env[Any, Any] | Mapping[str, Any]
"""What names or makes environments: an id, a callable, one that was made by an id, or the section of a config."""
Network = NetworkFactory | Mapping[str, Any]
"""A callable that makes a network, or the section of a config."""
Overrides = Mapping[str, Any] | Sequence[str]
"""Settings by (dotted) keys, or as ``key.sub=value`` texts."""

_SECTIONS: dict[str, type] = {
    "env": EnvConfig,
    "network": NetworkConfig,
    "evaluation": EvaluationConfig,
    "checkpoint": CheckpointConfig,
    "logging": LoggingConfig,
}


_CHANGEABLE = ("total_timesteps", "device", "threads", "evaluation", "checkpoint", "logging")
_KEYWORDS = (*_CHANGEABLE, "seed", "num_envs", "env", "network", "config", "run_dir")


@dataclass(frozen=True)
class Arguments:
    """What an agent was told: settings to put into a config, and what cannot stand there."""

    source: Source
    settings: dict[str, Any]
    env: EnvFactory | None
    network: NetworkFactory | None
    root: Path | None = None
    """Below which run folders are made, if it is not ``runs``."""
    quiet: bool = False

    def experiment(
        self, total_timesteps: Any = None, schedule_timesteps: Any = None, *, checking: bool = True
    ) -> ExperimentConfig[Any]:
        """Return the config; if it is only for ``checking``, one with a large budget where none was given yet."""
        given = {"total_timesteps": total_timesteps, "schedule_timesteps": schedule_timesteps}
        settings = {**self.settings, **{key: value for key, value in given.items() if value is not None}}
        data = read_source(self.source, settings)
        if checking and "total_timesteps" not in data:
            num_envs = data.get("env", {}).get("num_envs", 1)
            data["total_timesteps"] = 2**40 * (num_envs if isinstance(num_envs, int) else 1)
        config = load_config(data)
        check_source(self.source, config)
        return config

    def new_path(self, config: ExperimentConfig[Any], name: str | None) -> Path:
        """Make a run folder that is free, of that ``name`` and a number if there is one, and return its path."""
        root = Path("runs") if self.root is None else self.root
        return new_run_path(config, root) if name is None else claimed(numbered(root / name, "_", 1))

    def with_env(self, settings: Mapping[str, Any]) -> Arguments:
        """Return the same for another environment, which has kwargs and wrappers of its own."""
        kept = {
            key: value for key, value in self.settings.items() if key not in ("env.kwargs", "env.wrappers")
        }
        return replace(self, settings={**kept, **settings})


def of_constructor(
    class_name: str,
    spec: AlgorithmSpec,
    positional: Sequence[Any],
    *,
    env: Env | None,
    network: Network | None,
    config: Source | None,
    shared: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Arguments:
    """Understand the arguments of a constructor; ``shared`` are those of every algorithm, none where not given."""
    options = dict(options)
    env = _environment(class_name, spec, [*positional, *_popped(options, "policy")], env)
    settings, factory = of_env(env)
    settings = {"algo": spec.name, **settings}
    settings.update({key: value for key, value in shared.items() if value is not None})
    root, quiet = options.pop("tensorboard_log", None), options.pop("verbose", None) == 0
    more, made = _of_network(network, options.pop("policy_kwargs", None), options, spec)
    settings.update(more)
    settings.update(of_options(options, spec))
    source: Source = _expanded(config) if config is not None else {}
    if env is None and config is None:
        raise ConfigError("env: give an environment, or a config that names one")
    given = read_source(source).get("algo", spec.name)
    if given != spec.name:
        right = f"; use {catalogue.find(given).class_name}" if isinstance(given, str) else ""
        raise ConfigError(f"config: is one of '{given}', not of '{spec.name}'{right}")
    return Arguments(source, settings, factory, made, None if root is None else Path(root), quiet)


def of_env(env: Env | None, key: str = "env") -> tuple[dict[str, Any], EnvFactory | None]:
    """Return the settings that an environment stands for, and the callable if it is made by one."""
    if env is None:
        return {}, None
    if isinstance(env, str):
        return {f"{key}.id": env}, None
    if isinstance(env, gym.Env):
        env = section_of(env)
    if isinstance(env, Mapping):
        return {f"{key}.{name}": value for name, value in env.items()}, None
    if isinstance(env, gym.vector.VectorEnv) or isinstance(getattr(env, "num_envs", None), int):
        raise ConfigError(
            f"{key}: give an id or a callable that makes one environment, and num_envs=N for several"
        )
    if not callable(env):
        raise ConfigError(f"{key}: give an id or a callable that makes it, not {type(env).__name__}")
    return {f"{key}.id": importable_name(env)}, env


def of_options(options: Mapping[str, Any], spec: AlgorithmSpec) -> dict[str, Any]:
    """Return the settings that keywords of an algorithm stand for; those of other places are refused by name."""
    plain = dict(options)
    settings: dict[str, Any] = {}
    if "stats_window_size" in plain:
        settings["logging.window"] = plain.pop("stats_window_size")
    known = spec.config.model_fields
    for name, value in options.items():
        if name == "action_noise" and name in known:
            plain[name] = _kind_of_noise(value)
        elif name in known or name not in plain:
            continue
        elif any(
            value is one or (type(value) is type(one) and value == one)
            for one in sb3.WITHOUT_EFFECT.get(name, ())
        ):
            del plain[name]
        else:
            _refuse_elsewhere(name, value, spec)
    if "train_freq" in plain:
        plain["train_freq"] = sb3.train_frequency(plain["train_freq"])
    sb3.check_gradient_steps(plain.get("gradient_steps"))
    for name, value in sb3.from_schedules(plain, spec).items():
        settings[f"algo_kwargs.{name}"] = value
    return settings


def of_changes(config: Overrides | None, keywords: Mapping[str, Any], spec: AlgorithmSpec) -> dict[str, Any]:
    """Return the settings by which a run that goes on is to differ, from ``config`` and from keywords."""
    shared = {name: value for name, value in keywords.items() if name in _CHANGEABLE}
    options = {name: value for name, value in keywords.items() if name not in shared}
    for name in ("seed", "num_envs", "network"):
        if name in options:
            raise ConfigError(f"{name}: cannot change when a run goes on; start a new one for that")
    return {**of_overrides(config), **of_overrides(shared), **of_options(options, spec)}


def of_overrides(given: Overrides | None) -> dict[str, Any]:
    """Return settings by their dotted keys, however they were given; a section's own keys are taken one by one."""
    if given is None:
        return {}
    nested: Mapping[str, Any]
    if isinstance(given, Mapping):
        nested = _expanded(given)  # type: ignore[assignment]
    elif isinstance(given, ExperimentConfig | str | Path) or not all(isinstance(item, str) for item in given):
        raise ConfigError(
            "config: a run has one already; give a mapping of what is to change, or key=value texts"
        )
    else:
        nested = apply_overrides({}, given)
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        inner = value if isinstance(value, Mapping) and (key in _SECTIONS or key == "algo_kwargs") else None
        flat.update(
            {key: value} if inner is None else {f"{key}.{name}": item for name, item in inner.items()}
        )
    return flat


def typed_callable(env_id: str) -> EnvFactory | None:
    """Return the callable that an id names, unless it is one that is registered with Gymnasium."""
    name = env_id.partition(":")[2]
    made: EnvFactory | None = resolve(env_id, "env.id") if name and name not in gym.registry else None
    return made


def count(steps: Any) -> int:
    """Return a number of steps, which may be written as in a config, such as ``"10k"``."""
    try:
        return TypeAdapter(Count).validate_python(steps)
    except ValidationError:
        raise ConfigError(
            f"total_timesteps: {steps!r} is not allowed: should be a whole number of at least 1"
        ) from None


def importable_name(thing: Any) -> str:
    """Return ``module:name`` under which a later process can find a callable again, if it is importable."""
    name = getattr(thing, "__qualname__", type(thing).__qualname__)
    return f"{getattr(thing, '__module__', type(thing).__module__)}:{name}"


def check_network(network: Any) -> None:
    """Refuse what is no callable that makes a network."""
    if isinstance(network, nn.Module):
        raise ConfigError(
            "network: give a callable that makes it, not one that is made already: lambda *shapes: ..."
        )
    if network is not None and not callable(network):
        raise ConfigError(f"network: give a callable that makes it, not {type(network).__name__}")


def _popped(options: dict[str, Any], name: str) -> list[Any]:
    return [options.pop(name)] if name in options else []


def _environment(class_name: str, spec: AlgorithmSpec, given: Sequence[Any], env: Env | None) -> Env | None:
    """Return the environment among the arguments without a name, and look at the name of a policy."""
    policies = [value for value in given if isinstance(value, str) and value in sb3.POLICIES]
    rest = [value for value in given if not (isinstance(value, str) and value in sb3.POLICIES)]
    for policy in policies:
        sb3.check_policy(policy, spec)
    if len(rest) + (env is not None) > 1:
        raise ConfigError(
            f"{class_name}: takes one argument without a name, the environment (the name of a policy before it says "
            "nothing); all others by name: learning_rate=1e-3"
        )
    return rest[0] if rest else env


def _of_network(
    network: Network | None, policy_kwargs: Any, options: dict[str, Any], spec: AlgorithmSpec
) -> tuple[dict[str, Any], NetworkFactory | None]:
    if policy_kwargs is not None:
        if network is not None:
            raise ConfigError("policy_kwargs: give either this or network=")
        network, more = sb3.from_policy_kwargs(policy_kwargs, spec)
        options.update(more)
    if network is None:
        return {}, None
    if isinstance(network, Mapping):
        return {f"network.{name}": value for name, value in network.items()}, None
    check_network(network)
    return {"network.factory": importable_name(network)}, network


def _kind_of_noise(given: Any) -> Any:
    if given is None or isinstance(given, str):
        return given or "none"
    raise ConfigError(
        f"action_noise: 'normal', 'ou' or 'none', not {type(given).__name__}; action_noise_std=0.1 is its size, for "
        "actions from -1 to 1"
    )


def _refuse_elsewhere(name: str, value: Any, spec: AlgorithmSpec) -> None:
    """Say where a keyword that is none of the algorithm belongs, if it is known somewhere else."""
    if name in sb3.INSTEAD:
        raise ConfigError(f"{name}: {sb3.INSTEAD[name]}")
    if name in spec.config.aliases:
        return  # which is said where all unknown keys are
    places, key = _places(name), name
    if not places and not did_you_mean(name, spec.config.model_fields):
        key = next(iter(difflib.get_close_matches(name, _all_keywords(), n=1)), name)
        if key in _KEYWORDS:
            raise ConfigError(f"{name}: unknown keyword; did you mean '{key}'?")
        places = _places(key)
    if places:
        pair = f"{{'{key}': {repr(value) if len(repr(value)) <= 60 else '...'}}}"
        written = [f"config={{'env': {pair}}}" if place == "env" else f"{place}={pair}" for place in places]
        raise ConfigError(f"{name}: is a key of a section of the config: {' or '.join(written)}")


def _places(key: str) -> list[str]:
    """Return the sections that have such a key."""
    return [name for name, section in _SECTIONS.items() if key in section.model_fields]  # type: ignore[attr-defined]


def _all_keywords() -> list[str]:
    """Return every keyword but those of an algorithm, and the keys of sections, which are said to be that."""
    keys = [name for section in _SECTIONS.values() for name in section.model_fields]  # type: ignore[attr-defined]
    return [*_KEYWORDS, *keys]


def _expanded(source: Source) -> Source:
    """Return a mapping whose dotted keys are sections; any other source as it is."""
    if isinstance(source, ExperimentConfig) or not isinstance(source, Mapping):
        return source
    nested: dict[str, Any] = {}
    for key, value in source.items():
        nested = put(nested, str(key), value)
    return nested
