"""PPO's updates by compiled code, for small perceptrons on the CPU; see ``native/ppo_gradient.h``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Structure, c_double, c_int64, c_void_p

import numpy as np
import torch
from torch import nn

from rl_training.algorithms.declared.ppo import ClippedConfig
from rl_training.algorithms.on_policy import Epoch, Samples
from rl_training.algorithms.optimizer import FlatAdam, not_finite
from rl_training.models.distributions import ActionHead, CategoricalHead, GaussianHead
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.native import MAX_PRODUCTS, NORM_EPS, library

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


class _Adam(Structure):
    """``Adam`` in ``native/ppo_gradient.h``."""

    _fields_ = (
        ("parameters", c_int64),
        *((name, c_void_p) for name in ("flat", "grad", "exp_avg", "exp_avg_sq", "step")),
        *((name, c_double) for name in ("lr", "beta1", "beta2", "eps", "max_grad_norm")),
    )


class _CompiledLoss:
    """The surrogate of a config, and the samples that it is looked at for."""

    def __init__(self, config: ClippedConfig) -> None:
        self._surrogate = _Surrogate(
            ent_coef=config.ent_coef,
            vf_coef=config.vf_coef,
            clip_range_vf=config.clip_range_vf or 0.0,
            value_clipping=_CLIPPING.index(config.value_clipping),
            normalize_advantage=config.normalize_advantage,
        )
        self._samples = _Samples()
        self._facts = torch.empty(6, dtype=torch.float64)

    def _look_at(self, samples: Samples, rows: torch.Tensor, clip_range: float) -> None:
        of = self._samples
        of.count, of.rows = len(rows), rows.data_ptr()
        for name in ("x", "action", "log_prob", "value", "advantage", "target"):
            tensor = getattr(samples, name)
            assert tensor.is_contiguous()
            setattr(of, name, tensor.data_ptr())
        of.mask = None if samples.mask is None else samples.mask.data_ptr()
        self._surrogate.clip_range = clip_range

    def _found(self) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss, *metrics = self._facts.float()
        return loss, dict(zip(METRICS, metrics, strict=True))


class CompiledSurrogate(_CompiledLoss):
    """Computes what ``ppo_loss`` does of the outputs of any network, and its slopes by them."""

    def __init__(self, native: ctypes.CDLL, config: ClippedConfig) -> None:
        super().__init__(config)
        self._function = native.ppo_outputs
        self._function.argtypes = (*(c_void_p,) * 3, c_int64, *(c_void_p,) * 6)
        self._function.restype = c_int64

    def __call__(
        self,
        outputs: Sequence[torch.Tensor],
        samples: Samples,
        rows: torch.Tensor,
        clip_range: float,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor], list[torch.Tensor]]:
        """Return loss, metrics and slopes by ``outputs``: policy [R, A], values [R] and, of a Gaussian, log_std [A]."""
        self._look_at(samples, rows, clip_range)
        out, value, *log_std = (tensor.detach().contiguous() for tensor in outputs)
        slopes = [torch.empty_like(tensor) for tensor in (out, value, *log_std)]
        std, std_slope = (tensors[0].data_ptr() if tensors else None for tensors in (log_std, slopes[2:]))
        wrong = self._function(
            ctypes.byref(self._surrogate),
            ctypes.byref(self._samples),
            std,
            out.shape[1],
            *(tensor.data_ptr() for tensor in (out, value, *slopes[:2])),
            std_slope,
            self._facts.data_ptr(),
        )
        if wrong >= 0:
            raise _no_such_action(samples, int(rows[wrong]))
        return *self._found(), slopes


class CompiledPPO(_CompiledLoss):
    """Does what autograd and ``FlatAdam`` would, for a network whose parameters lie in the optimizer's vector."""

    def __init__(
        self, native: ctypes.CDLL, network: MLPActorCritic, optimizer: FlatAdam, config: ClippedConfig
    ) -> None:
        super().__init__(config)
        flat, grad, moments = optimizer.flat, optimizer.grad, optimizer.state_dict()
        self._sizes = [np.array(mlp.sizes, np.int64) for mlp in (network.actor, network.critic)]
        actor, critic = self._sizes
        self._optimizer, self._kept = optimizer, moments  # as long as there are addresses of them
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
        self._adam = _Adam(
            parameters=flat.numel(),
            flat=flat.data_ptr(),
            grad=grad.data_ptr(),
            **{name: tensor.data_ptr() for name, tensor in moments.items()},
            beta1=optimizer.betas[0],
            beta2=optimizer.betas[1],
            eps=optimizer.eps,
            max_grad_norm=optimizer.max_grad_norm or 0.0,
        )
        self._kl_limit = config.kl_limit or 0.0
        self._arguments = [ctypes.byref(s) for s in (self._network, self._surrogate, self._samples)]
        self._gradient, self._steps = native.ppo_gradient, native.ppo_steps
        self._gradient.argtypes, self._gradient.restype = (c_void_p,) * 4, c_int64
        self._steps.argtypes = (*(c_void_p,) * 4, c_int64, c_double, c_void_p, c_void_p)
        self._steps.restype = c_int64
        self._room, self._work = 0, torch.empty(0)
        self.max_rows = MAX_PRODUCTS // max(int((sizes[:-1] * sizes[1:]).max()) for sizes in self._sizes)
        """The largest minibatch that it is meant for."""

    def gradient(
        self, samples: Samples, rows: torch.Tensor, clip_range: float
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Write the gradient of the mean loss of some rows; return the loss and the metrics."""
        self._look_at(samples, rows, clip_range)
        self._make_room(len(rows))
        wrong = self._gradient(*self._arguments, self._facts.data_ptr())
        if wrong >= 0:
            raise _no_such_action(samples, int(rows[wrong]))
        return self._found()

    def epoch(self, samples: Samples, order: torch.Tensor, batch_size: int, clip_range: float) -> Epoch:
        """Make the gradient steps of one pass over samples in this order [R]."""
        self._look_at(samples, order, clip_range)
        self._make_room(min(batch_size + 1, len(order)))
        self._adam.lr = self._optimizer.lr
        sums = torch.zeros(8, dtype=torch.float64)
        steps = self._steps(
            *self._arguments,
            ctypes.byref(self._adam),
            batch_size,
            self._kl_limit,
            self._facts.data_ptr(),
            sums.data_ptr(),
        )
        if steps == -1:
            raise not_finite(float(self._facts[0]), float(sums[6]))
        if steps < -1:
            raise _no_such_action(samples, -2 - steps)
        loss, *metrics, norm, looked = sums.float()
        return Epoch(
            {"loss": loss, "grad_norm": norm, **dict(zip(METRICS, metrics, strict=True))}, int(looked), steps
        )

    def _make_room(self, rows: int) -> None:
        """See to it that there is room for minibatches of so many rows."""
        if rows <= self._room:
            return
        whole = -(-rows // 8) * 8
        widths, widest = (max(int(f(sizes)) for sizes in self._sizes) for f in (np.sum, np.max))
        outputs, layers = int(self._sizes[0][-1]), max(map(len, self._sizes))
        room = whole * (2 * outputs + 2 * widths + 3 * widest + layers + 17) + 16 * widths
        self._room, self._work = rows, torch.empty(room)
        self._network.work = self._work.data_ptr()


def _no_such_action(samples: Samples, row: int) -> IndexError:
    return IndexError(f"action: {int(samples.action[row])} does not exist")


def is_plain(network: MLPActorCritic, flat: torch.Tensor) -> bool:
    """Say whether a network is one that the compiled code computes: separate layers of float32 on the CPU."""
    if type(network) is not MLPActorCritic or network.shared or network.learned or flat.device.type != "cpu":
        return False
    if type(network.head) not in (CategoricalHead, GaussianHead):
        return False
    if network.actor.activation not in ("tanh", "relu"):
        return False
    norms = [*network.actor.norms, *network.critic.norms]
    if any(type(norm) is not nn.LayerNorm or norm.eps != NORM_EPS for norm in norms):
        return False
    return all(p.dtype is torch.float32 and p.requires_grad for p in network.parameters())


def compiled_ppo(network: MLPActorCritic, optimizer: FlatAdam, config: ClippedConfig) -> CompiledPPO | None:
    """Return the updates of a network, or none if there is no compiled code, or none for what this one computes."""
    native = library()
    if native is None or not is_plain(network, optimizer.flat):
        return None
    return CompiledPPO(native, network, optimizer, config)


def compiled_surrogate(
    head: ActionHead, device: torch.device, config: ClippedConfig
) -> CompiledSurrogate | None:
    """Return the surrogate for a kind of actions, or none if there is no compiled code, or none for these."""
    native = library()
    if native is None or device.type != "cpu" or type(head) not in (CategoricalHead, GaussianHead):
        return None
    return CompiledSurrogate(native, config)
