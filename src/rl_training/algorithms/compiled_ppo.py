"""PPO's gradient by compiled code, for small perceptrons on the CPU; see ``native/ppo_gradient.c``."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_double, c_int64, c_void_p

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.compiled_dqn import MAX_PRODUCTS, NORM_EPS
from rl_training.algorithms.declared.ppo import ClippedConfig
from rl_training.algorithms.on_policy import Samples
from rl_training.models.distributions import CategoricalHead, GaussianHead
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.native import library

METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
_CLIPPING = ("none", "prediction", "maximum")
_PARTS = ("actor", "critic", "log_std")


class _ActorCritic(Structure):
    """``ActorCritic`` in ``native/ppo_gradient.h``."""

    _fields_ = (
        *((name, c_int64) for name in ("actor_layers", "critic_layers")),
        *((name, c_void_p) for name in ("actor_sizes", "critic_sizes")),
        *((name, c_int64) for name in ("layer_norm", "tanh", "gaussian")),
        *((name, c_void_p) for name in _PARTS),
        *((f"{name}_grad", c_void_p) for name in _PARTS),
        ("work", c_void_p),
    )


class _Surrogate(Structure):
    """``Surrogate`` in ``native/ppo_gradient.h``."""

    _fields_ = (
        *((name, c_double) for name in ("clip_range", "ent_coef", "vf_coef", "clip_range_vf")),
        *((name, c_int64) for name in ("value_clipping", "normalize_advantage")),
    )


class _Samples(Structure):
    """``Samples`` in ``native/ppo_gradient.h``."""

    _fields_ = (
        ("count", c_int64),
        *(
            (name, c_void_p)
            for name in ("rows", "x", "action", "log_prob", "value", "advantage", "target", "mask")
        ),
    )


class CompiledGradient:
    """Computes what autograd would, for a network whose parameters lie in a flat vector."""

    def __init__(
        self,
        native: ctypes.CDLL,
        network: MLPActorCritic,
        flat: torch.Tensor,
        grad: torch.Tensor,
        config: ClippedConfig,
    ) -> None:
        self._sizes = [np.array(mlp.sizes, np.int64) for mlp in (network.actor, network.critic)]
        actor, critic = self._sizes
        self._kept = (flat, grad)  # as long as there are addresses of them
        first = {
            "actor": network.actor.linears[0].weight,
            "critic": network.critic.linears[0].weight,
            "log_std": network.log_std,
        }
        places = {
            name: None if p is None else p.data_ptr() - flat.data_ptr()
            for name, p in first.items()
            if isinstance(p, torch.Tensor) or p is None
        }
        self._network = _ActorCritic(
            actor_layers=len(actor) - 1,
            critic_layers=len(critic) - 1,
            actor_sizes=actor.ctypes.data,
            critic_sizes=critic.ctypes.data,
            layer_norm=len(network.actor.norms) > 0,
            tanh=network.actor.activation == "tanh",
            gaussian=network.log_std is not None,
            **{name: None if at is None else flat.data_ptr() + at for name, at in places.items()},
            **{f"{name}_grad": None if at is None else grad.data_ptr() + at for name, at in places.items()},
        )
        self._surrogate = _Surrogate(
            ent_coef=config.ent_coef,
            vf_coef=config.vf_coef,
            clip_range_vf=config.clip_range_vf or 0.0,
            value_clipping=_CLIPPING.index(config.value_clipping),
            normalize_advantage=config.normalize_advantage,
        )
        self._samples = _Samples()
        self._arguments = [ctypes.byref(s) for s in (self._network, self._surrogate, self._samples)]
        self._function = native.ppo_gradient
        self._function.argtypes, self._function.restype = (c_void_p,) * 4, c_int64
        self._room, self._work = 0, torch.empty(0)
        self._facts = torch.empty(6, dtype=torch.float64)
        self.max_rows = MAX_PRODUCTS // max(int((sizes[:-1] * sizes[1:]).max()) for sizes in self._sizes)
        """The largest minibatch that it is meant for."""

    def __call__(
        self, samples: Samples, rows: torch.Tensor, clip_range: float
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Write the gradient of the mean loss of some rows; return the loss and the metrics."""
        of = self._samples
        of.count, of.rows = len(rows), rows.data_ptr()
        for name in ("x", "action", "log_prob", "value", "advantage", "target"):
            tensor = getattr(samples, name)
            assert tensor.is_contiguous()
            setattr(of, name, tensor.data_ptr())
        of.mask = None if samples.mask is None else samples.mask.data_ptr()
        self._surrogate.clip_range = clip_range
        if len(rows) > self._room:
            self._make_room(len(rows))
        wrong = self._function(*self._arguments, self._facts.data_ptr())
        if wrong >= 0:
            raise IndexError(f"action: {int(samples.action[rows[wrong]])} does not exist")
        loss, *metrics = self._facts.float()
        return loss, dict(zip(METRICS, metrics, strict=True))

    def _make_room(self, rows: int) -> None:
        whole = -(-rows // 8) * 8
        widths, widest = (max(int(f(sizes)) for sizes in self._sizes) for f in (np.sum, np.max))
        outputs, layers = int(self._sizes[0][-1]), max(map(len, self._sizes))
        room = whole * (2 * outputs + 2 * widths + 3 * widest + layers + 17) + 16 * widths
        self._room, self._work = rows, torch.empty(room)
        self._network.work = self._work.data_ptr()


def is_plain(network: MLPActorCritic, flat: torch.Tensor) -> bool:
    """Say whether a network is one that the compiled code computes: separate layers of float32 on the CPU."""
    if type(network) is not MLPActorCritic or network.shared or flat.device.type != "cpu":
        return False
    if type(network.head) not in (CategoricalHead, GaussianHead):
        return False
    if network.actor.activation not in ("tanh", "relu"):
        return False
    norms = [*network.actor.norms, *network.critic.norms]
    if any(type(norm) is not nn.LayerNorm or norm.eps != NORM_EPS for norm in norms):
        return False
    return all(p.dtype is torch.float32 and p.requires_grad for p in network.parameters())


def compiled_gradient(
    network: MLPActorCritic, flat: torch.Tensor, grad: torch.Tensor, config: ClippedConfig
) -> CompiledGradient | None:
    """Return the gradient of a network, or none if there is no compiled code, or none for what this one computes."""
    native = library()
    if native is None or not is_plain(network, flat):
        return None
    return CompiledGradient(native, network, flat, grad, config)
