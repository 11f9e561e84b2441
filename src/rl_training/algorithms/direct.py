"""Gradients of actors and critics that are plain perceptrons, without autograd.

Nothing is computed that nobody asks for, and gradients of weights are written where the optimizer expects them. Tests
hold the results together with those of autograd.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import nn

from rl_training import native
from rl_training.algorithms.actor_critic import CriticLoss, squared_loss
from rl_training.algorithms.compiled_mlp import ACTIVATIONS, CompiledMLP, compiled_mlp
from rl_training.algorithms.optimizer import FlatAdam
from rl_training.models.critics import ActionQ, QEnsemble
from rl_training.models.mirror import on_cpu
from rl_training.models.mlp import MLP, forward_layers, thin_product, through_activation
from rl_training.models.mlp_crossq import NormalizedMLP, NormalizedQ


def is_plain(mlp: object) -> bool:
    """Say whether a network is a perceptron whose gradients are written out here."""
    return type(mlp) is MLP and mlp.fused and not mlp.noisy and on_cpu(mlp)


@dataclasses.dataclass(slots=True)
class Pass:
    """What a perceptron made of inputs, and what it needs to go back."""

    x: torch.Tensor  # [B, in]
    out: torch.Tensor  # [B, out]
    kept: Sequence[torch.Tensor] = ()
    number: int = 0


class Direct(Protocol):
    """A perceptron that goes forward and back without autograd."""

    def forward(self, x: torch.Tensor, *, learning: bool = False) -> Pass:
        """Return what comes out for inputs [B, in]; ``learning`` is the mode of layers that have modes."""

    def store(self, made: Pass, grad: torch.Tensor) -> None:
        """Store the gradient of the parameters, given that by the outputs [B, out], after a pass in learning."""

    def slope(
        self, made: Pass, grad: torch.Tensor, first: int, rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the gradient [N, in - first] by the inputs from ``first`` on, of all rows or of some [N]."""


def _places(parameters: Sequence[torch.Tensor], optimizer: FlatAdam | None) -> list[torch.Tensor] | None:
    """Return where an optimizer expects the gradients of some of its parameters."""
    if optimizer is None:
        return None
    views = zip(optimizer.parameters, optimizer.grad_views(), strict=True)
    places = {id(parameter): place for parameter, place in views}
    return [places[id(parameter)] for parameter in parameters if id(parameter) in places]


