"""A run put together: every live part, built from the config, and its whole state as one tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rl_training.algorithms import catalogue
from rl_training.algorithms.protocol import Algorithm, Experience
from rl_training.algorithms.randomness import seeded
from rl_training.algorithms.spec import OBS_KINDS, AlgorithmSpec, BuildContext, NetworkFactory
from rl_training.config import ExperimentConfig
from rl_training.current_folder import within
from rl_training.envs import EnvFactory, describe_spaces, make_vector_env, resolve
from rl_training.envs.journal import EpisodeSeeds
from rl_training.errors import CheckpointError, ConfigError
from rl_training.observations import ObsSpec
from rl_training.runtime import closing
from rl_training.runtime.allocation import keep_freed_memory
from rl_training.runtime.checkpoint_format import LEFT_OUT
from rl_training.runtime.clock import Clock
from rl_training.runtime.collector import Collector
from rl_training.runtime.evaluator import check_spaces
from rl_training.runtime.metrics import Metrics
from rl_training.runtime.network_memory import within_memory
from rl_training.runtime.policy import Policy, spaces_from_plain, spaces_to_plain
from rl_training.runtime.soundness import check_finite, check_no_more, check_same, sound
from rl_training.runtime.streams import Streams, seed_sequence
from rl_training.runtime.timing import Timer
from rl_training.spaces import ActionSpec


class Run:
    """Everything that changes while training, in one place."""

    def __init__(
        self,
        config: ExperimentConfig[Any],
        *,
        env: EnvFactory | None = None,
        network: NetworkFactory | None = None,
    ) -> None:
        self.config = config
        self.spec = spec = catalogue.find(config.algo)
        self.env_factory = env
        self.clock = Clock(config.total_timesteps)
        self.metrics = Metrics(config.logging.window)
        self.timer = Timer()
        self.streams = Streams(config.seed)
        torch.set_num_threads(config.threads)
        seeds = [EpisodeSeeds(seed_sequence(config.seed, "env", i)) for i in range(config.env.num_envs)]
        envs = make_vector_env(config.env, seeds, env)
        try:
            obs, actions = describe_spaces(envs.single_observation_space, envs.single_action_space)
            check_spaces(envs, config.env, config.evaluation, env)
            self.policy = build_policy(config, spec, obs, actions, self.streams, network)
            context = build_context(config, obs, actions, self.streams, network)
            self.experience: Experience[Any] = spec.build_experience(context)
            self.collector = Collector(envs, actions, seed_sequence(config.seed, "env"), self.timer)
            keep_freed_memory()  # after the replay, which is never freed
        except BaseException:
            closing.close(envs)
            raise

    @property
    def algorithm(self) -> Algorithm[Any]:
        """The learner."""
        return self.policy.algorithm

    def state_dict(self, *, envs_lost: bool = False) -> dict[str, Any]:
        """Return all state, by the sections of a checkpoint; without a replay if the config says so."""
        learner = self.algorithm.state_dict()
        replay = self.config.checkpoint.replay
        return {
            "model": learner["model"],
            "optimizer": learner["optimizer"],
            "replay": self.experience.state_dict() if replay else LEFT_OUT,
            "rng": self.streams.state_dict(),
            "envs": self.collector.state_dict(lost=envs_lost or not replay),
            "loop": {
                "clock": self.clock.state_dict(),
                "metrics": self.metrics.state_dict(),
                "learner": learner["counters"],
            },
            "spaces": spaces_to_plain(self.policy.obs, self.policy.actions),
            "config": self.config.model_dump(mode="json"),
            "time": dict(self.timer.seconds),
        }

    def load_state_dict(self, tree: Mapping[str, Any]) -> str:
        """Take over the state of a checkpoint; return how the environments came back."""
        with sound("checkpoint"):
            saved = spaces_to_plain(*spaces_from_plain(tree["spaces"]))
            own = spaces_to_plain(self.policy.obs, self.policy.actions)
            check_same(saved, own, "checkpoint: spaces: observations and actions")
            load_learner(self.algorithm, tree)
            kept = tree["replay"] != LEFT_OUT
            if kept:
                self.experience.load_state_dict(tree["replay"])
                if not all(map(self.policy.actions.hold, self.experience.actions())):
                    raise CheckpointError("replay: there are actions that the environment does not have")
            self.streams.load_state_dict(tree["rng"])
            self.clock.load_state_dict(tree["loop"]["clock"])
            _check_pace(tree["replay"], self.clock.steps)
            self.metrics.load_state_dict(tree["loop"]["metrics"])
            self.timer.load(tree["time"])
            restored = self.collector.load_state_dict(
                tree["envs"], self.algorithm.exploration_carry(self.config.env.num_envs)
            )
            if kept:
                check_no_more(tree["replay"], self.experience.state_dict(), "replay")
            else:
                self.experience.begin_at(self.clock.steps)
                if restored != "restarted":
                    raise CheckpointError(
                        "envs: episodes go on, but the replay that belongs to them is left out"
                    )
            loop = {"clock": self.clock.state_dict(), "metrics": self.metrics.state_dict()}
            check_no_more(tree["loop"], {**loop, "learner": tree["loop"]["learner"]}, "loop")
        if restored == "restarted":
            self.experience.interrupt()
        return restored

    def close(self) -> None:
        """Close the environments."""
        closing.close(self.collector.envs)


def build_context(
    config: ExperimentConfig[Any],
    obs: ObsSpec,
    actions: ActionSpec,
    streams: Streams,
    network: NetworkFactory | None,
) -> BuildContext:
    """Gather what a spec builds from."""
    if network is None and config.network.factory is not None:
        network = within(resolve(config.network.factory, "network.factory"))
    return BuildContext(config, obs, actions, streams, pick_device(config.device), network)


def build_policy(
    config: ExperimentConfig[Any],
    spec: AlgorithmSpec,
    obs: ObsSpec,
    actions: ActionSpec,
    streams: Streams,
    network: NetworkFactory | None = None,
) -> Policy:
    """Build a learner with freshly initialised weights."""
    if actions.kind not in spec.action_kinds:
        raise ConfigError(_refused_actions(spec, actions))
    if refused := [kind for kind in obs.kinds() if kind not in spec.obs_kinds]:
        raise ConfigError(_refused_observations(spec, obs, refused[0]))
    context = build_context(config, obs, actions, streams, network)
    # torch initialises from its global generator, which is the user's, too.
    with seeded(int(seed_sequence(config.seed, "weights").generate_state(1)[0])), within_memory():
        return Policy(spec.build_learner(context), obs, actions)


def _refused_actions(spec: AlgorithmSpec, actions: ActionSpec) -> str:
    kinds = " or ".join(kind.replace("_", "-") for kind in sorted(spec.action_kinds))
    others = catalogue.takers(actions.kind)
    if actions.kind == "unbounded":
        return f"env: unbounded action space; '{spec.name}' takes {kinds} ones with bounds on both sides; {others}"
    return f"algo: '{spec.name}' takes {kinds} actions, not {actions.kind.replace('_', '-')} ones; {others}"


def _refused_observations(spec: AlgorithmSpec, obs: ObsSpec, kind: str) -> str:
    taken = " or ".join(OBS_KINDS[kind] for kind in sorted(spec.obs_kinds))
    advice = "the wrapper FlattenObservation makes them one vector"
    if spec.obs_kinds == {"image"}:
        advice = (
            "the wrapper rl_training.envs.pixels:PixelObservation makes images of what an environment renders"
        )
    return f"env: '{spec.name}' learns from {taken}, not from {OBS_KINDS[kind]} ({obs.describe()}); {advice}"


def load_learner(algorithm: Algorithm[Any], tree: Mapping[str, Any]) -> None:
    """Give a learner the state that a checkpoint holds of it."""
    state = {"model": tree["model"], "optimizer": tree["optimizer"], "counters": tree["loop"]["learner"]}
    check_finite({name: state[name] for name in ("model", "optimizer")}, "checkpoint")
    _check_moments(state["optimizer"])
    algorithm.load_state_dict(state)
    check_no_more(state, algorithm.state_dict(), "checkpoint")


def _check_moments(optimizer: Mapping[str, Any]) -> None:
    """Refuse numbers of Adam's that no training leads to."""
    for name, value in optimizer.items():
        if isinstance(value, Mapping):
            _check_moments(value)
        elif name in ("exp_avg_sq", "step") and bool((value < 0).any()):
            raise CheckpointError(f"checkpoint: optimizer/{name}: negative")


def _check_pace(replay: Mapping[str, Any], steps: int) -> None:
    """Refuse a replay that would have updates made up for that were never due."""
    if "env_steps" in replay and replay["env_steps"] != steps:
        raise CheckpointError(f"replay: it is at step {replay['env_steps']}, the clock at {steps}")


def pick_device(name: str) -> torch.device:
    """Return the device of that name, ``auto`` being the best there is."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device: '{name}' is not available here; use 'cpu' or 'auto'")
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device: 'mps' is not available here; use 'cpu' or 'auto'")
    return torch.device(name)
