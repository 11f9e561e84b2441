"""Gradients of actors and critics that are plain perceptrons, without autograd.

Nothing is computed that nobody asks for, and gradients of weights are written where the optimizer expects them. Tests
hold the results together with those of autograd.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rl_training.algorithms.actor_critic import CriticLoss, squared_loss
from rl_training.algorithms.optimizer import FlatAdam
from rl_training.models.critics import ActionQ, QEnsemble
from rl_training.models.mirror import on_cpu
from rl_training.models.mlp import MLP, forward_layers, thin_product, through_activation

Layers = Sequence[torch.Tensor]


def is_plain(mlp: object) -> bool:
    """Say whether a network is a perceptron whose gradients are written out here."""
    return type(mlp) is MLP and mlp.fused and not mlp.noisy and on_cpu(mlp)


class DirectMLP:
    """One perceptron, and where the gradients of its parameters go."""

    def __init__(self, mlp: MLP, optimizer: FlatAdam) -> None:
        self._activation = mlp.activation
        self._parameters = [parameter.detach() for parameter in mlp.flat]
        places = {id(p): place for p, place in zip(optimizer.parameters, optimizer.grad_views(), strict=True)}
        self._places = [places[id(parameter)] for parameter in mlp.flat]

    def forward(self, x: torch.Tensor) -> Layers:
        """Return the inputs [B, in], every hidden layer, and the outputs [B, out]."""
        return forward_layers(x, self._activation, self._parameters)

    def backward(self, layers: Layers, grad: torch.Tensor, *, weights: bool) -> torch.Tensor:
        """Return the gradient by the sums of the first layer; with ``weights``, store those of the parameters."""
        for i in range(len(layers) - 2, -1, -1):
            below = layers[i]
            if weights:
                torch.sum(grad, 0, out=self._places[2 * i + 1])
                thin_product(grad.t(), below, out=self._places[2 * i])
            if i > 0:
                grad = through_activation(torch.mm(grad, self._parameters[2 * i]), below, self._activation)
        return grad

    def slope(self, layers: Layers, grad: torch.Tensor, first: int) -> torch.Tensor:
        """Return the gradient [B, in - first] by the inputs from ``first`` on, and store none."""
        return torch.mm(self.backward(layers, grad, weights=False), self._parameters[0][:, first:])


class DirectCritics:
    """Critics of continuous actions, each with one output."""

    def __init__(self, critic: ActionQ, optimizer: FlatAdam) -> None:
        self._members = [DirectMLP(member, optimizer) for member in critic.members]

    def fit(
        self, x: torch.Tensor, action: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
    ) -> CriticLoss:
        """Store the gradient of the squared errors to targets [B]; return these errors, without a graph."""
        inputs = torch.cat((x, action), 1)
        values, squares = [], []
        share = 2.0 / len(x)
        for member in self._members:
            layers = member.forward(inputs)
            value = layers[-1][:, 0]
            error = value - target
            pull = error if weight is None else error * weight
            squares.append(torch.dot(pull, error))
            member.backward(layers, (pull * share)[:, None], weights=True)
            values.append(value)
        stacked = torch.stack(values)
        loss = torch.stack(squares).sum() / len(x)
        return CriticLoss(loss, stacked, target, (stacked - target).abs().mean(0))

    def first_slope(self, x: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the first critic's values [B] of actions [B, A], and their slopes [B, A]."""
        layers = self._members[0].forward(torch.cat((x, action), 1))
        return layers[-1][:, 0], self._members[0].slope(layers, torch.ones_like(layers[-1]), x.shape[1])

    def mean_slope(self, x: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean of the critics' values [B] of actions [B, A], and its slope [B, A]."""
        inputs = torch.cat((x, action), 1)
        every = [member.forward(inputs) for member in self._members]
        even = torch.full_like(every[0][-1], 1.0 / len(every))
        slopes = [m.slope(layers, even, x.shape[1]) for m, layers in zip(self._members, every, strict=True)]
        return torch.stack([layers[-1][:, 0] for layers in every]).mean(0), torch.stack(slopes).sum(0)

    def smallest_slope(self, x: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the smallest of the critics' values [B] of actions [B, A], and its slope [B, A].

        Each critic goes back only through the samples of which it has the smallest value.
        """
        inputs = torch.cat((x, action), 1)
        every = [member.forward(inputs) for member in self._members]
        value, whose = torch.stack([layers[-1][:, 0] for layers in every]).min(0)
        slope = torch.empty_like(action)
        for i, (member, layers) in enumerate(zip(self._members, every, strict=True)):
            rows = (whose == i).nonzero()[:, 0]
            some = [layer[rows] for layer in layers]
            slope[rows] = member.slope(some, torch.ones_like(some[-1]), x.shape[1])
        return value, slope


class DirectEnsemble:
    """Critics that give the values of all discrete actions."""

    def __init__(self, critic: QEnsemble, optimizer: FlatAdam) -> None:
        self._members = [DirectMLP(member, optimizer) for member in critic.members]

    def fit(
        self, x: torch.Tensor, action: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
    ) -> CriticLoss:
        """Store the gradient of the squared errors of the actions [B] taken; return these errors, without a graph."""
        every = [member.forward(x) for member in self._members]
        values = torch.stack([layers[-1] for layers in every])
        taken = action.expand(len(every), -1)[:, :, None]
        chosen = values.gather(2, taken)[:, :, 0]
        found = squared_loss(chosen, target, weight)
        pull = (chosen - target) * (2.0 / len(x))
        if weight is not None:
            pull = pull * weight
        grads = torch.zeros_like(values).scatter_(2, taken, pull[:, :, None])
        for member, layers, grad in zip(self._members, every, grads, strict=True):
            member.backward(layers, grad, weights=True)
        return found


def direct_ensemble(critic: QEnsemble, optimizer: FlatAdam) -> DirectEnsemble | None:
    """Return critics whose gradients are written out, or none if they have to be left to autograd."""
    return DirectEnsemble(critic, optimizer) if all(is_plain(member) for member in critic.members) else None


def direct_critics(critic: torch.nn.Module, optimizer: FlatAdam) -> DirectCritics | None:
    """Return critics whose gradients are written out, or none if they have to be left to autograd."""
    if not isinstance(critic, ActionQ) or not all(is_plain(member) for member in critic.members):
        return None
    return DirectCritics(critic, optimizer) if critic.members[0].sizes[-1] == 1 else None
