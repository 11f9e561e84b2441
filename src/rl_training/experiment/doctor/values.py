"""What an agent takes observations to be worth, whatever it calls its values."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rl_training.algorithms.discrete_sac import DiscreteSAC
from rl_training.algorithms.drqn import DRQN, unscale
from rl_training.algorithms.drqv2 import DrQv2
from rl_training.algorithms.learner import Learner
from rl_training.algorithms.on_policy import OnPolicyLearner
from rl_training.algorithms.q_learning import QLearner
from rl_training.models.continuous import ContinuousModel
from rl_training.models.mlp_actor_critic import MLPActorCritic
from rl_training.spaces import Array


def state_values(learner: Any, obs: Array) -> Array | None:
    """Return the values [N] of observations [N, *obs] that begin an episode, in the units of the rewards.

    None is returned for learners of other packages, of whose values nothing is known.
    """
    if not isinstance(learner, Learner):
        return None
    with torch.no_grad():
        found = _values(learner, torch.as_tensor(obs, device=learner.device), obs)
    return None if found is None else np.asarray(found, np.float64)


def _values(learner: Learner[Any, Any], x: torch.Tensor, obs: Array) -> Any:
    if isinstance(learner, DRQN):
        q = torch.as_tensor(learner.step(obs, learner.initial_carry(len(obs)))[0])
        return (unscale(q) if learner.config.value_rescaling else q).amax(1).cpu()
    if isinstance(learner, QLearner):
        return learner.q_values(obs).max(1)
    if isinstance(learner, OnPolicyLearner):
        network, scale = learner.network, 1.0
        if isinstance(network, MLPActorCritic):
            value = network.value(x)
        else:
            value = network(x, network.initial_state(len(obs)))[1]
        if learner.reward_scale is not None:
            scale = float(learner.reward_scale.var + learner.reward_scale.eps) ** 0.5
        return value.cpu() * scale
    if isinstance(learner, DiscreteSAC):
        return learner.network.values(x).mean((0, 2)).cpu()
    if isinstance(learner, DrQv2):
        features = learner.network.encoder(x)
        values = learner.network.critic(features, learner.network.actor(features))
        return values.mean(0).cpu() / learner.config.reward_scale
    network = getattr(learner, "network", None)
    if isinstance(network, ContinuousModel):
        return network.values(x, network.act(x)).mean((0, 2)).cpu()
    return None


def value_gap(learner: Any, obs: Array) -> float | None:
    """Return how much more the first of two observations [2, *obs] is worth than the second.

    What both have in common, such as the entropy of an untrained policy, cancels.
    """
    values = state_values(learner, obs)
    return None if values is None else float(values[0] - values[1])


def action_outputs(learner: Any, obs: Array) -> Array | None:
    """Return what an actor makes of observations [N, *obs], before anything is drawn; none where values decide."""
    if not isinstance(learner, Learner):
        return None
    x = torch.as_tensor(obs, device=learner.device)
    network: Any = getattr(learner, "network", None)
    with torch.no_grad():
        if isinstance(learner, OnPolicyLearner):
            known = isinstance(network, MLPActorCritic)
            out = network.policy(x) if known else network(x, network.initial_state(len(obs)))[0]
        elif isinstance(learner, DiscreteSAC):
            out = network.logits(x)
        elif isinstance(learner, DrQv2) or isinstance(network, ContinuousModel):
            out = network.act(x)
        else:
            return None
    return np.asarray(out.cpu().numpy())
