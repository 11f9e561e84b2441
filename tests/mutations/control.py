"""Bugs of logic in the actor-critics with replay."""

from __future__ import annotations

from mutations.bug import of

CONTROL = [
    *of(
        "algorithms/td3.py",
        "test_td3_update.py",
        (", noise, self.config.target_noise_clip)", ", noise)", "the target's noise is not clipped"),
        (" * self.config.target_policy_noise", "", "the target's noise has a deviation of one"),
    ),
    *of(
        "algorithms/ddpg.py",
        "test_ddpg_update.py test_td3_update.py",
        (
            "value = smallest(self._slow",
            "value = torch.mean(dim=0, input=self._slow",
            "TD3 averages its critics",
        ),
        ("return -values.mean()", "return values.mean()", "the policy goes downhill"),
        (
            "torch.ops.aten.tanh_backward(slope * (-1.0 / len(x)), action)",
            "slope * (-1.0 / len(x))",
            "the compiled step forgets the slope of tanh",
        ),
        (
            "targets_wait: ClassVar[bool] = True",
            "targets_wait: ClassVar[bool] = False",
            "targets follow at updates in which the actor waits",
        ),
        (
            "        if explore:\n            action, carry = self.noise.add(action, carry, self._rng)\n",
            "        action, carry = self.noise.add(action, carry, self._rng)\n",
            "evaluation plays with noise",
            "test_ddpg_update.py test_actor_critic_options.py test_ddpg_trainer_smoke.py",
        ),
    ),
    *of(
        "algorithms/sac.py",
        "test_sac_update.py",
        (
            "[:, 0] - self.temperature() * log_prob",
            "[:, 0] + self.temperature() * log_prob",
            "certainty is paid",
        ),
        (
            "value = smallest(values, self._chosen())[:, 0]",
            "value = values.mean(0)[:, 0]",
            "targets are means of the critics",
        ),
        ("(2.0 * alpha * action - slope", "(alpha * action - slope", "half of tanh's slope is lost"),
        (
            "return of_mean, of_mean * moved - alpha * share",
            "return of_mean, of_mean * moved",
            "the deviation shrinks",
        ),
        (
            "        of_std.masked_fill_(given != log_std, 0.0)\n",
            "",
            "deviations at their bounds go on being pushed beyond",
        ),
        (
            "-float(self._action_size) if auto",
            "float(self._action_size) if auto",
            "the entropy's target has no sign",
        ),
        (
            "[int(i) for i in self._rng.permutation(c.n_critics)[: c.target_critics]]",
            "list(range(c.target_critics))",
            "always the same critics make the target",
            "test_sac_update.py test_actor_critic_options.py",
        ),
        (
            "return critics.mean_slope(x, action) if part else",
            "return",
            "the actor climbs the smallest of an ensemble",
            "test_sac_update.py test_actor_critic_options.py",
        ),
        ("entropy = -log_prob.detach()", "entropy = log_prob.detach()", "the entropy has the wrong sign"),
    ),
    *of(
        "algorithms/temperature.py",
        "test_sac_update.py test_discrete_sac_update.py",
        ("return (entropy - target).mean()", "return (target - entropy).mean()", "the temperature runs away"),
    ),
    *of(
        "algorithms/tqc.py",
        "test_tqc_update.py",
        ("[:, : count * (width - drop)]", "[:, count * drop :]", "the smallest quantiles are dropped"),
        (
            " - (self.temperature() * log_prob)[:, None]",
            " - 0.0 * log_prob[:, None]",
            "targets have no entropy",
        ),
        (
            "each * batch.weight).mean(1).sum()",
            "each * batch.weight).mean()",
            "the loss is averaged over the critics",
        ),
        (
            "return values.mean((0, 2))",
            "return values.amin(0).mean(1)",
            "the actor climbs the smallest critic",
        ),
    ),
    *of(
        "algorithms/discrete_sac.py",
        "test_discrete_sac_update.py",
        (
            "values) + alpha * entropy).mean()",
            "values) - alpha * entropy).mean()",
            "the policy is paid for certainty",
        ),
        (
            "self._rng.gumbel(size=logits.shape)",
            "self._rng.normal(size=logits.shape)",
            "actions are drawn by other probabilities",
        ),
        ("(gain - mean[:, None])", "gain", "the compiled step forgets softmax"),
        ("self.config.target_entropy_ratio * most", "most", "the entropy's target is the most there is"),
        (
            "most = batch.mask.sum(1).to(batch.reward.dtype).log()",
            "most = torch.full_like(batch.reward, float(np.log(self._num_actions)))",
            "the entropy's target counts forbidden actions",
            "test_discrete_sac_update.py test_action_masks.py",
        ),
        (
            "masked_logits(logits, batch.next_mask)",
            "masked_logits(logits, batch.mask)",
            "next actions are masked by what was allowed before",
            "test_discrete_sac_update.py test_action_masks.py",
        ),
        (
            'values.mean(0) if self.config.target == "mean" else smallest(values)',
            "values.mean(0)",
            "targets are means, whatever is asked for",
        ),
    ),
    *of(
        "algorithms/crossq.py",
        "test_crossq_update.py",
        ("smallest(values) - self.temperature() * log_prob", "smallest(values)", "targets have no entropy"),
        ("soft = smallest(values)", "soft = values.mean(0)", "targets are means of the critics"),
        ("next_values.detach()", "next_values", "the gradient flows into the target"),
        (
            "return nullcontext()",
            "return self.learning(self.network.critic)",
            "the actor's step moves the critics' statistics",
        ),
    ),
    *of(
        "algorithms/drqv2.py",
        "test_drqv2_update.py",
        ("self._augmented(batch.next_obs)", "batch.next_obs", "next observations are not shifted"),
        ("self.config.reward_scale * batch.reward", "batch.reward", "rewards are not scaled"),
        (
            "self._noise(len(action)), self.config.std_clip)",
            "self._noise(len(action)))",
            "noise is not clipped",
        ),
        (
            "linear(c.std_initial, c.std_final, c.std_duration, env_steps)",
            "c.std_initial",
            "the noise stays as it was",
        ),
        ("            if explore:\n", "            if True:\n", "evaluation plays with noise"),
    ),
    *of(
        "algorithms/actor_critic.py",
        "test_td3_update.py test_ddpg_update.py test_sac_update.py",
        (
            "% self.config.policy_delay == 0",
            "% self.config.policy_delay == 1",
            "the actor goes first, not last",
        ),
        ("if turn or not self.targets_wait:", "if True:", "targets never wait"),
        (
            "squares * weight).mean(1).sum()",
            "squares * weight).mean()",
            "the critics' loss is an average over the critics",
        ),
        (
            "(squares if weight is None else squares * weight)",
            "squares",
            "importance weights are ignored",
            "test_sac_update.py test_drqv2_update.py test_crossq_update.py test_discrete_sac_update.py",
        ),
        (
            "error.detach().abs().mean(0)",
            "error.detach().mean(0)",
            "errors of two critics cancel in the priority",
            "test_sac_update.py test_discrete_sac_update.py test_crossq_update.py test_actor_critic_options.py",
        ),
        (
            "self._env_steps < self.config.learning_starts",
            "self._env_steps <= self.config.learning_starts",
            "the warm-up is one step too long",
            "test_ddpg_update.py test_sac_update.py test_actor_critic_options.py test_learner.py",
        ),
        (
            ", betas=(0.9, 0.999))",
            ")",
            "the temperature has the networks' betas",
            "test_actor_critic_options.py",
        ),
        (
            "        polyak(self.flat, self._source, tau)\n",
            "        polyak(self.flat, self._source, 1.0)\n",
            "slow copies jump",
        ),
    ),
    *of(
        "algorithms/exploration.py",
        "test_actor_critic_options.py test_ddpg_update.py",
        (
            "fresh * np.float32(self.dt**0.5)",
            "fresh * np.float32(self.dt)",
            "Ornstein-Uhlenbeck noise is too small",
        ),
        ("np.float32(1.0 - self.theta * self.dt)", "np.float32(1.0)", "Ornstein-Uhlenbeck noise wanders off"),
        ("np.clip(action + fresh, -1.0, 1.0)", "action + fresh", "actions leave their bounds"),
        (
            "age % self.period == 0",
            "age == 0",
            "matrices of noise are kept for the whole episode",
            "test_sac_update.py test_actor_critic_options.py",
        ),
    ),
    *of(
        "algorithms/augmentation.py",
        "test_drqv2_update.py",
        (".clamp_(0, width - 1)", " % width", "images are wrapped around at their sides"),
        (
            "rng.integers(0, 2 * pad + 1, (count, 2))",
            "rng.integers(0, 2 * pad, (count, 2))",
            "shifts lean to one side",
        ),
        (
            "return rng.integers(0, 2 * pad + 1, (count, 2))",
            "return np.repeat(rng.integers(0, 2 * pad + 1, (1, 2)), count, 0)",
            "all images of a batch are shifted alike",
        ),
    ),
    *of(
        "algorithms/continuous_acting.py",
        "test_sac_update.py test_actor_critic_options.py",
        (
            "np.exp(np.clip(out[:, self._size :], LOG_STD_MIN, LOG_STD_MAX))",
            "np.exp(out[:, self._size :])",
            "acting knows no bounds of the deviation",
        ),
        (
            "return np.tanh(out[:, : self._size])",
            "return out[:, : self._size]",
            "greedy actions are not squashed",
        ),
    ),
]
