"""What every learner has: networks, optimizers, counters, schedules, and the state of all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.optimizer import FlatAdam
from rl_training.algorithms.options import OptimizerOptions
from rl_training.algorithms.protocol import Decision, UpdateResult
from rl_training.algorithms.randomness import TorchStream
from rl_training.algorithms.schedules import linear
from rl_training.algorithms.state import require_like
from rl_training.data.transitions import Carry
from rl_training.errors import CheckpointError, ConfigError
from rl_training.models.modes import has_modes, has_to_be_switched
from rl_training.models.normalizer import RunningNormalizer
from rl_training.models.scorer import Scorer
from rl_training.spaces import Array

Config = TypeVar("Config", bound=OptimizerOptions)
B = TypeVar("B")
N = TypeVar("N", bound=nn.Module)


class Learner(ABC, Generic[Config, B]):
    """The part of an algorithm that is not its mathematics; a subclass writes ``act`` and ``update``.

    In its constructor it hands its networks to ``own`` and puts optimizers, made by ``adam``, into ``optimizers``,
    both by the names under which checkpoints have them. What it counts besides ``updates`` it names in
    ``counters``. What follows the env steps it sets in ``advance``; ``total_timesteps`` is the length of schedules.
    """

    counters: ClassVar[tuple[str, ...]] = ()
    """Whole-numbered attributes that are part of the state, besides ``updates``."""

    def __init__(
        self,
        config: Config,
        *,
        total_timesteps: int,
        rng: np.random.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.config = config
        self.device = torch.device(device)
        self.networks: dict[str, nn.Module] = {}
        self.optimizers: dict[str, FlatAdam] = {}
        self.updates = 0
        self._total = total_timesteps
        self._rng = rng if rng is not None else np.random.default_rng()
        self._torch_stream: TorchStream | None = None
        self._moded: set[nn.Module] = (
            set()
        )  # networks, and parts, that differ between training and evaluation
        self._normalizers: list[RunningNormalizer] = []
        self._env_steps = 0

    def own(self, name: str, network: N) -> N:
        """Take a network into the state, on the learner's device and in evaluation mode; return it.

        ``observe`` moves the statistics of its normalisers. If it differs between training and evaluation, what it
        draws from torch's global generator comes from a stream of the learner's own, which is part of the state.
        """
        self.networks[name] = network.to(self.device).eval()
        if has_modes(network) and self._torch_stream is None:
            self._torch_stream = TorchStream()
        parts: list[nn.Module] = [network, *network.children()]
        self._moded.update(part for part in parts if has_to_be_switched(part))
        found = [m for m in network.modules() if isinstance(m, RunningNormalizer)]
        self._normalizers = list(dict.fromkeys([*self._normalizers, *found]))  # networks may share one
        return network

    def adam(self, module: nn.Module, **options: Any) -> FlatAdam:
        """Return an optimizer of a module's parameters with the settings of the config."""
        c = self.config
        settings = {
            "lr": c.learning_rate,
            "eps": c.adam_eps,
            "betas": c.adam_betas,
            "max_grad_norm": c.max_grad_norm,
        }
        return FlatAdam(module, **{**settings, **options})

    # Acting

    def initial_carry(self, count: int) -> Carry | None:
        """Return none: this learner is memoryless."""
        return None

    def exploration_carry(self, count: int) -> Carry | None:
        """Return the memory of ``count`` episodes that are about to be explored: noise may remember, too."""
        return self.initial_carry(count)

    @abstractmethod
    def act(
        self, obs: Array, carry: Carry | None = None, *, explore: bool, mask: Array | None = None
    ) -> Decision:
        """Choose actions [N, *action] for observations [N, *obs]; see ``protocol.Algorithm``."""

    def scores(self, obs: Array, carry: Carry | None = None) -> Array | None:
        """Return what greedy actions are the best by, Q-values or logits [N, ...]; none where actions are numbers."""
        return None

    def scorer(self) -> Scorer:
        """Return what is computed for a greedy action as a module that can be exported."""
        raise ConfigError(
            f"export: {type(self).__name__} has no scorer(), which says what there is to export"
        )

    def observe(self, obs: Array) -> None:
        """Move the normaliser's statistics, if there are any; acting alone leaves them as they are."""
        for normalizer in self._normalizers:
            normalizer.observe(obs)

    # Learning

    @abstractmethod
    def update(self, batch: B) -> UpdateResult:
        """Learn from one batch."""

    @contextmanager
    def learning(self, network: nn.Module) -> Iterator[None]:
        """Let dropout be active and batch statistics move: only in here, else all is in evaluation mode.

        What the network draws from torch's global generator comes from a stream of the learner's own.
        """
        if network not in self._moded:
            yield
            return
        assert self._torch_stream is not None
        network.train()
        try:
            with self._torch_stream:
                yield
        finally:
            network.eval()

    # Schedules and state

    def advance(self, env_steps: int) -> None:
        """Set the learning rate of all optimizers."""
        self._env_steps = env_steps
        c = self.config
        if c.learning_rate_final is not None:
            rate = linear(c.learning_rate, c.learning_rate_final, self._total, env_steps)
            for optimizer in self.optimizers.values():
                own = optimizer.initial_lr
                optimizer.lr = rate if own == c.learning_rate else rate * (own / c.learning_rate)

    def status(self) -> dict[str, float]:
        """Return the learning rate and the counters."""
        rate = [optimizer.lr for optimizer in self.optimizers.values()][:1]
        counted = {name: getattr(self, name) for name in self.counters}
        return {**({"learning_rate": rate[0]} if rate else {}), **counted}

    def warnings(self, row: Mapping[str, float]) -> dict[str, str]:
        """Return what a user should be told about a row of the log: nothing, unless a learner knows something."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return networks, optimizers (a single one without its name) and counters."""
        counters: dict[str, Any] = {name: getattr(self, name) for name in ("updates", *self.counters)}
        counters["env_steps"] = self._env_steps
        if self._torch_stream is not None:
            counters["torch_stream"] = self._torch_stream.state
        optimizers = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        return {
            "model": {name: dict(network.state_dict()) for name, network in self.networks.items()},
            "optimizer": next(iter(optimizers.values())) if len(optimizers) == 1 else optimizers,
            "counters": counters,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state of the same networks; a missing or misshapen part is an error."""
        for name, network in self.networks.items():
            require_like(state["model"][name], network.state_dict(), f"model: {name}")
        for name, network in self.networks.items():
            network.load_state_dict(state["model"][name])
        single = len(self.optimizers) == 1
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizer"] if single else state["optimizer"][name])
        counters = state["counters"]
        if self._torch_stream is not None:
            stream = {"torch_stream": counters["torch_stream"]}
            require_like(stream, {"torch_stream": self._torch_stream.state}, "loop")
            try:
                torch.Generator().set_state(stream["torch_stream"])
            except RuntimeError:
                raise CheckpointError("loop: torch_stream is not the state of a generator") from None
            self._torch_stream.state = stream["torch_stream"].clone()
        for name in ("updates", *self.counters):
            setattr(self, name, _counted(counters, name))
        self._env_steps = _counted(counters, "env_steps")
        self.advance(self._env_steps)


def _counted(counters: Mapping[str, Any], name: str) -> int:
    count = counters[name]
    if type(count) is not int or not 0 <= count <= 2**53:
        raise CheckpointError(f"loop: learner: {name} is {count!r:.40}, not a whole number from 0 to 2**53")
    return count
