"""DRQN, declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from rl_training.algorithms.building import (
    BRINGS_ALONG,
    num_actions,
    own_network,
    refuse_network_options,
    weighting,
)
from rl_training.algorithms.declared.value_based import SMALLEST, QLearningConfig
from rl_training.algorithms.options import MemoryOptions
from rl_training.algorithms.spec import EVERY_OBS, AlgorithmSpec, BuildContext, Task
from rl_training.config.schema import Count, CountOrZero, ExperimentConfig, Fraction, parse_number
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.algorithms.drqn import DRQN
    from rl_training.data import SequenceBatch, SequenceExperience

SequenceLength = Annotated[int, BeforeValidator(parse_number), Field(ge=2, le=100_000)]


class DRQNConfig(MemoryOptions, QLearningConfig):
    """Hyper-parameters of DRQN. A batch is made of ``batch_size`` sequences."""

    aliases: ClassVar[dict[str, str]] = {
        "seq_len": "sequence_length",
        "seq_length": "sequence_length",
        "max_seq_len": "sequence_length",
        "unroll_length": "sequence_length",
        "burn_in_length": "burn_in",
        "burnin": "burn_in",
    }
    fixed: ClassVar[tuple[str, ...]] = (
        "sequence_length",
        "sequence_period",
        "burn_in",
        "restart_memory",
        "value_rescaling",
    )

    batch_size: Count = 32
    """Sequences of each update."""
    buffer_size: Count = 100_000
    """Observations that the replay holds, of stacked frames only the newest; an episode of k steps has k + 1."""
    loss: Literal["huber", "mse"] = "huber"
    """Huber loss, which is linear for errors above 1, or squared error."""
    sequence_length: SequenceLength = 20
    """Steps of a sequence, including the burn-in."""
    burn_in: CountOrZero = 0
    """First steps of a sequence that only refresh the memory; sequences that begin an episode need none."""
    sequence_period: Count | None = None
    """Steps from the start of one sequence to the start of the next; ``null`` takes as many as are learned from."""
    restart_memory: bool = False
    """Act with a memory that started empty ``burn_in`` to ``burn_in + sequence_period`` steps ago, as sequences do."""
    priority_eta: Fraction = 0.9
    """Weight of the largest error in the priority of a sequence; the mean error has the rest."""
    value_rescaling: bool = False
    """Learn rescaled values, h(Q), for rewards of very different sizes."""

    @property
    def period(self) -> int:
        """Steps from one sequence to the next."""
        return self.sequence_period or self.sequence_length - self.burn_in

    def stored_memory(self) -> dict[str, Any]:
        """Return what is kept of the memory before each sequence, as ``memory`` does."""
        past = ("action", "reward")
        return {k: v for k, v in self.memory().items() if k in past or not self.restart_memory}

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Refuse sequences of which nothing, or not everything, would be learned."""
        super().check(experiment)
        length, learned = self.sequence_length, self.sequence_length - self.burn_in
        if learned < 1:
            raise ValueError(
                f"algo_kwargs.burn_in: {self.burn_in} is not below algo_kwargs.sequence_length={length}"
            )
        if self.period > learned:
            raise ValueError(
                f"algo_kwargs.sequence_period: {self.period} is more than the {learned} steps learned from a "
                "sequence, so some steps would never be"
            )
        if self.restart_memory and not 1 <= self.burn_in <= self.period:
            raise ValueError(
                f"algo_kwargs.restart_memory: needs a burn-in from 1 to the {self.period} steps between sequences "
                f"(algo_kwargs.sequence_period), got algo_kwargs.burn_in={self.burn_in}"
            )
        if self.restart_memory and self.period != learned:
            raise ValueError(
                f"algo_kwargs.sequence_period: with algo_kwargs.restart_memory, each step is learned from once, so "
                f"null or {learned} (sequence_length - burn_in), not {self.period}"
            )
        if self.n_step_return > length:
            raise ValueError(
                f"algo_kwargs.n_step_return: {self.n_step_return} is more than the {length} steps of a sequence "
                "(algo_kwargs.sequence_length), with which returns end"
            )
        share = self.buffer_size // experiment.env.num_envs
        if share <= length:
            raise ValueError(
                f"algo_kwargs.buffer_size: {self.buffer_size} leaves each of {experiment.env.num_envs} environments "
                f"{share} observations, too few for algo_kwargs.sequence_length={length}"
            )


