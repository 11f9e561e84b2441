"""From an env config to environments: ids, factories, wrappers, seeds, and which way they are vectorised."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import find_highest_version

from rl_training.config import EnvConfig
from rl_training.current_folder import on_path, within
from rl_training.envs import atari, dm_control
from rl_training.envs.closing import close_all
from rl_training.envs.extras import import_by_prefix, named_by
from rl_training.envs.headless import prepare
from rl_training.envs.journal import EpisodeSeeds, JournaledEnv
from rl_training.envs.spaces import describe_spaces, require_known_stack
from rl_training.envs.subprocess import SubprocessVectorEnv
from rl_training.envs.sync import SyncVectorEnv
from rl_training.errors import ConfigError, EnvError, RLTrainingError, did_you_mean, is_users_interrupt

EnvFactory = Callable[..., gym.Env[Any, Any]]
VectorEnv = gym.vector.VectorEnv[Any, Any, Any]


def resolve(path: str, key: str) -> Any:
    """Import what ``package.module:name`` names; ``key`` is the config key for the error.

    The standard library is refused, and so are modules as attributes of modules: a config should name environments and
    networks, neither ``os:system`` nor ``torch:os.system``.
    """
    module_name, _, attribute = path.partition(":")
    _refuse_standard_library(module_name, path, key)
    try:
        with on_path():
            target: Any = importlib.import_module(module_name)
            for part in attribute.split("."):
                target = getattr(target, part)
                if isinstance(target, types.ModuleType):
                    raise ConfigError(f"{key}: '{path}': '{part}' is a module of its own, so name that one")
    except ConfigError:
        raise
    except AttributeError:
        hint = did_you_mean(attribute, dir(target))
        if module_name == "__main__" or "<" in attribute:
            hint = "; what a script defines is not found again: put it into a module, or give it to load()"
        raise ConfigError(f"{key}: module '{module_name}' has no '{attribute}'{hint}") from None
    except Exception as error:  # whatever a module does when it is imported
        raise ConfigError(f"{key}: '{path}': {type(error).__name__}: {error}") from error
    if inspect.isclass(target) or inspect.isroutine(target):
        _refuse_standard_library(getattr(target, "__module__", None) or "", path, key)
    return target


def _refuse_standard_library(module: str, path: str, key: str) -> None:
    if module != "__main__" and module.partition(".")[0] in sys.stdlib_module_names:
        raise ConfigError(f"{key}: '{path}' is part of Python's standard library, which cannot be used here")


def make_env(config: EnvConfig, factory: EnvFactory | None = None) -> gym.Env[Any, Any]:
    """Make one bare environment: the factory or id of the config, with its wrappers."""
    kwargs: dict[str, Any] = dict(config.kwargs)
    if kwargs.get("render_mode") is not None:
        prepare()
    make = factory or _maker(config.id)
    try:
        with warnings.catch_warnings():
            # Gymnasium warns of a render mode that there is not before the environment refuses it.
            warnings.filterwarnings("ignore", message=".*render_mode")
            made: Any = make(**kwargs)
    except RLTrainingError:
        raise
    except BaseException as error:
        if is_users_interrupt(error):
            raise
        raise _refused(config.id, error, kwargs) from error
    if not isinstance(made, gym.Env):
        old = "; derive it from gymnasium.Env" if hasattr(made, "step") and hasattr(made, "reset") else ""
        raise ConfigError(f"env.id: '{config.id}' gave {type(made).__name__}, not a gymnasium.Env{old}")
    env: gym.Env[Any, Any] = made
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), gym.Space):
            raise ConfigError(f"env.id: '{config.id}' has no {name}")
    for index, wrapper in enumerate(config.wrappers):
        key = f"env.wrappers.{index}"
        wrap = _wrapper(wrapper.id, key)
        options: dict[str, Any] = dict(wrapper.kwargs)
        if ":" not in wrapper.id:  # those of Gymnasium want tuples, which YAML does not have
            options = {name: tuple(v) if isinstance(v, list) else v for name, v in options.items()}
        try:
            env = wrap(env, **options)
        except BaseException as error:
            if is_users_interrupt(error):
                raise
            if (needed := named_by(key, wrapper.id, error)) is not None:
                raise needed from None
            raise ConfigError(f"{key}: {wrapper.id}: {' '.join(str(error).split())}") from error
    return env


def make_vector_env(
    config: EnvConfig, seeds: Sequence[EpisodeSeeds], factory: EnvFactory | None = None
) -> VectorEnv:
    """Make ``len(seeds)`` copies, each with its own stream of episode seeds."""
    if atari.serves(config):
        return atari.make(config, seeds)
    if config.vectorization == "native":
        return _native(config, len(seeds))
    probe = make_env(config, factory)  # a mistake in the config shows here, not in a worker
    require_known_stack(probe)
    describe_spaces(probe.observation_space, probe.action_space)
    close_all([probe])
    fns = [functools.partial(_journaled, config, stream, factory) for stream in seeds]
    if config.vectorization == "subprocess":
        return SubprocessVectorEnv(
            fns,
            step_timeout=config.step_timeout,
            reset_timeout=config.reset_timeout,
            restarts=config.worker_restarts,
        )
    return SyncVectorEnv(fns)


def rendering(config: EnvConfig, factory: EnvFactory | None = None) -> EnvConfig:
    """Return the config of the same environments when they render images, or refuse those that do not.

    What takes no ``render_mode`` may still render images by itself.
    """
    kwargs = dict(config.kwargs)
    if _takes(factory or _maker(config.id), "render_mode"):
        kwargs["render_mode"] = "rgb_array"
    drawn = config.model_copy(update={"kwargs": kwargs})
    try:
        env = make_env(drawn, factory)
    except CannotRender as error:
        raise _not_drawn(config.id) from error
    mode = env.render_mode
    close_all([env])
    if mode != "rgb_array":
        raise _not_drawn(config.id)
    return drawn


def _takes(make: EnvFactory, name: str) -> bool:
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):  # a callable that does not tell
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


class CannotRender(ConfigError):
    """An environment knows no render modes."""

    def __init__(self, env_id: str) -> None:
        super().__init__(f"env: '{env_id}' cannot render images: it takes no render_mode")


def _not_drawn(env_id: str) -> ConfigError:
    return ConfigError(f"env: '{env_id}' cannot be filmed: it has no render_mode 'rgb_array'")


def _journaled(config: EnvConfig, seeds: EpisodeSeeds, factory: EnvFactory | None) -> gym.Env[Any, Any]:
    return JournaledEnv(make_env(config, factory), seeds)


def _native(config: EnvConfig, count: int) -> VectorEnv:
    if config.wrappers:
        raise ConfigError(
            "env.wrappers: wrappers of single environments do not go with vectorization 'native'"
        )
    import_by_prefix(config.id)
    kwargs: dict[str, Any] = dict(config.kwargs)
    try:
        return gym.make_vec(config.id, count, vectorization_mode="vector_entry_point", **kwargs)
    except Exception as error:
        raise _refused(config.id, error, kwargs) from error


def check_id(env_id: str) -> None:
    """Refuse an id that nothing is registered under, or a name that leads nowhere, without making an environment."""
    _maker(env_id)
    _, colon, name = env_id.rpartition(":")
    if name in gym.registry or colon:
        return
    try:
        gym.spec(env_id)
    except gym.error.Error as error:
        namespace, _, bare = env_id.rpartition("/")
        if (
            find_highest_version(namespace or None, bare) is None
        ):  # of a name alone, the newest version is meant
            raise _refused(env_id, error, {}) from error


def _maker(env_id: str) -> EnvFactory:
    module, colon, name = env_id.partition(":")
    if colon:
        # Gymnasium's own "module:Id" names a registered id; anything else after the colon is a callable.
        _refuse_standard_library(module, env_id, "env.id")
        try:
            with on_path():
                importlib.import_module(module)
        except Exception as error:
            raise ConfigError(f"env.id: '{env_id}': {type(error).__name__}: {error}") from error
        if name not in gym.registry:
            return within(resolve(env_id, "env.id"))
        env_id = name
    elif env_id.startswith(dm_control.PREFIX):
        dm_control.load(env_id)
        return functools.partial(dm_control.make, _lean(env_id))
    else:
        import_by_prefix(env_id)
    return functools.partial(gym.make, _lean(env_id), disable_env_checker=True)


def _lean(env_id: str) -> gym.envs.registration.EnvSpec | str:
    """Return the spec of an id without the wrapper that asks at every step whether there was a reset.

    Ours resets by itself. Of an id that is unknown or has a newer version, Gymnasium has something to say first. The
    versions of MinAtar's games differ in their actions only, none of them is newer.
    """
    spec = gym.registry.get(env_id)
    if spec is None:
        return env_id
    if spec.namespace != "MinAtar" and spec.version != find_highest_version(spec.namespace, spec.name):
        return env_id
    return dataclasses.replace(spec, order_enforce=False)


def _wrapper(name: str, key: str) -> Any:
    if ":" in name:
        return within(resolve(name, key))
    found = getattr(gym.wrappers, name) if name in gym.wrappers.__all__ else None
    if not isinstance(found, type):
        raise ConfigError(
            f"{key}: gymnasium.wrappers has no '{name}'" + did_you_mean(name, gym.wrappers.__all__)
        )
    return found


def _refused(env_id: str, error: BaseException, kwargs: dict[str, Any]) -> RLTrainingError:
    reason = " ".join(str(error).split())
    if isinstance(error, (gym.error.NameNotFound, gym.error.VersionNotFound, gym.error.NamespaceNotFound)):
        return ConfigError(f"env.id: '{env_id}' is not registered" + did_you_mean(env_id, gym.registry))
    if "keyword argument 'render_mode'" in reason:
        return CannotRender(env_id)
    if (needed := named_by("env.id", env_id, error)) is not None:
        return needed
    unknown = re.search(r"unexpected keyword argument '(\w+)'", reason)
    if unknown is not None and unknown.group(1) in kwargs:
        where = (
            "; options of ALE's vector environment need env.vectorization=native"
            if env_id[:4] == "ALE/"
            else ""
        )
        return ConfigError(f"env.kwargs.{unknown.group(1)}: '{env_id}' takes no such argument{where}")
    by_kwargs = isinstance(error, ValueError) and kwargs
    if by_kwargs or isinstance(error, (gym.error.Error, TypeError, ImportError)):
        return ConfigError(f"env: '{env_id}' cannot be made: {reason}")
    return EnvError(f"env: '{env_id}' cannot be made: {type(error).__name__}: {reason}")
