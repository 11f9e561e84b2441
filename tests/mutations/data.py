"""Bugs of logic in replay, priorities, n-step returns, images and sequences."""

from __future__ import annotations

from mutations.bug import of

DATA = [
    *of(
        "data/n_step.py",
        "test_n_step.py",
        (
            "self._powers[ages[row, slot] + 1]",
            "self._powers[self.n]",
            "short windows are discounted like whole ones",
        ),
        (
            "closing = is_open & (ended[:, None] | (ages == self.n - 1))",
            "closing = is_open & (step.terminated[:, None] | (ages == self.n - 1))",
            "windows reach through a truncation",
        ),
        (
            "ages[row, slot] + 1] * ~step.terminated[row]",
            "ages[row, slot] + 1]",
            "values go on behind a termination",
        ),
        (
            "self._powers[ages] * step.reward[:, None]",
            "step.reward[:, None] + 0 * ages",
            "rewards are not discounted",
        ),
        (
            "self._open[envs] = np.where(ended, 0, opened)",
            "self._open[envs] = opened",
            "windows outlive their episode",
        ),
        ("self._open[full] -= 1", "pass", "the oldest window stays open"),
        (
            "        self._open[slice(None) if envs is None else envs] = 0\n",
            "        pass\n",
            "abandoned windows go on",
            "test_n_step.py test_faults.py",
        ),
    ),
    *of(
        "data/replay_buffer.py",
        "test_replay_buffer.py",
        (
            "count, start = capacity, (start + count) % capacity",
            "count, start = capacity, start",
            "what does not fit shifts the ring",
        ),
        (
            "self._rng.integers(0, self._size, batch_size)",
            "self._rng.integers(0, self.capacity, batch_size)",
            "empty rows are drawn",
        ),
        (
            "self._rng.integers(0, self._size, batch_size)",
            "self._rng.permutation(self._size)[:batch_size]",
            "rows are drawn without replacement",
        ),
        (
            "self._next = end if end < capacity else end - capacity",
            "self._next = min(end, capacity - 1)",
            "the ring does not turn",
        ),
        (
            "self._next_obs[where] = next_obs",
            "self._next_obs[where] = obs",
            "what follows is what came before",
        ),
        (
            "        self._size, self._next = size, position\n",
            "        self._size, self._next = size, 0\n",
            "a loaded ring goes on at its beginning",
        ),
        (
            "        for name, column in columns.items():\n            column.restore(masks[name])\n",
            "",
            "masks are lost on load",
            "test_replay_buffer.py test_action_masks.py",
        ),
    ),
    *of(
        "data/priorities.py",
        "test_prioritized_replay_buffer.py",
        (
            "(errors + self.eps) ** self.alpha",
            "errors ** self.alpha",
            "what taught nothing is never drawn again",
        ),
        ("(errors + self.eps) ** self.alpha", "errors + self.eps", "alpha is ignored"),
        (
            "self.largest = max(self.largest, float(values.max(initial=0.0)))",
            "self.largest = float(values.max())",
            "what is new is as likely as the last batch",
        ),
        (
            "self._stratify(targets, total, nextafter(total, 0.0))",
            "targets *= total",
            "drawing is not stratified",
        ),
        (
            "        self.largest = largest\n",
            "        pass\n",
            "a loaded buffer forgets its largest priority",
        ),
    ),
    *of(
        "data/prioritized_replay_buffer.py",
        "test_prioritized_replay_buffer.py",
        ("newest - (newest - slots) % self.capacity", "slots", "indices are slots"),
        (
            "tree.fill(max(start, 0), self._next, largest)",
            "tree.fill(max(start, 0), self._next, 1.0)",
            "what is new gets a priority of 1",
        ),
        (
            "self.priorities.set(numbers[:kept], errors[:kept])",
            "self.priorities.set(numbers[:kept], errors[:kept] * 0 + 1)",
            "all priorities are 1",
        ),
        (
            "np.where(numbers >= self._added - self.capacity, values, 0.0)",
            "values",
            "what is gone has the probability of what took its place",
        ),
    ),
    *of(
        "data/kernels.py",
        "test_sum_tree.py test_prioritized_replay_buffer.py",
        (
            "shares[i] = min((i + shares[i]) * part, highest)",
            "shares[i] = min(shares[i] * total, highest)",
            "targets are not one in each part",
        ),
        (
            "weights[i] = (smallest / values[slots[i]]) ** beta",
            "weights[i] = (values[slots[i]] / smallest) ** -1.0",
            "beta is ignored",
        ),
        (
            "if numbers[i] >= added - capacity:",
            "if numbers[i] > added - capacity:",
            "the oldest transition is taken for gone",
        ),
        ("if end <= target:", "if end < target:", "slots without a value are found"),
        ("target -= before", "target -= 0.0", "descending forgets what lies before a child"),
    ),
    *of(
        "data/experience.py",
        "test_replay_experience.py",
        (
            "return after // self._train_freq if after > 0 else 0",
            "return (after + self._learning_starts) // self._train_freq",
            "updates are due from the first step on",
        ),
        ("self._owed += rounds * self._gradient_steps", "self._owed += rounds", "gradient_steps is ignored"),
        (
            "self._beta + (self._beta_final - self._beta) *",
            "self._beta_final + (self._beta - self._beta_final) *",
            "beta goes backwards",
            "test_replay_experience.py test_prioritized_replay_buffer.py",
        ),
        (
            "self.buffer.sample(self._batch_size, self.beta)",
            "self.buffer.sample(self._batch_size, self._beta)",
            "beta stays as it was",
            "test_replay_experience.py test_prioritized_replay_buffer.py",
        ),
        (
            "self._env_steps = self._refilled_from = env_steps",
            "self._env_steps = env_steps",
            "an emptied buffer is learned from at once",
            "test_replay_experience.py test_session.py",
        ),
        (
            "            self.buffer.add(*folded)\n",
            "            self.buffer.add(*folded[:6])\n",
            "masks of what is acted on are lost",
            "test_replay_experience.py test_action_masks.py test_discrete_sac_update.py",
        ),
    ),
    *of(
        "data/frame_stacks.py",
        "test_image_replay_buffer.py test_recurrent_stacks.py",
        (
            "np.minimum(self._offsets, ages[..., None])",
            "self._offsets",
            "stacks reach into the episode before",
        ),
        (
            "missing = self._offsets > ages[..., None]",
            "missing = self._offsets >= ages[..., None]",
            "one frame too many is blank",
        ),
        (
            "self.padding = padding\n\n    # Reading",
            "pass\n\n    # Reading",
            "how episodes begin is never decided",
        ),
        ("elif found != padding:", "elif False:", "two ways of padding are mixed"),
    ),
    *of(
        "data/image_replay_buffer.py",
        "test_image_replay_buffer.py",
        (
            "self._powers[steps] * (last & TERMINATED == 0)",
            "self._powers[steps] * (last & ENDED == 0)",
            "a truncation is taken for a termination",
        ),
        ("going = going & (last & ENDED == 0)", "pass", "returns reach through an episode's end"),
        ("made + (1 - self.n_step)", "made", "windows are drawn before they are complete"),
        ("self._ready[envs] = self._made[envs]", "pass", "the last windows of an episode are never drawn"),
        (
            "self._first[env] += self._count_lost(env, heads, self._rings.oldest(row))",
            "pass",
            "overwritten frames are drawn",
        ),
        (
            "self._rings.end(self._rings.places(envs, self._head[envs] - 1))",
            "pass",
            "an interrupted episode goes on",
            "test_image_replay_buffer.py test_image_replay_runs.py",
        ),
        (
            'self._observations(envs, heads + steps, rows["age"] + steps)',
            'self._observations(envs, heads + 1, rows["age"] + 1)',
            "n-step returns are followed by the next observation",
        ),
    ),
    *of(
        "data/recurrent_replay_buffer.py",
        "test_recurrent_replay_buffer.py",
        (
            'rows["terminated"][envs, here] = step.terminated',
            'rows["terminated"][envs, here] = step.terminated | step.truncated',
            "a truncation is taken for a termination",
        ),
        (
            "for i in np.flatnonzero(age % self.period == 0):",
            "for i in np.flatnonzero(age % self.length == 0):",
            "sequences do not overlap",
        ),
        (
            "array[slot] = 0 if carry is None else carry[name][index]",
            "array[slot] = 0",
            "sequences begin with an empty memory",
        ),
        (
            "self._release(queue.popleft())\n            self._oldest",
            "queue.popleft()\n            self._oldest",
            "slots are never free again",
        ),
        ("starts[0] = self._first[slots]", "starts[0] = True", "every sequence begins an episode"),
        (
            "self._head[env], self._age[env] = head + 1, 0",
            "self._head[env], self._age[env] = head, 0",
            "the first observation overwrites the last one of the episode before",
        ),
    ),
    *of(
        "data/chunk_returns.py",
        "test_recurrent_replay_buffer.py",
        ("over = terminated & (after == steps)", "over = after == steps", "chunks end like episodes"),
        ("powers[k] * reward[k:]", "reward[k:]", "rewards are not discounted"),
        (
            "after = np.minimum(time + n_step, steps)",
            "after = np.minimum(time + 1, steps)",
            "returns are followed by the next step",
        ),
    ),
    *of(
        "data/prioritized_image_replay_buffer.py",
        "test_prioritized_image_replay_buffer.py",
        (
            "kept = heads >= self._bounds(self._first)[envs]",
            "kept = heads >= 0",
            "late priorities reach what took the place",
        ),
        (
            "self.priorities.restore(values.ravel(), largest)",
            "self.priorities.restore(values.ravel() * 0 + 1, largest)",
            "priorities are lost on load",
        ),
    ),
]
