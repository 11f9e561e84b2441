"""Compiled perceptrons against autograd in double precision, for every kind of processor and any number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from helpers.actor_critic import make_learner, random_batch
from rl_training import native
from rl_training.algorithms.compiled_mlp import CompiledMLP, compiled_mlp
from rl_training.algorithms.direct import TorchDirect, direct_mlp
from rl_training.algorithms.optimizer import FlatAdam
from rl_training.models.mlp import MLP
from rl_training.models.mlp_crossq import NormalizedMLP

pytestmark = pytest.mark.skipif(native.library() is None, reason="there is no compiled library")

SIZES = {
    "one layer": (5, 3),
    "single column": (4, 16, 1),
    "odd": (23, 37, 19, 2),
    "whole": (32, 64, 64, 32),
    "wide": (17, 256, 256, 12),
    "deeper than a block": (300, 530, 7),
}
CPU = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
KINDS = ["plain", *(["avx2"] if " avx2 " in CPU else []), *(["avx512"] if " avx512f " in CPU else [])]


class OfKind:
    """The library with the functions of one kind of processor under the names of all."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        return getattr(native.library(), f"{name}_{self._kind}")


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def made(sizes: tuple[int, ...], activation: str, kind: str) -> tuple[MLP, FlatAdam, CompiledMLP]:
    torch.manual_seed(0)
    mlp = MLP(sizes, activation)
    optimizer = FlatAdam(mlp, lr=1e-3)
    parameters = [p.detach() for p in mlp.flat]
    library: Any = OfKind(kind)
    return mlp, optimizer, CompiledMLP(library, sizes, activation, parameters, optimizer.grad_views())


