"""The parts of an experiment config that every algorithm shares: typed, frozen, unknown keys refused."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

from rl_training.config.wrappers import check_wrappers

_SUFFIXES = {"k": 1_000, "m": 1_000_000, "b": 1_000_000_000}
_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?([kmb])?", re.IGNORECASE)


def parse_number(value: Any) -> Any:
    """Turn ``"1M"``, ``"3e-4"`` and ``"1_000"`` into numbers, and ``1e6`` into a whole one.

    Every numeric field goes through this. Booleans and numbers that are not finite are refused.
    """
    if isinstance(value, bool):
        raise ValueError("should be a number, not true or false")
    if isinstance(value, str):
        text = value.strip()
        match = _NUMBER.fullmatch(text)
        if match is None:
            raise ValueError("should be a number, such as 1000, 1e6, 1M or 3e-4")
        suffix = match.group(3)
        digits = text[: -len(suffix)] if suffix else text
        value = float(digits) * (_SUFFIXES[suffix.lower()] if suffix else 1)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("should be a finite number")
        return int(value) if value.is_integer() else value
    return value


def parse_auto_or_number(value: Any) -> Any:
    """Leave ``"auto"`` as it is, and turn everything else into a number."""
    if value == "auto":
        return value
    try:
        return float(parse_number(value))
    except (TypeError, ValueError):
        raise ValueError("should be auto or a number") from None


def alternatives(pattern: str) -> list[str]:
    """Return the words that a pattern such as ``^(cpu|cuda(:\\d+)?)$`` allows."""
    return [word.replace(r"(:\d+)?", "[:N]") for word in pattern.strip("^$")[1:-1].split("|")]


AutoOrNumber = Annotated[float | Literal["auto"], BeforeValidator(parse_auto_or_number)]
Int = Annotated[int, BeforeValidator(parse_number)]
Float = Annotated[float, BeforeValidator(parse_number)]
Count = Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=2**53)]
"""A positive whole number."""
CountOrZero = Annotated[int, BeforeValidator(parse_number), Field(ge=0, le=2**53)]
Fraction = Annotated[float, BeforeValidator(parse_number), Field(ge=0.0, le=1.0)]
PositiveFloat = Annotated[float, BeforeValidator(parse_number), Field(gt=0.0)]


def _savable(value: Any) -> Any:
    """Refuse numbers that a checkpoint, which carries the config, could not hold."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("should hold finite numbers only")
    if isinstance(value, int) and abs(value) >= 2**64:
        raise ValueError("should hold whole numbers of at most 64 bits")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _savable(item)
    return value


Kwargs = Annotated[dict[str, JsonValue], AfterValidator(_savable)]


