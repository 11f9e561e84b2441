"""Compiled perceptrons against autograd in double precision, for every kind of processor and any number of threads."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from helpers.actor_critic import make_learner, random_batch
from rl_training import native
from rl_training.algorithms.compiled_mlp import CompiledMLP, compiled_mlp
from rl_training.algorithms.direct import CompiledDirect, TorchDirect, direct_mlp
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
WIDE = all(f" avx512{part} " in CPU for part in ("f", "dq", "bw", "vl"))
KINDS = ["plain", *(["avx2"] if " avx2 " in CPU else []), *(["avx512"] if WIDE else [])]


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
    number, out = compiled.forward(x)
    optimizer.grad.fill_(torch.nan)
    compiled.store(x, number, grad)
    slope = compiled.slope(x, number, grad, 0, None)
    rows = torch.arange(count - 1, -1, -2)
    some = compiled.slope(x, number, grad[rows], 2, rows)
    own = MLP(sizes, activation, fused=False)
    own.load_state_dict(mlp.state_dict())
    wanted, by_inputs, *by_parameters = exact(own, x, grad)
    assert_near(out, wanted)
    assert_near(slope, by_inputs)
    assert_near(some, by_inputs[rows, 2:])
    for found, each in zip(optimizer.grad_views(), by_parameters, strict=True):
        assert_near(found, each)


@pytest.mark.parametrize("sizes", [(40, 130, 70, 3), SIZES["wide"]])
@pytest.mark.parametrize("normalized", [False, True])
def test_neither_threads_nor_wider_vectors_change_a_bit(
    sizes: tuple[int, ...], normalized: bool, threads: None
) -> None:
    x, grad = torch.randn(256, sizes[0]), torch.randn(256, sizes[-1])
    seen: dict[str, list[list[torch.Tensor]]] = {}
    for kind in KINDS:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            net, optimizer, compiled = (made_normalized if normalized else made)(sizes, "relu", kind)
            number, out = compiled.forward(x, learning=True)
            compiled.store(x, number, grad)
            found = [out, optimizer.grad, *(b.clone() for b in net.buffers())]
            seen.setdefault("one step" if kind != "plain" else kind, []).append(found)
    assert seen  # the plain kind rounds products before it adds them, the others do not
    for each in seen.values():
        for other in each[1:]:
            for one, another in zip(each[0], other, strict=True):
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
    number, out = compiled.forward(x)
    rows = torch.arange(0, 65, 3)
    own.eval()
    wanted, by_inputs, *_ = exact(own, x, grad)
    assert_near(out, wanted)
    assert_near(compiled.slope(x, number, grad, 1, None), by_inputs[:, 1:])
    assert_near(compiled.slope(x, number, grad[rows], 1, rows), by_inputs[rows, 1:])
    for mine, kept in zip(net.buffers(), own.buffers(), strict=True):
        assert torch.equal(mine.double(), kept.double()), "acting moves no statistics"

    optimizer.grad.fill_(torch.nan)
    number, out = compiled.forward(x, learning=True)
    compiled.store(x, number, grad)
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


ALL = ["ddpg", "td3", "sac", "tqc", "discrete_sac", "crossq"]


def direct_parts(learner: Any) -> list[Any]:
    """Return everything of a learner that does without autograd."""
    parts = [learner._actor, getattr(learner, "_slow_actor", None)]
    for critics in (learner._critics, learner._slow_critics):
        parts += [] if critics is None else critics._members
    return [part for part in parts if part is not None]


@pytest.mark.parametrize(
    ("algo", "count"),
    [("ddpg", 4), ("td3", 6), ("sac", 5), ("tqc", 3), ("discrete_sac", 5), ("crossq", 3)],
)
def test_learners_compute_by_the_library(algo: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actor, critics and slow copies; TQC's critics learn by autograd, and CrossQ has no slow copies."""
    assert [type(part) for part in direct_parts(make_learner(algo))] == [CompiledDirect] * count
    monkeypatch.setattr("rl_training.algorithms.compiled_mlp.library", lambda: None)
    without = direct_parts(make_learner(algo))
    assert [type(part) for part in without] == [TorchDirect] * (0 if algo == "crossq" else count)