def exact(module: nn.Module, x: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return outputs, the gradient by the inputs, and those by the parameters, in double precision."""
    module.double()
    inputs = x.double().requires_grad_()
    out = module(inputs)
    found = torch.autograd.grad(out, [inputs, *module.parameters()], grad.double())
    return (out.detach(), *found)


def assert_near(found: torch.Tensor, wanted: torch.Tensor) -> None:
    scale = float(wanted.abs().max()) + 1e-6
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=4e-6 * scale)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("count", [1, 5, 33, 256])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_outputs_gradients_and_slopes_are_exact(
    sizes: tuple[int, ...], count: int, activation: str, kind: str
) -> None:
    mlp, optimizer, compiled = made(sizes, activation, kind)
    x, grad = torch.randn(count, sizes[0]), torch.randn(count, sizes[-1])
    work, out = compiled.forward(x)
    optimizer.grad.fill_(torch.nan)
    compiled.store(x, work, grad)
    slope = compiled.slope(x, work, grad, 0, None)
    rows = torch.arange(count - 1, -1, -2)
    some = compiled.slope(x, work, grad[rows], 2, rows)
    own = MLP(sizes, activation, fused=False)
    own.load_state_dict(mlp.state_dict())
    wanted, by_inputs, *by_parameters = exact(own, x, grad)
    assert_near(out, wanted)
    assert_near(slope, by_inputs)
    assert_near(some, by_inputs[rows, 2:])
    for found, each in zip(optimizer.grad_views(), by_parameters, strict=True):
        assert_near(found, each)


@pytest.mark.parametrize("sizes", [SIZES["odd"], SIZES["wide"]])
@pytest.mark.parametrize("normalized", [False, True])
def test_neither_threads_nor_wider_vectors_change_a_bit(
    sizes: tuple[int, ...], normalized: bool, threads: None
) -> None:
    x, grad = torch.randn(256, sizes[0]), torch.randn(256, sizes[-1])
    seen = []
    for kind in [kind for kind in KINDS if kind != "plain"]:  # which rounds products before it adds them
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            if normalized:
                net, optimizer, compiled = made_normalized(sizes, "relu", kind)
            else:
                net, optimizer, compiled = made(sizes, "relu", kind)
            work, out = compiled.forward(x, learning=True)
            compiled.store(x, work, grad)
            seen.append([out, optimizer.grad, *(b.clone() for b in net.buffers())])
    for other in seen[1:]:
        for one, another in zip(seen[0], other, strict=True):
            assert torch.equal(one, another)


def made_normalized(
    sizes: tuple[int, ...], activation: str, kind: str, warm_up: int = 100
) -> tuple[NormalizedMLP, FlatAdam, CompiledMLP]:
    torch.manual_seed(0)
    net = NormalizedMLP(sizes, activation, momentum=0.1, warm_up=warm_up)
    for norm in net.norms:
        norm.weight.data += 0.3 * torch.randn_like(norm.weight)
        norm.bias.data += 0.3 * torch.randn_like(norm.bias)
        norm.running_mean += torch.randn_like(norm.bias)
        norm.running_var.mul_(torch.rand_like(norm.bias) + 0.5)
    optimizer = FlatAdam(net, lr=1e-3)
    parameters = [p.detach() for p in net.parameters()]
    library: Any = OfKind(kind)
    compiled = CompiledMLP(library, sizes, activation, parameters, optimizer.grad_views(), net.norms)
    return net, optimizer, compiled


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("warm_up", [100, 0])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_normalised_layers_are_exact_in_both_modes(
    sizes: tuple[int, ...], warm_up: int, activation: str, kind: str
) -> None:
    """With ``warm_up`` 0, batches are corrected towards the running statistics from the first call on."""
    net, optimizer, compiled = made_normalized(sizes, activation, kind, warm_up)
    x, grad = 2.0 * torch.randn(65, sizes[0]) + 1.0, torch.randn(65, sizes[-1])
    own = NormalizedMLP(sizes, activation, momentum=0.1, warm_up=warm_up)
    own.load_state_dict(net.state_dict())
    work, out = compiled.forward(x)
    rows = torch.arange(0, 65, 3)
    own.eval()
    wanted, by_inputs, *_ = exact(own, x, grad)
    assert_near(out, wanted)
    assert_near(compiled.slope(x, work, grad, 1, None), by_inputs[:, 1:])
    assert_near(compiled.slope(x, work, grad[rows], 1, rows), by_inputs[rows, 1:])
    for mine, kept in zip(net.buffers(), own.buffers(), strict=True):
        assert torch.equal(mine.double(), kept.double()), "acting moves no statistics"

    optimizer.grad.fill_(torch.nan)
    work, out = compiled.forward(x, learning=True)
    compiled.store(x, work, grad)
    own.train()
    wanted, _, *by_parameters = exact(own, x, grad)
    assert_near(out, wanted)
    for found, each in zip(optimizer.grad_views(), by_parameters, strict=True):
        scale = max(float(p.abs().max()) for p in by_parameters)
        torch.testing.assert_close(found.double(), each, rtol=1e-4, atol=1e-5 * scale)
    for mine, kept in zip(net.buffers(), own.buffers(), strict=True):
        torch.testing.assert_close(mine.double(), kept.double(), rtol=1e-5, atol=1e-5)
    assert [int(norm.calls) for norm in net.norms] == [1] * len(net.norms)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_what_is_not_a_number_stays_so(activation: str) -> None:
    for kind in KINDS:
        _, _, compiled = made((4, 16, 2), activation, kind)
        x = torch.randn(8, 4)
        x[3, 1] = torch.nan
        _, out = compiled.forward(x)
        assert out[3].isnan().all()
        assert out[:3].isfinite().all()
        assert out[4:].isfinite().all()


def test_parameters_that_do_not_lie_side_by_side_are_left_to_torch() -> None:
    mlp = MLP((3, 8, 1))
    assert isinstance(direct_mlp(mlp), TorchDirect), "each parameter has a place of its own"
    assert compiled_mlp((3, 8, 1), "gelu", [p.detach() for p in mlp.flat]) is None
    double = MLP((3, 8, 1)).double()
    FlatAdam(double, lr=1e-3)
    assert compiled_mlp((3, 8, 1), "relu", [p.detach() for p in double.flat]) is None


@pytest.mark.parametrize("algo", ["ddpg", "td3", "sac", "tqc", "discrete_sac", "crossq"])
def test_without_the_library_the_same_is_learned(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = make_learner(algo, hidden=(24, 16), policy_delay=1)
    monkeypatch.setattr("rl_training.algorithms.compiled_mlp.library", lambda: None)
    plain = make_learner(algo, hidden=(24, 16), policy_delay=1)
    for i in range(3):
        batch = random_batch(algo, 32, seed=i)
        for learner in (compiled, plain):
            learner.update(batch)
    for one, other in zip(compiled.network.parameters(), plain.network.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=1e-3)
    for one, other in zip(compiled.network.buffers(), plain.network.buffers(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)
