"""The compiled walk of an LSTM is torch's own, there and back, for everything that it is used for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from rl_training.models.recurrent import compiled_lstm
from rl_training.models.recurrent.compiled_lstm import is_compiled, walk
from rl_training.models.recurrent.packing import Packing

LENGTHS = {"one": [1], "equal": [9] * 5, "ragged": [7, 7, 3, 2, 2, 1, 1], "rollout": [32] * 4 + [20, 12, 5]}


def made(inputs: int, size: int, layers: int, lengths: list[int]) -> tuple[nn.LSTM, list[torch.Tensor]]:
    torch.manual_seed(0)
    core = nn.LSTM(inputs, size, layers)
    for parameter in core.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    given = [torch.randn(sum(lengths), inputs), *2.0 * torch.randn(2, layers, len(lengths), size)]
    return core, [tensor.requires_grad_() for tensor in given]


def torchs(core: nn.LSTM, packing: Packing, x: torch.Tensor, *memory: torch.Tensor) -> list[torch.Tensor]:
    out, after = core(PackedSequence(x, packing.batch_sizes), memory)
    return [out.data, *after]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("inputs", "size"), [(3, 8), (7, 24), (5, 64)])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_outputs_memory_and_all_gradients_are_torchs(
    layers: int, inputs: int, size: int, lengths: list[int]
) -> None:
    core, (x, *memory) = made(inputs, size, layers, lengths)
    packing = Packing(np.array(lengths))
    assert is_compiled(core, len(lengths))
    expected = torchs(core, packing, x, *memory)
    out, after = walk(core, packing, x, memory)
    found = [out, *after]
    by = [torch.randn_like(tensor) for tensor in expected]
    wanted = [x, *memory, *core.parameters()]
    for mine, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, exact, rtol=1e-5, atol=1e-6)
    # By all of them, by the outputs alone as a loss would, and by the memory alone.
    for some in (slice(3), slice(1), slice(1, 3)):
        grads = torch.autograd.grad(found[some], wanted, by[some], retain_graph=True)
        exacts = torch.autograd.grad(expected[some], wanted, by[some], retain_graph=True)
        for mine, exact in zip(grads, exacts, strict=True):
            torch.testing.assert_close(mine, exact, rtol=1e-4, atol=1e-5 * float(exact.abs().max()) + 1e-6)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_packed_rows_are_those_of_torch(lengths: list[int]) -> None:
    packing = Packing(np.array(lengths))
    times = [torch.stack((torch.arange(n), torch.full((n,), i)), 1) for i, n in enumerate(lengths)]
    packed = pack_sequence(times)
    assert torch.equal(packing.batch_sizes, packed.batch_sizes)
    rows = packed.data.tolist()
    assert [rows[i] for i in packing.last.tolist()] == [[n - 1, i] for i, n in enumerate(lengths)]
    assert [rows[i] for i in packing.before.tolist()] == [[t - 1, i] for t, i in rows if t]
    assert np.argwhere(packing.inside).tolist() == rows


def test_large_sums_saturate_and_what_is_not_a_number_stays_so() -> None:
    core, (x, *memory) = made(3, 8, 1, [4, 4])
    packing, x = Packing(np.array([4, 4])), x.detach() * 1e4
    expected = torchs(core, packing, x, *memory)[0]
    torch.testing.assert_close(walk(core, packing, x, memory)[0], expected, atol=1e-5, rtol=1e-4)
    x[2, 0] = torch.nan  # the first sequence's second step
    out = walk(core, packing, x, memory)[0].view(4, 2, 8)
    assert torch.isnan(out[1:, 0]).all()
    assert torch.isfinite(out[:, 1]).all()


def test_what_it_does_not_compute_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_compiled(nn.LSTM(3, 8), 4)
    others = [
        nn.GRU(3, 8),
        nn.LSTM(3, 7),
        nn.LSTM(3, 8, bias=False),
        nn.LSTM(3, 8, 2, dropout=0.1),
        nn.LSTM(3, 8, bidirectional=True),
        nn.LSTM(3, 16, proj_size=8),
        nn.LSTM(3, 8).double(),
    ]
    assert not any(is_compiled(core, 4) for core in others)
    assert not is_compiled(nn.LSTM(3, 512), 64)
    monkeypatch.setattr(compiled_lstm, "library", lambda: None)
    assert not is_compiled(nn.LSTM(3, 8), 4)