def build_learner(context: BuildContext) -> DRQN:
    """Build the learner, which is that of R2D2, too; an own network takes the place of the encoder."""
    from rl_training.algorithms.drqn import DRQN
    from rl_training.models.noisy import noisy_layers
    from rl_training.models.recurrent.lstm_q_network import LSTMQNetwork

    options: DRQNConfig = context.options
    shape = context.config.network
    encoder, features = None, shape.hidden_sizes[-1] if shape.hidden_sizes else 0
    if context.network is not None:
        if not features:
            raise ConfigError(
                "network.hidden_sizes: should not be empty; the last one is the number of features of a custom encoder"
            )
        refuse_network_options(context, f"belongs to the packaged encoder; {BRINGS_ALONG}")
        axes = ("observations", "features: the last of network.hidden_sizes")
        encoder = own_network(context, (features,), axes=axes)
        if noisy_layers(encoder):
            raise ConfigError(
                f"network: {context.config.algo} explores by epsilon; it cannot use noisy layers"
            )
    network = LSTMQNetwork(
        context.obs,
        num_actions(context),
        shape.hidden_sizes,
        core=options.core,
        core_size=options.core_size,
        core_layers=options.core_layers,
        activation=shape.activation,
        dueling=options.dueling,
        normalize_obs=shape.normalize_obs,
        cnn=shape.cnn,
        layer_norm=shape.layer_norm,
        prev_action=options.prev_action,
        prev_reward=options.prev_reward,
        encoder=encoder,
        encoder_size=features,
    )
    return DRQN(network, num_actions(context), options, **context.for_learner())


def build_experience(context: BuildContext) -> SequenceExperience[SequenceBatch]:
    """Build replay of sequences, uniform or prioritized, with the cadence of the config."""
    from rl_training.data import RecurrentReplayBuffer, SequenceExperience

    options: DRQNConfig = context.options
    chunks: dict[str, Any] = {
        "obs_dtype": context.obs.dtype,
        "stack": context.obs.stack,
        "action_shape": context.actions.shape,
        "action_dtype": context.actions.dtype,
        "length": options.sequence_length,
        "period": options.period,
        "state": options.stored_memory(),
        "num_envs": context.config.env.num_envs,
        "n_step": options.n_step_return,
        "gamma": options.gamma,
        "rng": context.stream("sampling"),
        "device": context.device,
    }
    if not options.prioritized:
        buffer = RecurrentReplayBuffer(options.buffer_size, context.obs.shape, **chunks)
        return SequenceExperience(buffer, **options.cadence())
    from rl_training.data import PrioritizedRecurrentReplayBuffer, PrioritizedSequenceExperience

    prioritized = PrioritizedRecurrentReplayBuffer(
        options.buffer_size, context.obs.shape, **chunks, alpha=options.alpha, eps=options.priority_eps
    )
    return PrioritizedSequenceExperience(prioritized, **options.cadence(), **weighting(context))


SPEC = AlgorithmSpec(
    name="drqn",
    class_name="DRQN",
    title="DRQN",
    summary="DQN with a memory (LSTM or GRU), trained on sequences",
    paper="Hausknecht & Stone 2015, Deep recurrent Q-learning for partially observable MDPs",
    url="https://arxiv.org/abs/1507.06527",
    config=DRQNConfig,
    learner="rl_training.algorithms.drqn:DRQN",
    build_learner=build_learner,
    build_experience=build_experience,
    obs_kinds=EVERY_OBS,
    smallest={
        **SMALLEST,
        "algo_kwargs": {**SMALLEST["algo_kwargs"], "sequence_length": 9, "core_size": 8},
    },
    classic=Task("CartPole-v1", 50_000),
)
