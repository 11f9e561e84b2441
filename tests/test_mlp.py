"""The fused perceptron computes what torch's own layers compute."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rl_training.models.mlp import ACTIVATIONS, MLP
from rl_training.models.mlp_q_network import MLPQNetwork, duel

FUSED = ["relu", "tanh"]


def reference(mlp: MLP) -> nn.Sequential:
    layers: list[nn.Module] = [mlp.linears[0]]
    for i, linear in enumerate(list(mlp.linears)[1:]):
        layers += [*mlp.norms[i : i + 1], ACTIVATIONS[mlp.activation](), linear]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("hidden", [[], [7], [16, 9, 5]])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_output_and_gradients_equal_torchs_layers(
    activation: str, hidden: list[int], layer_norm: bool
) -> None:
    torch.manual_seed(0)
    mlp = MLP([4, *hidden, 3], activation, layer_norm=layer_norm)
    assert [norm.normalized_shape for norm in mlp.norms] == [(size,) for size in hidden if layer_norm]
    x = torch.randn(6, 4, requires_grad=True)
    weight = torch.randn(6, 3)
    results = []
    for network in (mlp, reference(mlp)):
        out = network(x)
        results.append([out, *torch.autograd.grad((out * weight).sum(), [x, *mlp.parameters()])])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(mlp(x), results[1][0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", [(4, 120, 84, 2), (64, 32, 40), (3, 300, 300, 9)])
@pytest.mark.parametrize("batch", [1, 64, 500])
def test_thin_and_thick_layers_equal_torchs(sizes: tuple[int, ...], batch: int) -> None:
    """Products of both kinds, in all three roles."""
    torch.manual_seed(0)
    mlp = MLP(sizes)
    x, weight = torch.randn(batch, sizes[0]), torch.randn(batch, sizes[-1])
    expected = torch.autograd.grad((reference(mlp)(x) * weight).sum(), list(mlp.parameters()))
    by_graph = torch.autograd.grad((mlp(x) * weight).sum(), list(mlp.parameters()))
    with torch.no_grad():
        torch.testing.assert_close(mlp(x), reference(mlp)(x), rtol=1e-4, atol=1e-4)
    for plain, graph in zip(expected, by_graph, strict=True):
        torch.testing.assert_close(graph, plain, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("activation", FUSED)
def test_gradients_equal_finite_differences(activation: str) -> None:
    torch.manual_seed(0)
    mlp = MLP([3, 6, 5, 2], activation).double()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: mlp(x), (x, *mlp.parameters()))


def test_a_second_use_in_one_loss_adds_its_gradient() -> None:
    torch.manual_seed(0)
    mlp = MLP([3, 8, 2])
    a, b = torch.randn(5, 3), torch.randn(5, 3)
    together = torch.autograd.grad(mlp(a).sum() + mlp(b).sum(), list(mlp.parameters()))
    apart = [torch.autograd.grad(mlp(x).sum(), list(mlp.parameters())) for x in (a, b)]
    for whole, one, two in zip(together, *apart, strict=True):
        torch.testing.assert_close(whole, one + two)


def test_q_network_takes_images_and_scales_bytes() -> None:
    network = MLPQNetwork((3, 4, 5), 2, [8])
    image = torch.randint(0, 256, (6, 3, 4, 5), dtype=torch.uint8)
    torch.testing.assert_close(network(image), network(image.float() / 255.0))
    assert network.act(image).shape == (6,)


def test_dueling_centres_the_advantages() -> None:
    out = torch.tensor([[10.0, 1.0, 2.0, 6.0]])
    assert duel(out).tolist() == [[8.0, 9.0, 13.0]]
    assert torch.equal(duel(out + torch.tensor([0.0, 5.0, 5.0, 5.0])), duel(out))


@pytest.mark.parametrize("activation", FUSED)
def test_the_path_that_is_not_fused_can_be_differentiated_twice(activation: str) -> None:
    torch.manual_seed(0)
    mlp = MLP([3, 8, 2], activation, fused=False)
    x = torch.randn(5, 3)

    def curved(value: torch.Tensor) -> torch.Tensor:
        return value.square().sum()

    first = torch.autograd.grad(curved(mlp(x)), list(mlp.parameters()), create_graph=True)
    vector = [torch.randn_like(p) for p in mlp.parameters()]
    along = sum(((g * v).sum() for g, v in zip(first, vector, strict=True)), torch.zeros(()))
    product = torch.autograd.grad(along, list(mlp.parameters()))
    # A central difference of the gradient along the vector, in double precision.
    exact = mlp.double()
    gradients = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            for p, v in zip(exact.parameters(), vector, strict=True):
                p.add_(v.double(), alpha=sign * 1e-5)
        gradients.append(torch.autograd.grad(curved(exact(x.double())), list(exact.parameters())))
        with torch.no_grad():
            for p, v in zip(exact.parameters(), vector, strict=True):
                p.sub_(v.double(), alpha=sign * 1e-5)
    for ours, above, below in zip(product, *gradients, strict=True):
        torch.testing.assert_close(ours.double(), (above - below) / 2e-5, rtol=1e-3, atol=1e-4)


def test_the_fused_path_refuses_a_second_derivative() -> None:
    mlp = MLP([3, 8, 2])
    (grad, *_) = torch.autograd.grad(
        mlp(torch.randn(5, 3)).square().sum(), list(mlp.parameters()), create_graph=True
    )
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(grad.sum(), list(mlp.parameters()))