class Model(BaseModel):
    """A frozen section of the config that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class WrapperConfig(Model):
    """One wrapper around each environment, applied in the order listed."""

    id: str
    """A class of ``gymnasium.wrappers`` by name, or ``package.module:Class``."""
    kwargs: Kwargs = {}

    @model_validator(mode="before")
    @classmethod
    def _accept_a_bare_name(cls, value: Any) -> Any:
        return {"id": value} if isinstance(value, str) else value


class EnvConfig(Model):
    """Which environment, how many copies, and how they run."""

    id: Annotated[str, Field(min_length=1)]
    """A Gymnasium id, ``module:Id``, or ``package.module:factory``."""
    kwargs: Kwargs = {}
    """Passed to ``gymnasium.make`` or to the factory."""
    wrappers: tuple[WrapperConfig, ...] = ()
    """Wrappers around each environment, applied in the order listed. Each is a name or ``{id: NAME, kwargs: {...}}``,
    where NAME is a class of ``gymnasium.wrappers`` or ``package.module:Class``."""
    num_envs: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=4096)] = 1
    """Copies of the environment that are stepped together."""
    vectorization: Literal["sync", "subprocess", "native"] = "sync"
    """How the copies run: one after the other in this process, each in a process of its own, or by the vector
    environment that the id itself registers (``native``)."""
    step_timeout: PositiveFloat = 60.0
    """Seconds after which a subprocess environment counts as hung."""
    reset_timeout: PositiveFloat = 300.0
    """The same for a reset."""
    worker_restarts: CountOrZero = 10
    """How many subprocess environments that crashed or hung are replaced in one session of a run, from its start or
    resume on. Each costs the episode that was lost; the next one ends the run, as any does with 0."""


class NetworkConfig(Model):
    """The network between observation and head."""

    hidden_sizes: Annotated[tuple[Count, ...], Field(max_length=32)] = (256, 256)
    """Units of each hidden layer."""
    critic_hidden_sizes: Annotated[tuple[Count, ...], Field(max_length=32)] | None = None
    """The same for the critics, if they differ; only for the actor-critics with replay."""
    activation: Literal["relu", "tanh", "elu", "gelu", "silu"] = "relu"
    """Activation function of the hidden layers."""
    normalize_obs: bool = False
    """Standardise observations by running statistics, which are saved with the model."""
    cnn: Literal["auto", "nature", "small", "impala"] = "auto"
    """Convolutional network for images, in front of ``hidden_sizes``. ``auto`` takes the Nature CNN from 36 x 36 pixels
    on, and a small one below."""
    layer_norm: bool = False
    """Apply layer normalisation before the activation of each hidden layer (Ba et al. 2016)."""
    factory: str | None = None
    """A custom network: ``package.module:callable``, called with ``obs_shape`` and ``num_outputs``. For ``Dict`` and
    ``Tuple`` observations, it is called with an ``ObsSpec`` instead of a shape."""


class EvaluationEnvConfig(Model):
    """How the environments of evaluation differ, such as real scores where training clips rewards.

    Their spaces have to be those of the training environments.
    """

    kwargs: Kwargs = {}
    """Merged over ``env.kwargs``: a key given here wins, all others stay as they are."""
    wrappers: tuple[WrapperConfig, ...] | None = None
    """Replaces ``env.wrappers`` if given; an empty list means no wrappers."""


class EvaluationConfig(Model):
    """Greedy evaluation, on environments and random numbers of its own; it has no effect on training."""

    frequency: CountOrZero = 10_000
    """Env steps between evaluations; 0 turns them off."""
    episodes: Count = 10
    """Episodes of each evaluation during training."""
    final_episodes: CountOrZero = 100
    """Episodes of the evaluation at the end of a run; 0 skips it."""
    num_envs: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=256)] = 10
    """Environments that evaluation steps together."""
    seed: CountOrZero = 0
    """Seed of the evaluation episodes, which are therefore the same for every run."""
    env: EvaluationEnvConfig = EvaluationEnvConfig()
    stop_at: Float | None = None
    """End training when the mean evaluation return reaches this value."""


class CheckpointConfig(Model):
    """When checkpoints are saved, and how many are kept."""

    frequency: CountOrZero = 10_000
    """Env steps between checkpoints; 0 saves only at the end of the run and on a signal."""
    keep: Count = 2
    """How many of the newest checkpoints are kept; the best one is kept as well."""
    replay: bool = True
    """Also save the replay, or the unfinished rollout. Without it checkpoints are small; a resumed run begins new
    episodes with an empty replay, and learns again after ``learning_starts`` steps."""


class LoggingConfig(Model):
    """Where metrics go besides ``metrics.jsonl``, which is always written."""

    frequency: Count = 1_000
    """Env steps between rows of metrics."""
    window: Count = 100
    """Number of latest episodes over which the ``rollout/`` metrics are averaged."""
    console: bool = True
    """Print a progress bar, or lines where the output is no terminal."""
    csv: bool = True
    """Write ``metrics.csv``."""
    tensorboard: bool = True
    """Write event files for TensorBoard."""
    trackers: Annotated[tuple[Literal["wandb", "mlflow", "trackio"], ...], Field(max_length=3)] = ()
    """Also send rows to these experiment trackers, each of which needs the extra of its name. Where they go is up to
    the tracker's own settings, such as ``WANDB_MODE=offline`` and ``MLFLOW_TRACKING_URI``."""
    project: Annotated[str, Field(min_length=1, max_length=100)] = "rl_training"
    """Project of these trackers; MLflow calls it an experiment."""


