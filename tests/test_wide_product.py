"""Compiled products of larger matrices against torch's."""

from __future__ import annotations

import pytest
import torch

from rl_training.models import wide_product as module
from rl_training.models.mlp import MLP, WIDE
from rl_training.models.wide_product import wide_product
from rl_training.native import library

needs_library = pytest.mark.skipif(library() is None, reason="there is no compiled library")


@needs_library
@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(16, 1024, 16), (33, 700, 50), (64, 64, 130), (97, 33, 512)]
)
@pytest.mark.parametrize("layout", ["plain", "left", "right", "both"])
def test_same_as_torch_in_every_layout(rows: int, inner: int, columns: int, layout: str) -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(rows, inner, generator=draw), torch.randn(inner, columns, generator=draw)
    start = torch.randn(columns, generator=draw)
    left = a.t().contiguous().t() if layout in ("left", "both") else a
    right = b.t().contiguous().t() if layout in ("right", "both") else b
    expected = (a.double() @ b.double() + start).float()
    found = wide_product(left, right, start)
    assert found is not None
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


def test_only_where_it_is_faster() -> None:
    assert wide_product(torch.ones(15, 4096), torch.ones(4096, 64)) is None
    assert wide_product(torch.ones(64, 4096), torch.ones(4096, 15)) is None
    assert wide_product(torch.ones(16, 16), torch.ones(16, 16)) is None
    double = torch.ones(64, 1024, dtype=torch.float64)
    assert wide_product(double, double.t()) is None


def test_what_torch_refuses_is_left_to_torch() -> None:
    a, b = torch.ones(64, 1024), torch.ones(1024, 64)
    assert wide_product(a, torch.ones(1023, 64)) is None
    assert wide_product(a[None], b) is None
    for start in (
        torch.ones(63),
        torch.ones(128)[::2],
        torch.ones(64, dtype=torch.float64),
        torch.ones(1, 64),
    ):
        assert wide_product(a, b, start) is None
    mlp = MLP((600, 64, 64))
    for width in (300, 4_000):
        with pytest.raises(RuntimeError), torch.no_grad():
            mlp(torch.ones(64, width))


@needs_library
def test_the_default_dtype_does_not_matter() -> None:
    a, b = torch.ones(64, 1024), torch.ones(1024, 64)
    torch.set_default_dtype(torch.float64)
    try:
        found = wide_product(a, b)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found is not None
    torch.testing.assert_close(found, torch.full((64, 64), 1024.0))


@needs_library
def test_perceptron_behind_an_encoder_has_the_gradient_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    mlp = MLP((WIDE, 64, 5))
    x = torch.randn(32, WIDE, requires_grad=True)
    calls = []

    def counted(*args: torch.Tensor) -> torch.Tensor | None:
        out = wide_product(*args)
        calls.append(out is not None)
        return out

    monkeypatch.setattr("rl_training.models.mlp.wide_product", counted)
    found = torch.autograd.grad(mlp(x).square().sum(), [x, *mlp.parameters()])
    assert sum(calls) == 3  # the first layer: forward, its weights, its inputs
    plain = torch.nn.Sequential(torch.nn.Linear(WIDE, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))
    plain.load_state_dict(dict(zip(plain.state_dict(), mlp.state_dict().values(), strict=True)))
    expected = torch.autograd.grad(plain(x).square().sum(), [x, *plain.parameters()])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_vectors_are_left_to_torch() -> None:
    assert not MLP((WIDE - 1, 64, 5)).wide
    assert module.MIN_PRODUCTS > 128 * 4 * 64  # small perceptrons have no use for it
