"""Bugs of logic around environments, and in collecting and evaluating."""

from __future__ import annotations

from mutations.bug import of

ENVS = [
    *of(
        "envs/journal.py",
        "test_faults.py test_collector.py",
        ("        self.index += self._stride\n", "        pass\n", "every episode has the same seed"),
        (
            "action.copy() if isinstance(action, np.ndarray) else action",
            "action",
            "journals are views of what changes",
            "test_collector.py test_resume_exact.py",
        ),
        (
            "if not abs(reward) <= MAX_REWARD:",
            "if abs(reward) > MAX_REWARD:",
            "rewards that are no numbers pass",
        ),
        (
            "if self._is_float and not math.isfinite(self._total(obs)):",
            "if False:",
            "observations that are no numbers pass",
        ),
        (
            "        self._actions = []\n        try:\n            started",
            "        try:\n            started",
            "journals hold the episodes before",
            "test_collector.py test_resume_exact.py",
        ),
        (
            'self._seeds.index = int(journal["next"])',
            "pass",
            "a restored environment repeats its episodes",
            "test_resume_exact.py test_collector.py",
        ),
        ("array.item() not in (0, 1)", "False", "flags of any value pass"),
        (
            "if terminated or truncated:  # no journal",
            "if False:  # no journal",
            "a journal may go beyond its episode",
            "test_senseless_checkpoints.py test_collector.py test_faults.py",
        ),
    ),
    *of(
        "envs/sync.py",
        "test_collector.py test_action_masks.py",
        ('{"final_obs": last.copy()}', '{"final_obs": last}', "last observations are views of what changes"),
        (
            "terminated[i], truncated[i] = dead, cut",
            "terminated[i], truncated[i] = dead or cut, cut",
            "a truncation is a termination, too",
        ),
        (
            "[None if seed is None else seed + i for i in range(self.num_envs)]",
            "[seed] * self.num_envs",
            "all environments have the same seed",
            "test_collector.py test_subprocess_env.py",
        ),
        (
            "                raise _named(i, error) from error\n            obs[i] = last",
            "                raise\n            obs[i] = last",
            "nobody says which environment failed",
            "test_faults.py",
        ),
    ),
    *of(
        "envs/subprocess.py",
        "test_subprocess_env.py",
        (
            "seed = [seed + index for index in range(self.num_envs)]",
            "seed = [seed] * self.num_envs",
            "all workers have the same seed",
        ),
        (
            "return self._observations.copy(), np.array(rewards)",
            "return self._observations, np.array(rewards)",
            "observations change behind one's back",
        ),
        (
            'self._unusable = f"a {command} failed or was interrupted"\n        for',
            "for",
            "replies of a failed exchange are taken for others",
        ),
        (
            "infos = self._with_masks(infos, masks)",
            "pass",
            "masks are lost",
            "test_subprocess_env.py test_action_masks.py",
        ),
        ("if time.monotonic() > moment:", "if False:", "a worker that hangs is waited for", "test_faults.py"),
    ),
    *of(
        "envs/masks.py",
        "test_action_masks.py",
        ("    if not over:\n", "    if False:\n", "a mask that forbids everything passes"),
        (
            "np.ones((num_envs, len(mask)), np.bool_)",
            "np.zeros((num_envs, len(mask)), np.bool_)",
            "environments without a mask forbid everything",
        ),
    ),
    *of(
        "envs/pixels.py",
        "test_pixels.py",
        (
            "total += float(reward)",
            "total = float(reward)",
            "only the last reward of a repeated action counts",
        ),
    ),
    *of(
        "runtime/collector.py",
        "test_collector.py",
        (
            'true_next[i] = infos["final_obs"][i]',
            "pass",
            "an episode ends with the first observation of the next",
        ),
        (
            "            step = _without(step, self._resetting)\n",
            "",
            "rows that autoreset makes up are learned from",
        ),
        (
            "(terminated | truncated) & ~self._resetting",
            "terminated & ~self._resetting",
            "a truncation is not seen as an end",
        ),
        (
            "return self._checked_copy(obs), np.array(reward)",
            "return self._checked_copy(obs), reward",
            "rewards are views of what changes",
        ),
        ("self._returns[ended] = 0.0", "pass", "returns add up over episodes"),
        ("obs = obs[~self._resetting]", "pass", "statistics count observations on which nobody acts"),
        (
            "mixed[rows] = True if others is None else others[rows]",
            "pass",
            "an episode ends with the masks of the next",
            "test_action_masks.py test_collector.py",
        ),
        (
            "self._actions.to_env(played)",
            "played",
            "actions are played in the learner's units",
            "test_collector.py test_ddpg_update.py test_sac_trainer_smoke.py",
        ),
        (
            "if obs.tobytes() != saved.tobytes():",
            "if False:",
            "an environment that cannot be led back goes on somewhere else",
            "test_faults.py",
        ),
        ("self._lengths[:] = lengths", "pass", "lengths of episodes begin anew", "test_resume_exact.py"),
    ),
    *of(
        "runtime/evaluator.py",
        "test_memory.py test_session.py test_public_api.py",
        ("offset=i, stride=count", "offset=0, stride=1", "all environments play the same episodes"),
        (
            "active = playing < episodes",
            "active = playing < episodes + count",
            "what is played beyond the last episode counts",
            "test_memory.py",
        ),
        (
            "explore=False)",
            "explore=True)",
            "evaluation explores",
            "test_memory.py test_cli.py test_dqn_trainer_smoke.py",
        ),
        (
            "            over = terminated | truncated\n",
            "            over = terminated\n",
            "a truncated episode goes on",
        ),
        (
            '"wrappers": (*env.wrappers, limit)',
            '"wrappers": env.wrappers',
            "an episode without end is not cut",
            "test_session.py",
        ),
        (
            "if same(given, own):",
            "if True:",
            "agents play environments that they were not made for",
            "test_senseless_checkpoints.py -k spaces",
        ),
    ),
]
