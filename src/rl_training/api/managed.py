"""What every managed class does: it owns environment, run folder, checkpoints and prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

import gymnasium as gym
import torch
from torch import nn

from rl_training.algorithms import catalogue
from rl_training.algorithms.spec import NetworkFactory
from rl_training.api import stable_baselines as sb3
from rl_training.api.arguments import (
    Arguments,
    Env,
    Network,
    Overrides,
    check_network,
    count,
    of_changes,
    of_constructor,
    of_env,
    typed_callable,
)
from rl_training.api.further import Begun, Further, mark
from rl_training.api.instances import spaces_of
from rl_training.api.printing import describe, print_training
from rl_training.api.saving import save_copy
from rl_training.config import ExperimentConfig
from rl_training.envs import EnvFactory
from rl_training.envs.factory import check_id
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.experiment import registry
from rl_training.experiment.configs import Source
from rl_training.experiment.export.writing import Exported, export_policy
from rl_training.runtime.callbacks import CallbackLike, as_callbacks
from rl_training.runtime.checkpoint import Checkpoint, newest_checkpoint
from rl_training.runtime.evaluator import Evaluation
from rl_training.runtime.policy import Policy
from rl_training.runtime.resuming import elsewhere_config
from rl_training.runtime.session import TrainResult
from rl_training.runtime.workflows import (
    checkpoint_config,
    evaluate_policy,
    load_checkpoint,
    load_policy,
    record_policy,
)

A = TypeVar("A", bound="ManagedAlgorithm")
_UNFINISHED = "learn() did not come to its end: agent.resume() goes on with it"
_NOTHING = "this agent has not learned anything yet: call learn() first, or load() a run"


class ManagedAlgorithm:
    """An agent and its run: the base of the classes of all algorithms.

    :param given: The environment, the same as ``env``. It is the only argument without a name.
    :param env: A Gymnasium id, ``module:Id``, ``package.module:factory``, a callable that makes an environment, an
        environment made by ``gymnasium.make``, or the section ``env`` of a config as a dict.
    :param config: A packaged config such as ``"dqn/cartpole"``, the path of a YAML file, a mapping, or what
        ``load_config`` returns. All other arguments override it.
    :param seed: Seed of everything random in the run.
    :param num_envs: Copies of the environment that are stepped together.
    :param total_timesteps: Steps of ``learn()`` if it is not given any.
    :param device: ``"cpu"``, ``"cuda"``, ``"cuda:N"``, ``"mps"`` or ``"auto"``.
    :param threads: CPU threads of torch and of compiled code.
    :param network: The section ``network`` of a config as a dict (``{"hidden_sizes": [64, 64]}``), or a callable from
        ``(obs_shape, num_outputs)`` to a ``torch.nn.Module``.
    :param evaluation: The section ``evaluation`` of a config: ``{"frequency": 5_000}``.
    :param checkpoint: The section ``checkpoint`` of a config.
    :param logging: The section ``logging`` of a config.
    :param run_dir: The run folder; by default a new one below ``runs``.
    :param algo_kwargs: Hyper-parameters of the algorithm: ``learning_rate=1e-3``.
    """

    algo_name: ClassVar[str] = ""

    def __init__(
        self,
        given: Env | None = None,
        /,
        *more: Any,
        env: Env | None = None,
        config: Source | None = None,
        seed: int | None = None,
        num_envs: int | None = None,
        total_timesteps: int | None = None,
        device: str | None = None,
        threads: int | None = None,
        network: Network | None = None,
        evaluation: Mapping[str, Any] | None = None,
        checkpoint: Mapping[str, Any] | None = None,
        logging: Mapping[str, Any] | None = None,
        run_dir: str | Path | None = None,
        **algo_kwargs: Any,
    ) -> None:
        shared: dict[str, Any] = {"seed": seed, "env.num_envs": num_envs, "total_timesteps": total_timesteps}
        shared.update(device=device, threads=threads)
        shared.update(evaluation=evaluation, checkpoint=checkpoint, logging=logging)
        known = of_constructor(
            type(self).__name__,
            catalogue.find(self.algo_name),
            ([] if given is None else [given]) + list(more),
            env=env,
            network=network,
            config=config,
            shared=shared,
            options=algo_kwargs,
        )
        self._clear(known, trust=True)  # what is named is the user's own
        if run_dir is not None and known.root is not None:
            raise ConfigError(
                "tensorboard_log: give either this or run_dir=, which has all that a run writes"
            )
        self._run_dir = None if run_dir is None else Path(run_dir)
        # A mistake in the arguments should show here, not in ``learn``, although the budget may not be known yet.
        checked = known.experiment()
        if known.env is None:
            check_id(checked.env.id)

    def _clear(self, given: Arguments, *, trust: bool) -> None:
        self._given = given
        self._env, self._network, self._trust = given.env, given.network, trust
        self._further = Further()
        self._unfinished = False
        self._checkpoint_path: Path | None = None
        self._mark: tuple[int, int] | None = None
        self._steps = 0
        self._policy: Policy | None = None
        self._config: ExperimentConfig[Any] | None = None
        self.result: TrainResult | None = None

    # Learning

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: CallbackLike = None,
        progress_bar: bool | None = None,
        *,
        schedule_timesteps: int | None = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool | None = None,
    ) -> ManagedAlgorithm:
        """Train for a number of environment steps, and return this agent. Called again, train that much more.

        :param total_timesteps: Steps of this call; by default those of the config.
        :param callback: A ``Callback``, a function of the training, or a list of them.
        :param progress_bar: False prints nothing, neither the bar nor the summary at the end.
        :param schedule_timesteps: Steps over which schedules run, such as epsilon's, counted from the very first step.
            By default that is the length of the first call; after it, schedules keep their final values.
        :param log_interval: Only for scripts of Stable-Baselines3; refused with a hint.
        :param tb_log_name: Name of the folder of a new run.
        :param reset_num_timesteps: Only for scripts of Stable-Baselines3; False changes nothing.
        """
        sb3.check_learn(
            progress_bar, log_interval, again=self._checkpoint_path is not None and reset_num_timesteps
        )
        if self._unfinished:
            raise ConfigError(_UNFINISHED)
        if self._checkpoint_path is None:
            config = self._given.experiment(total_timesteps, schedule_timesteps, checking=False)

            def new_folder(config: ExperimentConfig[Any]) -> Path:
                return self._given.new_path(config, tb_log_name)

            where = {"run_dir": self._run_dir, "new_folder": new_folder}
            return self._train(
                lambda **options: registry.train(config, **where, **options), callback, progress_bar
            )
        assert self._config is not None
        more = self._config.total_timesteps if total_timesteps is None else count(total_timesteps)
        return self.resume(self._steps + more, callback, progress_bar, schedule_timesteps=schedule_timesteps)

    def resume(
        self,
        total_timesteps: int | None = None,
        callback: CallbackLike = None,
        progress_bar: bool | None = None,
        *,
        schedule_timesteps: int | None = None,
        config: Overrides | None = None,
        **algo_kwargs: Any,
    ) -> ManagedAlgorithm:
        """Continue exactly where this agent's checkpoint was made, and return this agent.

        After a ``learn`` that was cut short, that is the newest checkpoint. An agent with an older one continues in
        a run of its own.

        :param total_timesteps: The new total number of steps; by default that of the config.
        :param callback: As in ``learn``.
        :param progress_bar: As in ``learn``.
        :param schedule_timesteps: Steps over which schedules run; ``schedule_timesteps=total_timesteps`` stretches them
            to the new total. By default they stay as they were.
        :param config: Settings to change: a mapping of dotted keys, or ``key=value`` texts.
        :param algo_kwargs: Hyper-parameters to change, as far as a run that continues can change them.
        """
        changes = of_changes(config, algo_kwargs, catalogue.find(self.algo_name))
        given = {"total_timesteps": total_timesteps, "schedule_timesteps": schedule_timesteps}
        changes.update({key: value for key, value in given.items() if value is not None})
        path = self._resume_path()
        further = {**self._further.options(changes), "trust": self._trust}
        return self._train(
            lambda **options: registry.resume(path, **further, **options), callback, progress_bar
        )

    def _train(
        self, work: Callable[..., TrainResult], callback: CallbackLike, progress_bar: bool | None
    ) -> ManagedAlgorithm:
        console = not self._given.quiet if progress_bar is None else progress_bar
        callbacks = [Begun(self._begun), *as_callbacks(callback)]
        try:
            result = work(callback=callbacks, env=self._env, network=self._network, console=console)
        except BaseException:
            # What the run has saved is what the agent knows now; why it ended is told in any case.
            with suppress(RLTrainingError, OSError):
                if self._unfinished and self._run_dir is not None:
                    self._adopt(newest_checkpoint(self._run_dir / "checkpoints")[0])
            raise
        self.result = result
        self._run_dir, self._unfinished = result.run_dir, False
        self._adopt(load_checkpoint(result.checkpoint))
        if console:
            assert self._config is not None
            print_training(type(self).__name__, result, self._config)
        return self

    # Using

    def predict(
        self,
        obs: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
        action_mask: Any = None,
        reward: Any = None,
    ) -> tuple[Any, Any]:
        """Return ``(action, state)`` for one observation or a batch of N.

        :param obs: The observation as the environment returns it; it is normalised inside the agent.
        :param state: For agents with a memory: the state that the last call returned. Without it, an episode begins.
        :param episode_start: Where an episode begins and the memory is reset: a bool, or [N] of them.
        :param deterministic: True chooses the best action, False explores as in training.
        :param action_mask: Which actions are allowed: bools [A], or [N, A] for a batch.
        :param reward: The reward of the last action, for agents that take it as an input.
        """
        return self.policy.predict(obs, state, episode_start, deterministic, action_mask, reward)

    def evaluate(self, episodes: int = 100, *, seed: int | None = None, env: Env | None = None) -> Evaluation:
        """Play evaluation episodes with greedy actions, and return their returns and lengths.

        :param episodes: How many episodes.
        :param seed: Seed of the episodes. By default it is ``evaluation.seed``, so every agent plays the same ones.
        :param env: Another environment than the agent's own.
        """
        policy, (config, factory, trust) = self.policy, self._played(env)
        return evaluate_policy(policy, config, episodes, seed=seed, env=factory, trust=trust)

    def record(self, path: str | Path, episodes: int = 1, *, seed: int | None = None) -> Evaluation:
        """Write a video of the first evaluation episodes, those of ``evaluate``, and return how they went.

        :param path: The file, which ends with ``.mp4``.
        :param episodes: How many episodes are in the video.
        :param seed: As in ``evaluate``.
        """
        policy, (config, factory, trust) = self.policy, self._played(None)
        return record_policy(policy, config, Path(path), episodes, seed=seed, env=factory, trust=trust)

    def _played(self, env: Env | None) -> tuple[ExperimentConfig[Any], EnvFactory | None, bool]:
        """Return the config, the callable and the trust by which evaluation makes its environments."""
        assert self._config is not None
        if env is None:
            return self._config, self._env, self._trust
        settings, factory = of_env(env)
        return elsewhere_config(self._config, settings), factory, True

    # Keeping

    def save(self, path: str | Path, *, replay: bool = True) -> Path:
        """Save the agent with all its state, and return the path. An older save is replaced.

        :param path: A folder, or a single file if it ends with ``.zip``.
        :param replay: False leaves the replay out. The save is then small, and good for everything except continuing
            exactly.
        """
        if self._checkpoint_path is None:
            nothing = "nothing to save: call learn() first, or load() a run"
            raise ConfigError(_UNFINISHED if self._unfinished else nothing)
        self._check_unchanged()
        saved = save_copy(self._checkpoint_path, Path(path), replay=replay)
        self._mark = mark(self._checkpoint_path)  # it may have been saved onto itself
        return saved

    @classmethod
    def load(
        cls: type[A],
        path: str | Path,
        env: Env | None = None,
        *,
        network: NetworkFactory | None = None,
        best: bool = False,
        trust: bool = False,
        run_dir: str | Path | None = None,
        config: Overrides | None = None,
        **algo_kwargs: Any,
    ) -> A:
        """Load an agent from a run folder, from one of its checkpoints, or from what ``save`` wrote.

        ``learn`` and ``resume`` then continue the run, if this is its newest checkpoint, and else begin a new one.

        :param path: The folder or file.
        :param env: Another environment, in which the agent learns and is evaluated from now on.
        :param network: The callable of a custom network that cannot be found by its name.
        :param best: Take the checkpoint with the best evaluation instead of the newest.
        :param trust: Let the agent import and call any environment, wrapper and network that it names. Otherwise these
            have to be registered with Gymnasium or classes of an installed package.
        :param run_dir: Folder of the new run in which the agent continues.
        :param config: Settings to change, as in ``resume``.
        :param algo_kwargs: Hyper-parameters and settings to change, such as ``device="cpu"``.
        """
        check_network(network)
        checkpoint = load_checkpoint(Path(path), best=best)
        algo = checkpoint_config(checkpoint).algo
        if cls.algo_name != algo:
            right = catalogue.find(algo).class_name
            raise CheckpointError(f"{path}: was made by '{algo}', not '{cls.algo_name}'; use {right}.load")
        agent = cls.__new__(cls)
        agent._clear(Arguments({}, {}, None, network), trust=trust)
        is_run = (Path(path) / "checkpoints").is_dir()
        agent._run_dir = Path(path) if is_run else None
        if run_dir is not None and not (is_run and Path(run_dir).resolve() == Path(path).resolve()):
            agent._further.run_dir = Path(run_dir)
        agent._further.overrides = of_changes(config, algo_kwargs, catalogue.find(algo))
        if env is not None:
            agent._take_env(env)
        agent._adopt(checkpoint)
        return agent

    def set_env(self, env: Env) -> None:
        """Learn and evaluate in another environment from now on; the next ``learn`` then begins a run of its own.

        :param env: As in the constructor.
        """
        if self._unfinished:
            raise ConfigError(_UNFINISHED)
        self._take_env(env)
        if self._checkpoint_path is not None:
            self._adopt(load_checkpoint(self._checkpoint_path))

    def _take_env(self, env: Env) -> None:
        settings, self._env = of_env(env)
        if self._env is None and "env.id" in settings:
            check_id(settings["env.id"])
            self._env = typed_callable(settings["env.id"])  # not to be asked for trust later
        if self._checkpoint_path is None and self._given.settings:
            self._given = self._given.with_env(settings)
        else:
            self._further.env_settings = settings

    def export(self, path: str | Path, *, overwrite: bool = False) -> Exported:
        """Write this agent to a file that runs without this package: .onnx, or .safetensors for NumPy alone.

        It is compared with ``predict`` on 1,000 observations of its environment, and not written if they differ.

        :param path: ``policy.onnx`` or ``policy.safetensors``; a card, ``policy.onnx.json``, is written beside it.
        :param overwrite: Replace a file that is there already.
        """
        policy, (config, factory, trust) = self.policy, self._played(None)
        return export_policy(
            policy, config, Path(path), step=self._steps, env=factory, trust=trust, overwrite=overwrite
        )

    # Looking

    @property
    def policy(self) -> Policy:
        """The policy without its run: ``policy.predict(obs)`` does the same as ``predict(obs)``."""
        if self._policy is None:
            raise ConfigError(_UNFINISHED if self._unfinished else _NOTHING)
        return self._policy

    @property
    def network(self) -> nn.ModuleDict:
        """The torch modules by name. They are for reading: changes to them are not saved or used in training."""
        return nn.ModuleDict(self.policy.algorithm.networks)  # type: ignore[attr-defined]

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """Copies of all weights and statistics by name; the names are those in ``model.safetensors``."""
        return {name: tensor.detach().clone() for name, tensor in self.network.state_dict().items()}

    @property
    def num_timesteps(self) -> int:
        """Number of environment steps that this agent has been trained for."""
        return self._steps

    @property
    def run_dir(self) -> Path | None:
        """The run folder, ``None`` before the first ``learn``."""
        return self._run_dir

    @property
    def config(self) -> ExperimentConfig[Any] | None:
        """The complete config of the run, ``None`` before the first ``learn``."""
        return self._config

    @property
    def observation_space(self) -> gym.Space[Any]:
        """Observation space of the environment."""
        return self._ask_env()[0]

    @property
    def action_space(self) -> gym.Space[Any]:
        """Action space of the environment."""
        return self._ask_env()[1]

    def __repr__(self) -> str:
        config = self._config if self._config is not None else self._given.experiment()
        network = None if self._policy is None else self.network
        return describe(type(self).__name__, config, self._steps, network, self._run_dir)

    def __getattr__(self, name: str) -> NoReturn:
        if name in sb3.ELSEWHERE:
            raise sb3.Elsewhere(f"{name}: is not here; {sb3.ELSEWHERE[name]}")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _ask_env(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        config = self._config if self._config is not None else self._given.experiment()
        return spaces_of(config, self._env, trust=self._trust)

    # The run and its checkpoint

    def _begun(self, run_dir: Path) -> None:
        self._run_dir, self._unfinished = run_dir, True
        self._further = Further()  # it is in the config of the run now

    def _resume_path(self) -> Path:
        held, run = self._checkpoint_path, self._run_dir
        if run is None or held is None or self._unfinished:
            path = run if run is not None else held
            if path is None:
                raise ConfigError("nothing to resume: call learn() first, or load() a run")
            self._check_unchanged()
            return path
        return run if newest_checkpoint(run / "checkpoints")[0].path.name == held.name else held

    def _check_unchanged(self) -> None:
        """Refuse to go on from a save that another one has replaced since it was loaded."""
        held = self._checkpoint_path
        if self._run_dir is None and held is not None and mark(held) != self._mark:
            raise ConfigError(f"{held}: is not what was loaded any more; load it again")

    def _adopt(self, checkpoint: Checkpoint) -> None:
        config = self._further.config(checkpoint, self._run_dir, self._env)
        self._policy, self._config = load_policy(checkpoint, self._network, trust=self._trust, config=config)
        self._checkpoint_path, self._steps = checkpoint.path, checkpoint.step
        self._mark = mark(checkpoint.path)