class CompiledDirect:
    """A perceptron by compiled code."""

    def __init__(self, compiled: CompiledMLP) -> None:
        self._compiled = compiled

    def forward(self, x: torch.Tensor, *, learning: bool = False) -> Pass:
        """Return what comes out for inputs [B, in]."""
        x = x.to(torch.float32).contiguous()
        number, out = self._compiled.forward(x, learning=learning)
        return Pass(x, out, number=number)

    def store(self, made: Pass, grad: torch.Tensor) -> None:
        """Store the gradient of the parameters."""
        self._compiled.store(made.x, made.number, grad.to(torch.float32).contiguous())

    def slope(
        self, made: Pass, grad: torch.Tensor, first: int, rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the gradient by the inputs from ``first`` on."""
        return self._compiled.slope(made.x, made.number, grad.to(torch.float32).contiguous(), first, rows)


class TorchDirect:
    """A perceptron without modes by torch's products."""

    def __init__(
        self, activation: str, parameters: Sequence[torch.Tensor], places: Sequence[torch.Tensor] | None
    ) -> None:
        self._activation, self._parameters, self._places = activation, parameters, places

    def forward(self, x: torch.Tensor, *, learning: bool = False) -> Pass:
        """Return what comes out for inputs [B, in]."""
        layers = forward_layers(x, self._activation, self._parameters)
        return Pass(x, layers[-1], layers)

    def store(self, made: Pass, grad: torch.Tensor) -> None:
        """Store the gradient of the parameters."""
        assert self._places is not None
        self._back(made.kept, grad, self._places)

    def slope(
        self, made: Pass, grad: torch.Tensor, first: int, rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the gradient by the inputs from ``first`` on."""
        layers = made.kept if rows is None else [layer[rows] for layer in made.kept]
        return torch.mm(self._back(layers, grad, None), self._parameters[0][:, first:])

    def _back(
        self, layers: Sequence[torch.Tensor], grad: torch.Tensor, places: Sequence[torch.Tensor] | None
    ) -> torch.Tensor:
        """Return the gradient by the sums of the first layer; those of the parameters go to their places."""
        for i in range(len(layers) - 2, -1, -1):
            below = layers[i]
            if places is not None:
                torch.sum(grad, 0, out=places[2 * i + 1])
                thin_product(grad.t(), below, out=places[2 * i])
            if i > 0:
                grad = through_activation(torch.mm(grad, self._parameters[2 * i]), below, self._activation)
        return grad


def direct_mlp(mlp: nn.Module, optimizer: FlatAdam | None = None) -> Direct | None:
    """Return a perceptron that does without autograd, or none if it has to be left to that.

    It looks at the parameters where they lie, so it has to be made after the optimizer.
    """
    if type(mlp) is NormalizedMLP:
        own = list(mlp.parameters())
        places = _places(own, optimizer)
        found = (
            compiled_mlp(mlp.sizes, mlp.activation, own, places, mlp.norms) if _trains(own, places) else None
        )
        return None if found is None else CompiledDirect(found)
    if type(mlp) is not MLP or not is_plain(mlp):
        return None
    places = _places(mlp.flat, optimizer)
    if not _trains(mlp.flat, places):
        return None
    found = compiled_mlp(mlp.sizes, mlp.activation, mlp.flat, places)
    if found is not None:
        return CompiledDirect(found)
    return TorchDirect(mlp.activation, [p.detach() for p in mlp.flat], places)


def _trains(parameters: Sequence[torch.Tensor], places: Sequence[torch.Tensor] | None) -> bool:
    """Say whether there is a place for the gradient of every parameter, if there is any."""
    return places is None or len(places) == len(parameters)


def missing_library(network: nn.Module) -> dict[str, str]:
    """Return what is to be said of perceptrons that only the missing library keeps from being compiled ones."""
    parts = (part for part in network.modules() if isinstance(part, (MLP, NormalizedMLP)))
    known = any(
        (type(part) is NormalizedMLP and part.activation in ACTIVATIONS) or is_plain(part) for part in parts
    )
    return native.warning(torch.get_num_threads()) if known and on_cpu(network) else {}


def _members(critic: nn.Module, optimizer: FlatAdam | None) -> list[Direct] | None:
    every = [direct_mlp(member, optimizer) for member in getattr(critic, "members", ())]
    members = [member for member in every if member is not None]
    return members if members and len(members) == len(every) else None


class DirectCritics:
    """Critics of continuous actions, each with one output; those without an optimizer can only be asked for outputs."""

    def __init__(self, members: Sequence[Direct]) -> None:
        self._members = members

    def outputs(self, x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return what every critic says [C, B, K] of actions [B, A]."""
        return torch.stack([made.out for made in self.look(x, action)])

    def look(self, x: torch.Tensor, action: torch.Tensor, *, learning: bool = False) -> list[Pass]:
        """Return what every critic makes of actions [B, A]."""
        inputs = torch.cat((x, action), 1)
        return [member.forward(inputs, learning=learning) for member in self._members]

    def fit(
        self, x: torch.Tensor, action: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
    ) -> CriticLoss:
        """Store the gradient of the squared errors to targets [B]; return these errors, without a graph."""
        return self.learn(self.look(x, action, learning=True), target, weight)

    def learn(self, every: Sequence[Pass], target: torch.Tensor, weight: torch.Tensor | None) -> CriticLoss:
        """Do that for the first rows of what critics made of more than the ``target`` [B] is of."""
        values, count = critic_values(every), len(target)
        found = squared_loss(values[:, :count], target, weight)
        pull = (found.value - target) * (2.0 / count)
        grads = torch.zeros_like(values)
        grads[:, :count] = pull if weight is None else pull * weight
        for member, made, grad in zip(self._members, every, grads[:, :, None], strict=True):
            member.store(made, grad)
        return found

    def first_slope(self, x: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the first critic's values [B] of actions [B, A], and their slopes [B, A]."""
        made = self._members[0].forward(torch.cat((x, action), 1))
        return made.out[:, 0], self._members[0].slope(made, torch.ones_like(made.out), x.shape[1])

    def mean_slope(self, x: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean of the critics' values [B] of actions [B, A], and its slope [B, A]."""
        every = self.look(x, action)
        even = torch.full_like(every[0].out, 1.0 / len(every))
        slopes = [m.slope(made, even, x.shape[1]) for m, made in zip(self._members, every, strict=True)]
        return critic_values(every).mean(0), torch.stack(slopes).sum(0)

    def smallest_slope(self, x: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the smallest of the critics' values [B] of actions [B, A], and its slope [B, A].

        Each critic goes back only through the samples of which it has the smallest value.
        """
        every = self.look(x, action)
        value, whose = critic_values(every).min(0)
        slope = torch.empty_like(action)
        for i, (member, made) in enumerate(zip(self._members, every, strict=True)):
            rows = (whose == i).nonzero()[:, 0]
            slope[rows] = member.slope(made, torch.ones(len(rows), 1), x.shape[1], rows)
        return value, slope


def critic_values(every: Sequence[Pass]) -> torch.Tensor:
    """Return the values [C, B] of critics with one output."""
    return torch.stack([made.out[:, 0] for made in every])


class DirectEnsemble:
    """Critics that give the values of all discrete actions; those without an optimizer can only be asked."""

    def __init__(self, members: Sequence[Direct]) -> None:
        self._members = members

    def values(self, x: torch.Tensor) -> torch.Tensor:
        """Return every critic's values [C, B, A] of all actions."""
        return torch.stack([member.forward(x).out for member in self._members])

    def fit(
        self, x: torch.Tensor, action: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
    ) -> CriticLoss:
        """Store the gradient of the squared errors of the actions [B] taken; return these errors, without a graph."""
        every = [member.forward(x, learning=True) for member in self._members]
        values = torch.stack([made.out for made in every])
        taken = action.expand(len(every), -1)[:, :, None]
        chosen = values.gather(2, taken)[:, :, 0]
        found = squared_loss(chosen, target, weight)
        pull = (chosen - target) * (2.0 / len(x))
        if weight is not None:
            pull = pull * weight
        grads = torch.zeros_like(values).scatter_(2, taken, pull[:, :, None])
        for member, made, grad in zip(self._members, every, grads, strict=True):
            member.store(made, grad)
        return found


def direct_ensemble(critic: QEnsemble, optimizer: FlatAdam | None = None) -> DirectEnsemble | None:
    """Return critics that do without autograd, or none if they have to be left to that."""
    members = _members(critic, optimizer)
    return None if members is None else DirectEnsemble(members)


def direct_critics(critic: nn.Module, optimizer: FlatAdam | None = None) -> DirectCritics | None:
    """Return critics that do without autograd, or none if they have to be left to that."""
    if type(critic) not in (ActionQ, NormalizedQ):
        return None
    members_of: Any = critic.members
    if optimizer is not None and members_of[-1].sizes[-1] != 1:
        return None
    members = _members(critic, optimizer)
    return None if members is None else DirectCritics(members)
