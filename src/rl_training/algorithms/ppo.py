"""PPO (Schulman et al. 2017): several passes over a rollout, by a surrogate that stops paying where it goes too far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import torch

from rl_training.algorithms.compiled_ppo import compiled_ppo
from rl_training.algorithms.declared.ppo import ClippedConfig, PPOConfig
from rl_training.algorithms.on_policy import Epoch, OnPolicyLearner, Samples, explained_variance
from rl_training.algorithms.protocol import Means, UpdateResult
from rl_training.algorithms.schedules import linear
from rl_training.data.rollout_buffer import Rollout
from rl_training.models.distributions import Distribution
from rl_training.models.mlp_actor_critic import MLPActorCritic

Metrics = Mapping[str, torch.Tensor]
ValueClipping = Literal["none", "prediction", "maximum"]


def ppo_loss(
    chances: Distribution,
    value: torch.Tensor,
    samples: Samples,
    *,
    clip_range: float,
    ent_coef: float = 0.0,
    vf_coef: float = 0.5,
    value_clipping: ValueClipping = "none",
    clip_range_vf: float | None = None,
    normalize_advantage: bool = True,
    weight: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the loss and named metrics, all scalars.

    ``chances`` and ``value`` [R] are what the network gives now, ``samples`` what it gave when it acted. ``weight`` [R]
    is 1 for samples that count and 0 for padding; without it all count. Gradients flow through ``chances`` and
    ``value`` only.
    """
    advantage = samples.advantage
    if normalize_advantage:
        advantage = standardised(advantage, weight)
    log_ratio = chances.log_prob(samples.action) - samples.log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    policy_loss = -mean(torch.minimum(ratio * advantage, clipped * advantage), weight)
    error = (value - samples.target).square()
    if value_clipping != "none":
        assert clip_range_vf is not None
        moved = samples.value + (value - samples.value).clamp(-clip_range_vf, clip_range_vf)
        bounded = (moved - samples.target).square()
        error = bounded if value_clipping == "prediction" else torch.maximum(error, bounded)
    value_loss, entropy = mean(error, weight), mean(chances.entropy(), weight)
    loss = policy_loss - ent_coef * entropy + vf_coef * value_loss
    with torch.no_grad():
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": mean(ratio - 1.0 - log_ratio, weight),
            "clip_fraction": mean(((ratio - 1.0).abs() > clip_range).float(), weight),
        }
    return loss, {name: metric.detach() for name, metric in metrics.items()}