def test_what_c_would_misread_is_refused_or_converted() -> None:
    mlp, optimizer, compiled = made((3, 8, 2), "relu", KINDS[-1])
    for wrong in (torch.randn(4, 2), torch.randn(4, 3).double(), torch.randn(3)):
        with pytest.raises(ValueError, match=r"float32 \[B, 3\]"):
            compiled.forward(wrong)
    direct = direct_mlp(mlp, optimizer)
    assert direct is not None
    x = torch.randn(4, 3)
    assert torch.equal(direct.forward(x.double()).out, direct.forward(x).out)
    number, _ = compiled.forward(x)
    with pytest.raises(AssertionError):
        compiled.store(x, number, torch.randn(4, 1))
    asked = compiled_mlp((3, 8, 2), "relu", mlp.flat)
    assert asked is not None
    with pytest.raises(AssertionError):
        asked.store(x, asked.forward(x)[0], torch.randn(4, 2))
    none = torch.empty(0, 3)
    number, out = compiled.forward(none)
    compiled.store(none, number, out)
    assert out.shape == (0, 2)
    assert not optimizer.grad.any(), "sums of nothing"
    assert compiled.slope(none, number, out, 1, None).shape == (0, 2)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled.forward(x)[1].dtype is torch.float32
    finally:
        torch.set_default_dtype(before)


def test_only_the_last_pass_can_be_gone_back() -> None:
    _, _, compiled = made((3, 8, 2), "relu", KINDS[-1])
    x = torch.randn(4, 3)
    first, out = compiled.forward(x)
    kept = out.clone()
    compiled.forward(torch.randn(9, 3))
    assert torch.equal(out, kept), "outputs stay"
    for back in (lambda: compiled.store(x, first, out), lambda: compiled.slope(x, first, out, 0, None)):
        with pytest.raises(RuntimeError, match="only the last pass"):
            back()


def test_parameters_and_statistics_that_moved_are_noticed() -> None:
    net, _, compiled = made_normalized((3, 8, 2), "relu", KINDS[-1])
    net.norms[0].running_mean = net.norms[0].running_mean.clone()
    compiled.forward(torch.randn(4, 3))  # still those that it was built around
    mlp = MLP((3, 8, 2))
    FlatAdam(mlp, lr=1e-3)
    asked = compiled_mlp((3, 8, 2), "relu", mlp.flat)
    assert asked is not None
    mlp.share_memory()
    with pytest.raises(RuntimeError, match="moved"):
        asked.forward(torch.randn(4, 3))


def test_networks_that_are_something_else_are_left_to_autograd() -> None:
    class Own(NormalizedMLP):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.full((len(x), 2), 7.0)

    own = Own((3, 8, 2), "relu", momentum=0.1, warm_up=10)
    assert direct_mlp(own, FlatAdam(own, lr=1e-3)) is None
    frozen = NormalizedMLP((3, 8, 2), "relu", momentum=0.1, warm_up=10)
    frozen.norms[0].requires_grad_(False)
    assert direct_mlp(frozen, FlatAdam(frozen, lr=1e-3)) is None
    mlp = MLP((3, 8, 2))
    mlp.flat[0].requires_grad_(False)
    assert direct_mlp(mlp, FlatAdam(mlp, lr=1e-3)) is None
    mixed = NormalizedMLP((3, 8, 2), "relu", momentum=0.1, warm_up=10)
    mixed.norms[1].momentum = 0.2
    assert direct_mlp(mixed, FlatAdam(mixed, lr=1e-3)) is None


def test_a_copy_of_a_learner_is_refused_in_a_sentence() -> None:
    with pytest.raises(TypeError, match="cannot be copied; build another and load its state_dict"):
        copy.deepcopy(make_learner("sac"))


@pytest.mark.parametrize("algo", ALL)
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