class AlgorithmConfig(Model):
    """Root of the typed hyper-parameters of an algorithm (``algo_kwargs``)."""

    aliases: ClassVar[dict[str, str]] = {}
    """Names that other packages use, mapped to ours, for the hint on an unknown key; a subclass adds its own."""
    fixed: ClassVar[tuple[str, ...]] = ()
    """Options that decide what the saved state means, so that a resumed run cannot change them; a subclass adds its
    own."""
    absent: ClassVar[tuple[str, ...]] = ()
    """Options of a group that mean nothing to this algorithm, so that only their defaults are accepted."""
    separate_critic: ClassVar[bool] = False
    """Whether ``network.critic_hidden_sizes`` has a meaning."""
    network_defaults: ClassVar[dict[str, Any]] = {}
    """What of the section ``network`` has another default for this algorithm."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        eldest_first = [vars(base) for base in reversed(cls.__mro__)]
        cls.aliases = {k: v for own in eldest_first for k, v in own.get("aliases", {}).items()}
        cls.fixed = tuple(dict.fromkeys(name for own in eldest_first for name in own.get("fixed", ())))

    def check(self, experiment: ExperimentConfig[Any]) -> None:
        """Raise ``ValueError("dotted.key: reason")`` if this does not fit the rest of the experiment."""

    def pace(self) -> str | None:
        """Say in a line how much is learned for each env step, if that can be said beforehand."""
        return None

    def changed(self, *names: str) -> list[str]:
        """Return those of the options that do not have their default value."""
        fields = type(self).model_fields
        return [name for name in names if getattr(self, name) != fields[name].default]


K = TypeVar("K", bound=AlgorithmConfig)


class ExperimentConfig(Model, Generic[K]):
    """One run: everything that decides what it computes."""

    algo: str
    """The algorithm, by its name in ``rl-training list``."""
    env: EnvConfig
    seed: Annotated[int, BeforeValidator(parse_number), Field(ge=0, lt=2**63)] = 0
    """Seed of everything random in the run."""
    total_timesteps: Count
    """Length of the run in environment steps, all environments together."""
    schedule_timesteps: Count | None = None
    """Environment steps over which schedules run, such as those of epsilon and learning rates; after that they keep
    their final values. ``null``: ``total_timesteps``. A run that is resumed with a larger budget keeps its schedules
    and records their length here; a number given then stretches them."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")] = "cpu"
    """Where torch computes; ``auto`` takes a GPU if there is one."""
    threads: Annotated[int, BeforeValidator(parse_number), Field(ge=1, le=1024)] = 1
    """CPU threads of torch and of compiled code; small networks are fastest with one."""
    algo_kwargs: K
    network: NetworkConfig = NetworkConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    logging: LoggingConfig = LoggingConfig()

    @property
    def schedule_length(self) -> int:
        """Environment steps over which schedules run."""
        return self.schedule_timesteps or self.total_timesteps

    @field_validator("algo")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not re.fullmatch(r"[a-z0-9_]+", value):
            raise ValueError("should be lower-case letters, digits and underscores")
        return value

    @model_validator(mode="after")
    def _parts_fit(self) -> ExperimentConfig[K]:
        # Each step of N environments counts N, so only a multiple of N can be met exactly.
        envs, total = self.env.num_envs, self.total_timesteps
        if self.env.vectorization != "native" and total % envs:
            below, above = total - total % envs, total - total % envs + envs
            nearest = f"nearest are {below} and {above}" if below else f"the least is {above}"
            raise ValueError(f"total_timesteps: {total} is not a multiple of env.num_envs={envs}; {nearest}")
        if self.network.layer_norm and min(self.network.hidden_sizes, default=0) < 2:
            raise ValueError("network.layer_norm: needs hidden layers, of two units or more each")
        critics = self.network.critic_hidden_sizes
        if self.network.layer_norm and critics is not None and min(critics, default=0) < 2:
            raise ValueError(
                "network.critic_hidden_sizes: network.layer_norm needs hidden layers, of two units or more"
            )
        if critics is not None and not self.algo_kwargs.separate_critic:
            raise ValueError(
                f"network.critic_hidden_sizes: {self.algo} has no critics apart from network.hidden_sizes"
            )
        check_wrappers(self.env.wrappers, self.evaluation.env.wrappers, self.algo_kwargs, self.algo)
        self.algo_kwargs.check(self)
        return self