def mean(each: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    """Return the mean of what counts."""
    return each.mean() if weight is None else (each * weight).sum() / weight.sum()


def standardised(advantage: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """Return advantages with mean 0 and standard deviation 1 over what counts; a single one is left as it is."""
    count = len(advantage) if weight is None else int(weight.sum())
    if count < 2:
        return advantage
    # In double precision, so that equal advantages become zeros and not rounding errors blown up.
    exact = advantage.double()
    centred = exact - mean(exact, weight)
    squares = centred.square() if weight is None else centred.square() * weight
    return (centred / ((squares.sum() / (count - 1)).sqrt() + 1e-8)).to(advantage.dtype)


def minibatches(order: torch.Tensor, batch_size: int | None) -> Iterator[torch.Tensor]:
    """Cut an order [R] into portions; what is left over makes a smaller one, but a single sample joins the last."""
    count = len(order)
    batch_size = batch_size or count
    start = 0
    while start < count:
        end = start + batch_size
        if count - end == 1:
            end = count
        yield order[start:end]
        start = end


class PPO(OnPolicyLearner[PPOConfig, MLPActorCritic]):
    """The learner of PPO."""

    def __init__(self, network: MLPActorCritic, config: PPOConfig, **options: Any) -> None:
        super().__init__(network, config, **options)
        self.optimizer = self.optimizers["all"] = self.adam(network)
        self._compiled = compiled_ppo(network, self.optimizer, config)
        self.clip_range = config.clip_range
        self._made()

    def _schedule(self, env_steps: int) -> None:
        self.clip_range = clip_range_at(self.config, self._total, env_steps)

    def status(self) -> dict[str, float]:
        """Return the clip range and the learning rate."""
        return {"clip_range": self.clip_range, **super().status()}

    def warnings(self, row: Mapping[str, float]) -> dict[str, str]:
        """Say what happens to what is left over of a rollout."""
        return leftover_warning(self.config, self._num_envs)

    def update(self, batch: Rollout) -> UpdateResult:
        """Make several passes over a rollout, and forget it."""
        reward = self.scaled_rewards(batch)
        samples = self.samples(batch, reward)

        def epoch(number: int) -> Epoch:
            if number and self.config.recompute_advantages:
                again = self.samples(batch, reward)
                samples.advantage, samples.target = again.advantage, again.target
            return self._epoch(samples, torch.from_numpy(self._rng.permutation(len(samples.value))))

        result = pass_over(self, epoch, explained_variance(samples.value, samples.target))
        self.note_observations(batch)
        return result

    def _epoch(self, samples: Samples, order: torch.Tensor) -> Epoch:
        size = min(self.config.batch_size or len(order), len(order))
        if self._compiled is not None and size <= self._compiled.max_rows:
            return self._compiled.epoch(samples, order, size, self.clip_range)
        return add_up(self._step(samples.take(rows.to(self.device))) for rows in minibatches(order, size))

    def _step(self, samples: Samples) -> Metrics:
        """Make one gradient step, unless the policy has moved too far already: then there is no ``grad_norm``."""
        loss, metrics = self._loss(samples)
        if too_far(self.config, metrics):
            return metrics
        norm = self.optimizer.step(loss)
        return {**metrics, "loss": loss.detach(), "grad_norm": norm}

    def _loss(self, samples: Samples) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        body = self.network.trunk(samples.x)
        chances = self.head.distribution(self.network.actor(body), self.network.log_std, samples.mask)
        return ppo_loss(
            chances, self.network.critic(body)[:, 0], samples, **loss_options(self.config, self.clip_range)
        )


def add_up(steps: Iterator[Metrics]) -> Epoch:
    """Make gradient steps until one says by a missing ``grad_norm`` that it was not made."""
    found: dict[str, list[torch.Tensor]] = {}
    looked = 0
    for metrics in steps:
        looked += 1
        for name, metric in metrics.items():
            found.setdefault(name, []).append(metric)
        if "grad_norm" not in metrics:
            break
    sums = {name: torch.stack(values).sum() for name, values in found.items()}
    return Epoch(sums, looked, len(found.get("grad_norm", ())))


def pass_over(
    learner: OnPolicyLearner[Any, Any], epoch: Callable[[int], Epoch], explained: torch.Tensor
) -> UpdateResult:
    """Make the gradient steps of all epochs, or of those up to one that ended early."""
    passes = [epoch(0)]
    while len(passes) < learner.config.n_epochs and passes[-1].steps == passes[-1].looked:
        passes.append(epoch(len(passes)))
    steps, looked = sum(one.steps for one in passes), sum(one.looked for one in passes)
    learner.updates += steps
    means = {
        name: torch.stack([one.sums[name] for one in passes if name in one.sums]).sum() / count
        for name in sorted({name for one in passes for name in one.sums})
        if (count := steps if name in ("loss", "grad_norm") else looked)
    }
    extra = {"explained_variance": explained, "epochs": torch.tensor(float(len(passes)))}
    if learner.network.log_std is not None:
        extra["std"] = learner.network.log_std.detach().exp().mean()
    return UpdateResult(Means({**means, **extra}), gradient_steps=steps)


def loss_options(config: ClippedConfig, clip_range: float) -> dict[str, Any]:
    """Return the keywords of ``ppo_loss``."""
    names = ("ent_coef", "vf_coef", "value_clipping", "clip_range_vf", "normalize_advantage")
    return {"clip_range": clip_range, **{name: getattr(config, name) for name in names}}


def clip_range_at(config: ClippedConfig, total: int, env_steps: int) -> float:
    """Return the clip range after so many env steps."""
    if config.clip_range_final is None:
        return config.clip_range
    return linear(config.clip_range, config.clip_range_final, total, env_steps)


def too_far(config: ClippedConfig, metrics: Mapping[str, torch.Tensor]) -> bool:
    """Say whether the policy has moved further than it should in one update."""
    return config.kl_limit is not None and float(metrics["approx_kl"]) > config.kl_limit


def leftover_warning(config: ClippedConfig, num_envs: int) -> dict[str, str]:
    """Say what happens to what is left over, if minibatches do not divide a rollout."""
    rollout = config.n_steps * num_envs
    if config.batch_size is None or not rollout % config.batch_size:
        return {}
    left = rollout % config.batch_size
    if config.batch_size > rollout:
        what = f"every minibatch is a whole rollout of {rollout}"
    elif left == 1:
        what = f"the last minibatch of each epoch has {config.batch_size + 1}"
    else:
        what = f"the last minibatch of each epoch has {left}"
    return {"batch_size": f"algo_kwargs.batch_size: {config.batch_size} does not divide {rollout}: {what}"}
