"""What networks with a memory have in common: an encoder, what happened last, and a recurrent core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from rl_training.models.encoders import Cnn, encoder_of
from rl_training.models.features import Apart, Obs
from rl_training.models.mlp import ACTIVATIONS, MLP
from rl_training.models.recurrent.compiled_lstm import is_compiled, walk
from rl_training.models.recurrent.packing import Packing

State = dict[str, torch.Tensor]
"""What is remembered of B episodes, each tensor with B rows; all zeros before an episode's first observation.

``hidden`` and, of an LSTM, ``cell`` are [B, layers, size]. Where they are inputs, ``action`` [B] is one more than the
last action (0: there was none), and ``reward`` [B] the last reward.
"""


class RecurrentBody(nn.Module):
    """An encoder, an MLP and an LSTM or GRU ``core``; subclasses put heads on the features [T, B, core_size].

    With ``prev_action`` and ``prev_reward``, the core also sees the last action (one-hot) and the last reward.
    ``layer_norm`` normalises the layers of the MLP. ``encoder`` replaces it: a module from observations
    [B, *obs] to features [B, encoder_size].
    """

    has_modes: ClassVar[bool] = False  # the core of torch has: see modes.py

    def __init__(
        self,
        obs: Obs,
        num_actions: int,
        hidden_sizes: Sequence[int] = (64,),
        *,
        core: Literal["lstm", "gru"] = "lstm",
        core_size: int = 64,
        core_layers: int = 1,
        activation: str = "relu",
        normalize_obs: bool = False,
        layer_norm: bool = False,
        prev_action: bool = False,
        prev_reward: bool = False,
        encoder: nn.Module | None = None,
        encoder_size: int = 0,
        cnn: Cnn = "auto",
    ) -> None:
        super().__init__()
        self.num_actions = num_actions
        self.prev_action, self.prev_reward = prev_action, prev_reward
        self.core_size, self.core_layers = core_size, core_layers
        self.packaged_encoder = encoder is None
        if encoder is None:
            features = encoder_of(obs, normalize=normalize_obs, cnn=cnn)
            encoder = nn.Sequential(features)
            if hidden_sizes:
                encoder.append(MLP([features.size, *hidden_sizes], activation, layer_norm=layer_norm))
                encoder.append(ACTIVATIONS[activation]())
                if layer_norm:
                    encoder.insert(2, nn.LayerNorm(hidden_sizes[-1]))
            encoder_size = hidden_sizes[-1] if hidden_sizes else features.size
        self.encoder = encoder
        inputs = encoder_size + num_actions * prev_action + prev_reward
        cores = {"lstm": nn.LSTM, "gru": nn.GRU}
        self.core = cores[core](inputs, core_size, core_layers)

    def initial_state(self, batch_size: int = 1) -> State:
        """Return the memory of ``batch_size`` episodes that are about to begin."""
        device = self.core.weight_ih_l0.device
        sizes = (batch_size, self.core_layers, self.core_size)
        state = {"hidden": torch.zeros(sizes, device=device)}
        if isinstance(self.core, nn.LSTM):
            state["cell"] = torch.zeros(sizes, device=device)
        if self.prev_action:
            state["action"] = torch.zeros(batch_size, dtype=torch.int64, device=device)
        if self.prev_reward:
            state["reward"] = torch.zeros(batch_size, device=device)
        return state

    def reset_state(self, state: State, where: torch.Tensor) -> State:
        """Return a memory that has forgotten everything ``where`` [B] an episode begins."""
        return {name: torch.where(_like(where, t), torch.zeros_like(t), t) for name, t in state.items()}

    def features_sequence(
        self,
        obs: torch.Tensor,
        state: State,
        *,
        actions: torch.Tensor | None = None,
        rewards: torch.Tensor | None = None,
        starts: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, State]:
        """Return the features [T, B, core_size] of sequences [T, B, *obs], and the memory that includes them.

        ``state`` is the memory before the first observations. ``actions`` and ``rewards`` [T - 1, B] are those
        between the observations, needed only where they are inputs. ``starts`` [T, B] says which observations
        begin an episode: of what came before them, nothing is known. What is done in the last of them and what it
        brings is for the caller to write into the memory.
        """
        if starts is not None:
            state = self.reset_state(state, starts[0])
        x = self._inputs(obs, state, actions, rewards, starts)
        cuts = [0, len(obs)] if starts is None else _cuts(starts)
        memory = [state[name].transpose(0, 1).contiguous() for name in ("hidden", "cell") if name in state]
        outputs = []
        for begin, end in pairwise(cuts):
            if begin:
                assert starts is not None
                forgets = starts[begin][None, :, None]
                memory = [torch.where(forgets, torch.zeros_like(part), part) for part in memory]
            lengths = np.full(obs.shape[1], end - begin)
            out, memory = self._walk(x[begin:end].flatten(0, 1), Packing(lengths), memory)
            outputs.append(out)
        out = (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).view(*obs.shape[:2], -1)
        after = {**state, **dict(zip(("hidden", "cell"), (m.transpose(0, 1) for m in memory), strict=False))}
        return out, after

    def step(self, obs: torch.Tensor | Apart, state: State) -> tuple[torch.Tensor, State]:
        """Return the features [B, core_size] of one observation each, and the memory that includes them.

        That is what ``features_sequence`` gives for one step, written out in operations that every format of exported
        networks has.
        """
        x = self._with_past(self.encoder(obs), state)
        hidden, cells = [], []
        for layer, (of_x, of_h, bias_x, bias_h) in enumerate(self.core.all_weights):
            before = state["hidden"][:, layer]
            by_x, by_h = nn.functional.linear(x, of_x, bias_x), nn.functional.linear(before, of_h, bias_h)
            if isinstance(self.core, nn.LSTM):
                enter, keep, new, show = (by_x + by_h).chunk(4, 1)
                cell = keep.sigmoid() * state["cell"][:, layer] + enter.sigmoid() * new.tanh()
                x = show.sigmoid() * cell.tanh()
                cells.append(cell)
            else:
                (reset_x, keep_x, new_x), (reset_h, keep_h, new_h) = by_x.chunk(3, 1), by_h.chunk(3, 1)
                keep = (keep_x + keep_h).sigmoid()
                new = (new_x + (reset_x + reset_h).sigmoid() * new_h).tanh()
                x = (1.0 - keep) * new + keep * before
            hidden.append(x)
        after = {**state, "hidden": torch.stack(hidden, 1)}
        return x, {**after, "cell": torch.stack(cells, 1)} if cells else after

    def features_packed(
        self, obs: torch.Tensor, state: State, packing: Packing, past: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Return the features [R, core_size] of observations [R, *obs] of packed sequences.

        ``state`` is the memory of the S sequences before them, and ``past`` says what was before every row where that
        is an input: ``action`` [R], one more than it was or 0, and ``reward`` [R].
        """
        x = self._with_past(self.encoder(obs), past)
        memory = [state[name].transpose(0, 1).contiguous() for name in ("hidden", "cell") if name in state]
        return self._walk(x, packing, memory, remember=False)[0]

    def _walk(
        self, x: torch.Tensor, packing: Packing, memory: list[torch.Tensor], *, remember: bool = True
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return what the core gives for inputs [R, in], and the memory [layers, S, size] after them, if asked for."""
        core = self.core
        if is_compiled(core, len(packing.lengths)):
            assert isinstance(core, nn.LSTM)
            return walk(core, packing, x, memory, remember=remember)
        before = (memory[0], memory[1]) if len(memory) > 1 else memory[0]
        out, after = core(PackedSequence(x, packing.batch_sizes), before)
        return out.data, list(after) if len(memory) > 1 else [after]

    def _with_past(self, x: torch.Tensor, past: Mapping[str, torch.Tensor]) -> torch.Tensor:
        parts = [x]
        if self.prev_action:
            parts.append(nn.functional.one_hot(past["action"], self.num_actions + 1)[..., 1:].float())
        if self.prev_reward:
            parts.append(past["reward"][..., None])
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def _inputs(
        self,
        obs: torch.Tensor,
        state: State,
        actions: torch.Tensor | None,
        rewards: torch.Tensor | None,
        starts: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return what the core sees [T, B, inputs]."""
        steps, batch = obs.shape[:2]
        past = {}
        if self.prev_action:
            past["action"] = _shifted(
                state["action"], None if actions is None else actions + 1, steps, starts
            )
        if self.prev_reward:
            past["reward"] = _shifted(state["reward"], rewards, steps, starts)
        return self._with_past(self.encoder(obs.flatten(0, 1)).view(steps, batch, -1), past)


def _like(where: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return where.reshape(-1, *(1,) * (tensor.ndim - 1))


def _shifted(
    first: torch.Tensor, following: torch.Tensor | None, steps: int, starts: torch.Tensor | None
) -> torch.Tensor:
    """Return what was before each of T observations [T, B]: ``first`` [B], then ``following`` [T - 1, B]."""
    if following is None:
        if steps > 1:
            raise ValueError("the network takes past actions or rewards as inputs: hand them in")
        return first[None]
    before = torch.cat([first[None], following])
    return before if starts is None else torch.where(starts, torch.zeros_like(before), before)


def _cuts(starts: torch.Tensor) -> list[int]:
    """Return 0, the later steps at which any sequence begins an episode, and the number of steps."""
    anywhere = starts[1:].any(1).nonzero().flatten() + 1
    return [0, *anywhere.tolist(), len(starts)]
