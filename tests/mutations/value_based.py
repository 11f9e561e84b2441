"""Bugs of logic in the value-based family, with and without a memory, and in what all learners share."""

from __future__ import annotations

from mutations.bug import of

VALUE_BASED = [
    *of(
        "algorithms/dqn.py",
        "test_dqn_update.py",
        (
            "choosing = next_q_target if next_q_online is None else next_q_online",
            "choosing = next_q_target",
            "the pure loss ignores Double",
        ),
        (
            "target = reward + discount * following",
            "target = reward + following",
            "targets are not discounted, and go on behind a termination",
        ),
        ("priority=error.abs()", "priority=error", "priorities of negative errors are negative"),
        (
            "loss = (head.each if batch.weight is None else head.each * batch.weight).mean()",
            "loss = head.each.mean()",
            "the pure loss ignores importance weights",
        ),
        ("batch.next_mask)).detach()", "batch.next_mask))", "the gradient flows into the target"),
        (
            "            batch = dataclasses.replace(batch, weight=weight)\n        with torch.no_grad():\n",
            "            pass\n        with torch.no_grad():\n",
            "a compiled update ignores the weights it is given",
        ),
    ),
    *of(
        "algorithms/c51.py",
        "test_c51_update.py",
        ("below = position.floor()", "below = position.round()", "mass goes to the nearest atom and beyond"),
        (
            "probabilities * (1.0 - upper_share)",
            "probabilities",
            "the projection makes mass out of nothing",
        ),
        (
            "moved = reward[:, None] + discount[:, None] * support",
            "moved = reward[:, None] + support",
            "the projection does not discount",
        ),
        (
            "each = -(target * chosen.log_softmax(1)).sum(1)",
            "each = -(target * chosen.log_softmax(1)).mean(1)",
            "the cross-entropy is an average over the atoms",
        ),
        (
            "beyond & (batch.discount == 0.0)",
            "beyond & (batch.discount != 0.0)",
            "targets outside the support count as proof where they are estimates",
        ),
        (
            "return (value < low - margin) | (value > high + margin)",
            "return value > high + margin",
            "returns below the support go unseen",
        ),
        (
            "if not proof and row.get(",
            "if row.get(",
            "a single return outside the support is not worth a warning",
        ),
    ),
    *of(
        "algorithms/qr_dqn.py",
        "test_qr_dqn_update.py",
        ("1.0 - 2.0 * fraction", "1.0 - fraction", "errors above zero have the wrong weight"),
        (
            "ctx.save_for_backward(tilted.sum(2).div_(count))",
            "ctx.save_for_backward(tilted.sum(2))",
            "the gradient is summed over the targets, the loss averaged",
        ),
        ("alpha=0.5 * kappa", "alpha=kappa", "Huber's loss is too small within kappa"),
        (
            "batch.reward[:, None] + batch.discount[:, None] * following",
            "batch.reward[:, None] + following",
            "targets are not discounted",
        ),
        (
            "priority=each.detach()",
            "priority=(value - target_value).abs()",
            "priorities are errors of means, not losses",
        ),
    ),
    *of(
        "algorithms/iqn.py",
        "test_iqn_update.py",
        (
            "self._rng.random((batch, count), np.float32)",
            "np.repeat(self._rng.random((1, count), np.float32), batch, 0)",
            "all samples of a batch share their fractions",
        ),
        (
            "midpoints(config.num_policy_quantiles)",
            "0.5 * midpoints(config.num_policy_quantiles)",
            "actions are chosen by the lower half of the returns",
        ),
        (
            "fractions = self._policy.expand(rows(obs), -1)",
            "fractions = self._draw(rows(obs), self.config.num_policy_quantiles)",
            "actions are chosen by drawn fractions",
        ),
    ),
    *of(
        "algorithms/value_learner.py",
        "test_dqn_update.py test_learner.py",
        (
            "1.0 - (1.0 - self.config.tau) ** times",
            "self.config.tau",
            "targets follow once where several intervals have passed",
        ),
        (
            "passed = env_steps // interval - self._env_steps // interval",
            "passed = int(env_steps % interval == 0)",
            "a target sync is missed where no step hits the interval exactly",
        ),
        ("if env_steps < c.learning_starts:", "if env_steps < 0:", "epsilon fades during the warm-up"),
        (
            "elif self._online_noise:",
            "elif not c.learning_starts + 1:",
            "noisy networks explore by epsilon, too",
            "test_noisy.py test_value_family.py",
        ),
        (
            "fade = c.exploration_fraction * self._total",
            "fade = self._total",
            "epsilon fades over the whole run",
        ),
        (
            "q.masked_fill(~mask, -torch.inf)",
            "q.masked_fill(~mask, 0.0)",
            "forbidden actions are worth 0, which may be the best",
            "test_action_masks.py",
        ),
        (
            "return greedy_actions(self._rng.random(mask.shape), mask)",
            "return self._rng.integers(0, self.num_actions, count)",
            "random actions ignore the mask",
            "test_action_masks.py",
        ),
        ('"td_error_mean": head.error.abs()', '"td_error_mean": head.error', "errors cancel in the log"),
        (
            "        share_normalizers(self.online, copied)\n",
            "",
            "the target network has statistics of its own",
            "test_normalizer.py test_dqn_update.py",
            "The learner observes with every normaliser that it owns, so both have the same statistics.",
        ),
    ),
    *of(
        "algorithms/q_learning.py",
        "test_dqn_update.py test_value_family.py",
        (
            "return Decision(greedy_actions(self.q_values(obs, noisy=True), mask))",
            "return Decision(greedy_actions(self.q_values(obs), mask))",
            "a single environment explores without noise",
            "test_noisy.py test_value_family.py",
        ),
        (
            "explores = self._rng.random(len(obs)) < self.epsilon",
            "explores = np.full(len(obs), self._rng.random() < self.epsilon)",
            "one coin decides for all environments",
        ),
        (
            "out)), batch.next_mask))",
            "out)), None))",
            "targets are made of forbidden actions",
            "test_action_masks.py",
        ),
        (
            "self._online_noise if network is self.online else self._target_noise",
            "self._online_noise",
            "the target network is never disturbed",
            "test_noisy.py test_value_family.py",
        ),
        (
            "head.each if batch.weight is None else head.each * batch.weight",
            "head.each",
            "updates ignore importance weights",
            "test_value_family.py test_c51_update.py",
        ),
    ),
    *of(
        "algorithms/drqn.py",
        "test_drqn_update.py",
        (") + _EPS * x", ")", "rescaling lacks its linear part"),
        ("batch.mask & (late | batch.starts[0])", "batch.mask & late", "episodes' beginnings are burnt in"),
        (
            "batch.mask & (late | batch.starts[0])",
            "late | batch.starts[0]",
            "padding is learned from",
        ),
        (
            "eta * errors.amax(0) + (1.0 - eta) * mean",
            "(1.0 - eta) * errors.amax(0) + eta * mean",
            "eta weighs the mean instead of the largest error",
        ),
        (
            "state[name], state[name].detach())",
            "state[name], state[name])",
            "gradients flow into the burn-in",
        ),
        (
            "choosing = (q.detach() if self.config.double else next_q)",
            "choosing = next_q",
            "Double is ignored",
        ),
        (
            'state["action"] = batch.action[cut - 1] + 1',
            'state["action"] = batch.action[cut - 1]',
            "behind the burn-in, the last action is another one",
        ),
        (
            "each = head.each if batch.weight is None else head.each * batch.weight[at % size]",
            "each = head.each",
            "importance weights are ignored",
        ),
        (
            "rescale(reward + discount * unscale(following))",
            "rescale(reward + discount * following)",
            "targets are made of rescaled values",
        ),
        (
            "mean = errors.sum(0) / learned.sum(0).clamp(min=1)",
            "mean = errors.mean(0)",
            "priorities of short sequences count their padding",
        ),
        (
            "        begun = age % period == 0\n        both",
            "        replaced, begun = age < 0, age % period == 0\n        both",
            "a memory that should restart goes on for ever",
            "test_drqn_restart.py",
        ),
    ),
    *of(
        "algorithms/optimizer.py",
        "test_learner.py test_dqn_update.py",
        (
            "self.grad.mul_(self.max_grad_norm / (norm_value + 1e-6))",
            "self.grad.clamp_(-self.max_grad_norm, self.max_grad_norm)",
            "gradients are clipped number by number",
        ),
        ("target.lerp_(online, tau)", "target.lerp_(online, 1.0 - tau)", "targets follow almost at once"),
    ),
    *of(
        "algorithms/schedules.py",
        "test_dqn_update.py test_ppo_update.py",
        ("steps / duration", "(steps / duration) ** 2", "schedules are no straight lines"),
    ),
    *of(
        "algorithms/learner.py",
        "test_learner.py test_ddpg_update.py test_sac_update.py",
        (
            "rate if own == c.learning_rate else rate * (own / c.learning_rate)",
            "rate",
            "a schedule gives the actor the critics' learning rate",
        ),
        (
            '        self._env_steps = _counted(counters, "env_steps")\n',
            '        _counted(counters, "env_steps")\n',
            "a loaded learner begins its schedules anew",
            "test_learner.py test_dqn_update.py test_resume_exact.py",
        ),
    ),
]
