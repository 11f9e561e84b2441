"""What every managed class does: it owns environment, run folder, checkpoints and prediction."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import gymnasium as gym
from pydantic import TypeAdapter, ValidationError

from rl_training.algorithms.spec import NetworkFactory
from rl_training.config import ExperimentConfig
from rl_training.config.schema import Count
from rl_training.envs import EnvFactory
from rl_training.errors import CheckpointError, ConfigError, StorageError
from rl_training.experiment import registry
from rl_training.experiment.configs import Source, check_source, load_config, read_source
from rl_training.runtime.callbacks import Callback, CallbackLike, as_callbacks
from rl_training.runtime.checkpoint import Checkpoint, newest_checkpoint
from rl_training.runtime.evaluator import Evaluation
from rl_training.runtime.policy import Policy
from rl_training.runtime.session import Session, TrainResult
from rl_training.runtime.workflows import evaluate_policy, load_checkpoint, load_policy, record_policy

A = TypeVar("A", bound="ManagedAlgorithm")
_UNFINISHED = "learn() did not come to its end: agent.resume() goes on with it"


class ManagedAlgorithm:
    """An agent and its run.

    ``env`` is a Gymnasium id, ``module:Id``, ``package.module:factory``, or a callable that makes an
    environment. ``network`` is a callable from ``(obs_shape, num_outputs)`` to a ``torch.nn.Module``. Further
    keywords are the algorithm's hyper-parameters (``learning_rate=1e-3``); anything else of an experiment goes
    into ``config``: a packaged name, a path, a mapping or what ``load_config`` returns, which the keywords override.
    """

    algo_name: ClassVar[str] = ""

    def __init__(
        self,
        env: str | EnvFactory | None = None,
        *more: Any,
        config: Source | None = None,
        seed: int | None = None,
        num_envs: int | None = None,
        device: str | None = None,
        network: NetworkFactory | None = None,
        run_dir: str | Path | None = None,
        **algo_kwargs: Any,
    ) -> None:
        if more:
            raise ConfigError(
                f"{type(self).__name__}: takes one argument without a name, the environment; there is no policy to "
                'name: config={"network": {"hidden_sizes": [...]}} or network= shape the network'
            )
        _check_factory("env", env, text_too=True)
        _check_factory("network", network)
        self._settings: dict[str, Any] = {"algo": self.algo_name}
        if env is not None:
            self._settings["env.id"] = env if isinstance(env, str) else _importable_name(env)
        elif config is None:
            raise ConfigError("env: give an environment, or a config that names one")
        optional = {"seed": seed, "env.num_envs": num_envs, "device": device}
        self._settings.update({key: value for key, value in optional.items() if value is not None})
        if network is not None:
            self._settings["network.factory"] = _importable_name(network)
        self._settings.update({f"algo_kwargs.{name}": value for name, value in algo_kwargs.items()})
        self._source = config if config is not None else {}
        given = read_source(self._source).get("algo", self.algo_name)
        if given != self.algo_name:
            raise ConfigError(f"config: is one of '{given}', not of '{self.algo_name}'")
        self._env = None if isinstance(env, str) else env
        self._network = network
        self._trust = True  # what is named is the user's own
        self._run_dir = Path(run_dir) if run_dir is not None else None
        self._checkpoint_path: Path | None = None
        self._policy: Policy | None = None
        self._config: ExperimentConfig[Any] | None = None
        self._unfinished = False
        self.result: TrainResult | None = None
        # A mistake in the arguments should show here, not in ``learn``, although the budget may not be known yet.
        self._experiment(None, checking=True)

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: CallbackLike = None,
        progress_bar: bool = True,
        *,
        schedule_timesteps: int | None = None,
    ) -> ManagedAlgorithm:
        """Train for ``total_timesteps`` env steps (default: the config's); called again, train that much more.

        Schedules, such as epsilon's, run over the steps of the first call, and then keep their final values;
        ``schedule_timesteps`` is another number of steps for them, counted from the first step of all.
        """
        if self._unfinished:
            raise ConfigError(_UNFINISHED)
        if self._checkpoint_path is None:
            config = self._experiment(total_timesteps, schedule_timesteps)
            result = registry.train(config, run_dir=self._run_dir, **self._options(callback, progress_bar))
            return self._trained(result)
        assert self._config is not None
        done = load_checkpoint(self._checkpoint_path).step
        more = self._config.total_timesteps if total_timesteps is None else _count(total_timesteps)
        return self.resume(done + more, callback, progress_bar, schedule_timesteps=schedule_timesteps)

    def resume(
        self,
        total_timesteps: int | None = None,
        callback: CallbackLike = None,
        progress_bar: bool = True,
        *,
        schedule_timesteps: int | None = None,
    ) -> ManagedAlgorithm:
        """Go on exactly where this agent's checkpoint was made, up to ``total_timesteps`` in all if given.

        After a ``learn`` that was cut short that is the newest one; one that is older becomes a run of its own.
        Schedules stay as they were; ``schedule_timesteps=total_timesteps`` stretches them to the new budget.
        """
        given = {"total_timesteps": total_timesteps, "schedule_timesteps": schedule_timesteps}
        overrides = [f"{key}={value}" for key, value in given.items() if value is not None]
        options = self._options(callback, progress_bar)
        path = self._resume_path()
        return self._trained(registry.resume(path, overrides=overrides, trust=self._trust, **options))

    def predict(
        self,
        obs: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_mask: Any = None,
        reward: Any = None,
    ) -> tuple[Any, Any]:
        """Return ``(action, state)`` for one raw observation or a batch.

        Agents with a memory need ``state``, the memory returned by the last call (none: episodes begin), and
        ``episode_start``, true where it is to be forgotten. ``action_mask`` [A], or [N, A] for a batch, is true where
        an action is allowed. ``reward`` is what the last action brought, for agents that take it as an input.
        """
        policy = self._trained_policy
        return policy.predict(obs, state, episode_start, deterministic, action_mask, reward)

    def evaluate(self, episodes: int = 100, *, seed: int | None = None) -> Evaluation:
        """Play evaluation episodes greedily, the same ones for every agent unless ``seed`` is given."""
        policy = self._trained_policy
        assert self._config is not None
        return evaluate_policy(policy, self._config, episodes, seed=seed, env=self._env, trust=self._trust)

    def record(self, path: str | Path, episodes: int = 1, *, seed: int | None = None) -> Evaluation:
        """Write an MP4 video of the first evaluation episodes, those of ``evaluate``, and return how they went."""
        policy = self._trained_policy
        assert self._config is not None
        return record_policy(
            policy, self._config, Path(path), episodes, seed=seed, env=self._env, trust=self._trust
        )

    def save(self, path: str | Path) -> Path:
        """Copy the newest checkpoint, which holds all state, to a new folder ``path``."""
        if self._checkpoint_path is None:
            raise ConfigError(
                _UNFINISHED if self._unfinished else "nothing to save: call learn() first, or load() a run"
            )
        target = Path(path)
        partial = target.with_name(f".{target.name}.partial")
        try:
            if target.exists():
                raise ConfigError(f"{target}: exists already; checkpoints are never overwritten")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(partial, ignore_errors=True)  # what a killed save left
            shutil.copytree(self._checkpoint_path, partial)
            partial.rename(target)
        except OSError as error:
            reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
            raise StorageError(f"{target}: not saved: {reason}") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return target

    @classmethod
    def load(
        cls: type[A],
        path: str | Path,
        *,
        env: EnvFactory | None = None,
        network: NetworkFactory | None = None,
        best: bool = False,
        trust: bool = False,
    ) -> A:
        """Load an agent from a run folder (its newest or ``best`` checkpoint) or from one checkpoint.

        What it names as environment, wrappers and network has to be registered with Gymnasium or a class of an
        installed package; ``trust=True`` lets it import and call anything.
        """
        _check_factory("env", env)
        _check_factory("network", network)
        checkpoint = load_checkpoint(Path(path), best=best)
        agent = cls.__new__(cls)
        agent._env, agent._network, agent.result = env, network, None
        agent._source, agent._settings, agent._unfinished, agent._trust = {}, {}, False, trust
        is_run = (Path(path) / "checkpoints").is_dir()
        agent._run_dir = Path(path) if is_run else None
        agent._adopt(checkpoint)
        assert agent._config is not None
        if cls.algo_name != agent._config.algo:
            raise CheckpointError(f"{path}: was made by '{agent._config.algo}', not '{cls.algo_name}'")
        return agent

    @property
    def run_dir(self) -> Path | None:
        """The run folder, once there is one."""
        return self._run_dir

    @property
    def config(self) -> ExperimentConfig[Any] | None:
        """The resolved config of the run, once there is one."""
        return self._config

    @property
    def _trained_policy(self) -> Policy:
        if self._policy is None:
            nothing = "this agent has not learned anything yet: call learn() first, or load() a run"
            raise ConfigError(_UNFINISHED if self._unfinished else nothing)
        return self._policy

    def _experiment(
        self, total_timesteps: int | None, schedule_timesteps: int | None = None, *, checking: bool = False
    ) -> ExperimentConfig[Any]:
        settings = dict(self._settings)
        if total_timesteps is not None:
            settings["total_timesteps"] = total_timesteps
        if schedule_timesteps is not None:
            settings["schedule_timesteps"] = schedule_timesteps
        data = read_source(self._source, settings)
        if checking and "total_timesteps" not in data:
            num_envs = data.get("env", {}).get("num_envs", 1)
            data["total_timesteps"] = 2**40 * (num_envs if isinstance(num_envs, int) else 1)
        config = load_config(data)
        check_source(self._source, config)
        return config

    def _options(self, callback: CallbackLike, console: bool) -> dict[str, Any]:
        callbacks = [_Begun(self), *as_callbacks(callback)]
        return {"callback": callbacks, "env": self._env, "network": self._network, "console": console}

    def _begun(self, run_dir: Path) -> None:
        self._run_dir, self._unfinished = run_dir, True

    def _resume_path(self) -> Path:
        held, run = self._checkpoint_path, self._run_dir
        if run is None or held is None or self._unfinished:
            path = run if run is not None else held
            if path is None:
                raise ConfigError("nothing to resume: call learn() first, or load() a run")
            return path
        return run if newest_checkpoint(run / "checkpoints")[0].path.name == held.name else held

    def _trained(self, result: TrainResult) -> ManagedAlgorithm:
        self.result = result
        self._run_dir, self._unfinished = result.run_dir, False
        self._adopt(load_checkpoint(result.checkpoint))
        return self

    def _adopt(self, checkpoint: Checkpoint) -> None:
        self._policy, self._config = load_policy(checkpoint, self._network, trust=self._trust)
        self._checkpoint_path = checkpoint.path


class _Begun(Callback):
    """Tells the agent of its run when that begins, since one that is cut short returns nothing."""

    def __init__(self, agent: ManagedAlgorithm) -> None:
        self._agent = agent

    def on_start(self, training: Session) -> None:
        self._agent._begun(training.folder.path)


def _check_factory(key: str, given: Any, *, text_too: bool = False) -> None:
    if given is None or (text_too and isinstance(given, str)):
        return
    wanted = "an id or a callable" if text_too else "a callable"
    if isinstance(given, gym.Env | gym.vector.VectorEnv):
        raise ConfigError(f"{key}: give {wanted} that makes environments, not one that is made already")
    if not callable(given):
        raise ConfigError(f"{key}: give {wanted} that makes it, not {type(given).__name__}")


def _importable_name(thing: Any) -> str:
    """Return ``module:name`` under which a later process can find a callable again, if it is importable."""
    name = getattr(thing, "__qualname__", type(thing).__qualname__)
    return f"{getattr(thing, '__module__', type(thing).__module__)}:{name}"


def _count(steps: Any) -> int:
    """Return a number of steps, which may be written as in a config, such as ``"10k"``."""
    try:
        return TypeAdapter(Count).validate_python(steps)
    except ValidationError:
        raise ConfigError(
            f"total_timesteps: {steps!r} is not allowed: should be a whole number of at least 1"
        ) from None
