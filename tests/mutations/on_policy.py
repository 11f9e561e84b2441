"""Bugs of logic in the on-policy algorithms."""

from __future__ import annotations

from mutations.bug import of

PPO = "test_ppo_update.py test_compiled_ppo.py"
ON_POLICY = [
    *of(
        "algorithms/on_policy.py",
        "test_ppo_update.py",
        ("return gained, gained + values", "return gained, gained", "values are drawn to advantages"),
        (
            "begun = max(env_steps - 1, 0) // rollout * rollout",
            "begun = env_steps",
            "schedules move while a rollout is collected",
            "test_on_policy_options.py test_ppo_update.py test_ppo_trainer_smoke.py",
        ),
        (
            "normalizer.observe(rollout.obs[rollout.valid])",
            "normalizer.observe(rollout.obs.reshape(-1, *rollout.obs.shape[2:]))",
            "statistics count rows that are no steps",
            "test_normalizer.py test_on_policy_options.py test_ppo_update.py",
        ),
        (
            "return every if len(rows) == count else every.take(rows)",
            "return every",
            "rows that are no steps are learned from",
            "test_ppo_update.py test_ppo_trainer_smoke.py",
        ),
        (
            "return rollout.reward\n",
            "return rollout.reward * 2.0\n",
            "rewards are doubled",
        ),
        (
            "self._rng if explore else None)",
            "self._rng)",
            "evaluation draws actions",
            "test_ppo_update.py test_ppo_trainer_smoke.py test_trpo_update.py",
        ),
        (
            "return 1.0 - (target - value).var",
            "return (target - value).var",
            "explained variance is what is left unexplained",
        ),
    ),
    *of(
        "algorithms/ppo.py",
        PPO,
        (
            "torch.minimum(ratio * advantage, clipped * advantage)",
            "torch.maximum(ratio * advantage, clipped * advantage)",
            "the surrogate is the larger one",
        ),
        (
            "ratio.clamp(1.0 - clip_range, 1.0 + clip_range)",
            "ratio.clamp(max=1.0 + clip_range)",
            "ratios are only clipped from above",
        ),
        ("policy_loss - ent_coef * entropy", "policy_loss + ent_coef * entropy", "entropy is punished"),
        (
            "mean(ratio - 1.0 - log_ratio, weight)",
            "mean(-log_ratio, weight)",
            "the KL divergence is a noisier one",
        ),
        (
            "torch.maximum(error, bounded)",
            "torch.minimum(error, bounded)",
            "value clipping takes the smaller error",
        ),
        (
            "squares.sum() / (count - 1)",
            "squares.sum() / count",
            "advantages are scaled without Bessel's correction",
        ),
        ("if count - end == 1:", "if count - end < 0:", "a single sample makes a minibatch of its own"),
        (
            "while len(passes) < learner.config.n_epochs and passes[-1].steps == passes[-1].looked:",
            "while len(passes) < learner.config.n_epochs:",
            "epochs go on behind the KL limit",
        ),
        (
            "if number and self.config.recompute_advantages:",
            "if number < 0:",
            "advantages are never computed anew",
        ),
        ('float(metrics["approx_kl"]) > config.kl_limit', "False", "the KL limit is ignored"),
        (
            "learner.updates += steps",
            "learner.updates += looked",
            "a step that was not made is counted",
        ),
        (
            "linear(config.clip_range, config.clip_range_final, total, env_steps)",
            "config.clip_range",
            "the clip range has no schedule",
            "test_ppo_update.py test_on_policy_options.py",
        ),
    ),
    *of(
        "algorithms/trpo.py",
        "test_trpo_update.py",
        (" and float(better) > 0.0", "", "steps that gain nothing are taken"),
        ("float(kl) < self.target_kl and ", "", "steps beyond the trust region are taken"),
        (" + c.cg_damping * vector", "", "the Fisher matrix is not damped"),
        (
            "(2.0 * self.target_kl / curvature) ** 0.5",
            "(self.target_kl / curvature) ** 0.5",
            "steps are too short",
        ),
        (
            "                parameter.copy_(origin)\n        return False",
            "                pass\n        return False",
            "a step that was refused stays",
        ),
        (
            "direction = rest + (size / before) * direction",
            "direction = rest",
            "conjugate gradients are steepest descent",
        ),
        ("share *= c.line_search_shrinking", "share *= 0.5", "the line search has a pace of its own"),
        ("if curvature > 0.0:", "if curvature > 1e9:", "no step is ever made"),
    ),
    *of(
        "algorithms/recurrent_ppo.py",
        "test_recurrent_ppo_update.py test_recurrent_ppo_trainer_smoke.py",
        ("rollout.starts | ~before", "~before", "sequences go on through the end of an episode"),
        (
            "self._tensor(rollout.action[before]) + 1",
            "self._tensor(rollout.action[before])",
            "the last action is another one while learning",
        ),
        (
            "        obs[ends[led]] = rollout.extra_obs[after[led]]\n",
            "",
            "truncated episodes are valued at the wrong observation",
        ),
        (
            "array[some.start, some.env])",
            "array[some.start * 0, some.env])",
            "sequences begin with another memory",
        ),
        (
            'after["action"] = decision.action + 1',
            'after["action"] = decision.action',
            "the last action is another one while acting",
        ),
        (
            "for s in range(first, stop, longest)",
            "for s in range(first, stop, stop - first)",
            "what is longer than a sequence is lost",
        ),
    ),
    *of(
        "data/rollout_buffer.py",
        "test_rollout_buffer.py test_ppo_update.py",
        ("following[rollout.after == -2] = 0.0", "pass", "values go on behind a termination"),
        (
            "following[beyond] = extra[rollout.after[beyond]]",
            "pass",
            "a truncated episode is valued by the next one",
        ),
        (
            "self._valid[t] = self._terminated[t] = self._truncated[t] = self._starts[t] = False",
            "pass",
            "rows of the rollout before last shine through",
        ),
        (
            "step.truncated & ~step.terminated)",
            "step.truncated)",
            "both flags at once count as a truncation",
        ),
        (
            "self._count < self.n_steps and env_steps < self._total",
            "self._count < self.n_steps",
            "the last steps of a budget are never learned from",
            "test_rollout_buffer.py test_ppo_trainer_smoke.py",
        ),
        (
            "self._begins[envs] = ended",
            "self._begins[envs] = step.terminated",
            "a truncation begins no episode",
        ),
        ("np.array(step.next_obs[i])", "step.next_obs[i]", "last observations are views of what changes"),
        (
            "        self._begins[given] = True\n\n    # State",
            "\n    # State",
            "an interrupted episode goes on",
            "test_rollout_buffer.py test_ppo_trainer_smoke.py",
        ),
    ),
]
