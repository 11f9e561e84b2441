"""Bugs of logic in configs, experiments, statistics, the managed classes, and the library in C."""

from __future__ import annotations

from mutations.bug import of

REST = [
    *of(
        "config/loading.py",
        "test_config.py",
        ("value = {**data[key], **value}", "pass", "a mapping for a section takes all of its place"),
        (
            'raise yaml.constructor.ConstructorError(None, None, "aliases',
            'print(None, None, "aliases',
            "aliases may multiply",
        ),
        ("            if key in seen:\n", "            if False:\n", "a key may stand twice"),
        (
            'filled["network"] = {**config_class.network_defaults, **network}',
            'filled["network"] = {**network}',
            "an algorithm's own defaults of networks are lost",
            "test_config.py test_paper_defaults.py",
        ),
        (
            'key, equals, text = override.partition("=")',
            'key, equals, text = override.rpartition("=")',
            "values may not have an equals sign",
        ),
        (
            'changed += changed_keys(old, new, f"{prefix}{key}.")',
            "changed += [key] * (old != new)",
            "changed keys lose where they are",
        ),
    ),
    *of(
        "config/problems.py",
        "test_config.py",
        ("f\"; did you mean '{elsewhere}'?\"", '""', "a key of another place is not pointed at"),
    ),
    *of(
        "statistics.py",
        "test_statistics.py",
        ("cut = count // 4", "cut = count // 5", "the interquartile mean is of more than the middle half"),
        ("wins + 0.5 * ties", "wins + ties", "ties are wins"),
        (
            "tail = (1.0 - confidence) / 2.0\n    low, high = np.quantile(statistic",
            "tail = 1.0 - confidence\n    low, high = np.quantile(statistic",
            "intervals are too narrow",
        ),
        (
            "drawn = np.random.default_rng(seed).integers(runs, size=(resamples, runs, tasks))",
            "drawn = np.random.default_rng(seed).integers(runs, size=(resamples, runs, 1))",
            "tasks are redrawn together",
        ),
        (
            "so_far = max(so_far, min(1.0, (count - rank) * p_values[index]))",
            "so_far = min(1.0, (count - rank) * p_values[index])",
            "adjusted p-values fall behind a smaller one",
        ),
        ("ddof=1) if values", "ddof=0) if values", "the rank test takes the wrong variance"),
        ("(far + 1) / (total + 1)", "far / total", "p may be 0 by drawn divisions"),
        ("values.size - np.count_nonzero(np.isfinite(values))", "0", "scores that are no numbers count"),
    ),
    *of(
        "experiment/comparison.py",
        "test_comparison.py",
        ("(self.probability - 0.5) * self.lead <= 0", "False", "ranks alone decide"),
        (
            "if not self.possible or self.p_value >= LEVEL",
            "if self.p_value >= LEVEL",
            "three seeds may decide",
        ),
        ("next(adjusted) if can else p_value", "p_value", "p-values are not adjusted"),
        (
            "    if len(envs) > 1:\n        (one",
            "    if False:\n        (one",
            "scores of two environments are compared",
        ),
        (
            "return self.first if self.probability > 0.5 else self.second",
            "return self.second if self.probability > 0.5 else self.first",
            "the worse one is called better",
        ),
    ),
    *of(
        "experiment/manager.py",
        "test_experiment_manager.py",
        ("if how is None or not self._finished(seed)", "if True", "finished seeds run again"),
        (
            'self.config.model_copy(update={"seed": seed}), run_dir',
            "self.config, run_dir",
            "all seeds are the first one",
        ),
        (
            "found.stopped or found.steps >= self.config.total_timesteps",
            "found.stopped or found.steps >= 0",
            "a shorter run counts as finished",
        ),
        (
            "if made and made[0][0] >= total + self.config.env.num_envs:",
            "if False:",
            "runs beyond the budget are mixed in",
        ),
        (
            "            self._keep_schedules()\n",
            "            pass\n",
            "a larger budget stretches schedules",
            "test_experiment_manager.py test_prolonged_runs.py",
        ),
    ),
    *of(
        "experiment/results.py",
        "test_comparison.py test_benchmark.py test_experiment_manager.py",
        (
            "if not result.stopped and isinstance(total, int | float) and result.steps < total:",
            "if False:",
            "a run that goes on counts as finished",
        ),
        ("text, parse_int=float", "text", "10 and 10.0 are different settings"),
    ),
    *of(
        "experiment/suite_results.py",
        "test_benchmark.py",
        (
            "self.below_score is None or self.errors:",
            "self.below_score is None:",
            "a bar is reached although a seed failed",
        ),
        (
            "(self.bar is None or self.score >= self.bar)",
            "(self.bar is None or self.score > self.bar)",
            "a bar that is met is missed",
        ),
        (
            "self.below_score < self.below",
            "self.below_score <= self.below",
            "what must stay below may reach it",
        ),
    ),
    *of(
        "experiment/suites.py",
        "test_benchmark.py",
        (
            'return iqm(scores) if self.plan.score == "iqm" else max(scores)',
            "return iqm(scores)",
            "what must stay below is held by its mean",
        ),
        ('{**config, "seed": None}', "config", "a config's digest depends on the seed"),
    ),
    *of(
        "experiment/benchmark.py",
        "test_benchmark.py",
        (
            'if {"suite": self.suite.name, **machine_facts()} != facts:',
            "if False:",
            "code that changes meanwhile goes unseen",
        ),
        ("keep_going=True,", "", "one failed seed ends a suite"),
        ("fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass", "two benchmarks may share a folder"),
    ),
    *of(
        "experiment/processes.py",
        "test_experiment_manager.py test_benchmark.py",
        ("while waiting and len(running) < at_once:", "while waiting:", "all jobs run at once"),
        (
            "                    child.send_signal(guard.received)\n",
            "                    pass\n",
            "jobs do not hear of a signal",
        ),
        ("if child.returncode == 0:", "if child.returncode in (0, 1):", "a job that failed counts as done"),
        (
            "    if not keep_going:\n                    waiting.clear()",
            "    pass",
            "jobs go on behind a failure",
        ),
    ),
    *of(
        "api/managed.py",
        "test_public_api.py",
        (
            "if self._unfinished:\n            raise ConfigError(_UNFINISHED)\n        self._take_env(env)",
            "if self._unfinished:\n            pass\n        self._take_env(env)",
            "an unfinished run may change its environment",
        ),
    ),
    *of(
        "api/arguments.py",
        "test_public_api.py",
        ("    if given != spec.name:\n", "    if False:\n", "a class takes the config of another algorithm"),
        (
            'if key not in ("env.kwargs", "env.wrappers")',
            "",
            "another environment has the kwargs of the one before",
        ),
        (
            'for name in ("seed", "num_envs", "network"):',
            "for name in ():",
            "a run that goes on may change its seed",
        ),
    ),
    *of(
        "data/transitions.py",
        "test_memory.py",
        ("        array[begins] = 0\n", "        pass\n", "memories go on into the next episode"),
        (
            "after = {name: array.copy() for name, array in carry.items()}",
            "after = dict(carry)",
            "memories that were handed out are wiped",
        ),
    ),
    *of(
        "spaces.py",
        "test_ddpg_update.py test_collector.py test_actor_critic_options.py test_sac_update.py",
        (
            "(np.clip(action, -1.0, 1.0).astype(np.float64) + 1.0) / 2.0",
            "np.clip(action, 0.0, 1.0).astype(np.float64)",
            "half of the actions are the lowest",
        ),
        (
            "return action + self.start if self.start else action",
            "return action",
            "actions do not begin where the environment's do",
            "test_collector.py test_public_api.py test_cli.py test_action_masks.py test_dqn_trainer_smoke.py",
        ),
    ),
    *of(
        "native/dqn_gradient.c",
        "test_compiled_dqn.py",
        (
            "grad[a * count + j] -= total / (float)actions;",
            "grad[a * count + j] -= total;",
            "with dueling, the mean's slope is too large",
        ),
        ("loss = slope * (error - 0.5f * slope);", "loss = error * error;", "Huber's loss is the square"),
        ("= weight * slope / (float)given;", "= weight * slope;", "gradients are sums over the batch"),
        (
            "batch->next_mask.data && !batch->next_mask.data[j * batch->next_mask.stride + a]",
            "0",
            "masks are ignored",
        ),
        ("net->choose_online ? choosing : next_q, grad", "next_q, grad", "Double is ignored"),
        (
            "int64_t count = (given + WIDE - 1) / WIDE * WIDE;",
            "int64_t count = given / WIDE * WIDE;",
            "the last rows of a batch are lost",
        ),
    ),
    *of(
        "native/ppo_gradient.c",
        "test_compiled_ppo.py",
        (
            "return free <= cut || free != free ? -free : 0.0;",
            "return -free;",
            "clipped samples keep their gradient",
        ),
        (
            "by->ent_coef * p * (log_p + entropy)",
            "by->ent_coef * p * log_p",
            "the slope of entropy lacks its mean",
        ),
        (
            "slope = outside ? 0.0 : 2.0 * bounded;",
            "slope = 2.0 * bounded;",
            "clipped values keep their gradient",
        ),
        (
            "squares / (double)(of->count - 1)",
            "squares / (double)of->count",
            "advantages are scaled without Bessel's correction",
        ),
        ("if (inside) std_grad[a]", "std_grad[a]", "deviations at their bounds are pushed beyond"),
        (
            "left < batch || left - batch == 1 ? left : batch",
            "left < batch ? left : batch",
            "a single sample makes a minibatch",
        ),
        ("if (kl_limit > 0.0 && facts[4] > kl_limit) break;", "", "the KL limit is ignored"),
        ("sqrt(1.0 - pow(adam->beta2, made))", "1.0", "Adam's second moment is not corrected"),
    ),
    *of(
        "native/lstm.c",
        "test_compiled_lstm.py",
        (
            "vec cell = load(by_cell + b * size + i) + hidden * out",
            "vec cell = hidden * out",
            "gradients do not flow through cells",
        ),
        ("cell * in * (1.0f - new * new)", "cell * in", "the slope of tanh is lost"),
        (
            "store(by_cell + b * size + i, cell * forget);",
            "store(by_cell + b * size + i, cell);",
            "forgetting is forgotten on the way back",
        ),
        ("hidden = hiddens;\n", "", "every step sees the first memory"),
    ),
    *of(
        "native/mlp.c",
        "test_compiled_mlp.py",
        (
            "add_rows(grad, count, outputs, gradient + outputs * inputs);",
            "",
            "biases are not learned",
        ),
        (
            "int corrects = *net->calls[layer] >= net->warm_up;",
            "int corrects = 1;",
            "batches are corrected from the beginning",
        ),
        (
            "(*at - totals[i] - (x[row * stride + i] - mean[i]) * alongs[i])",
            "(*at - totals[i])",
            "the gradient ignores the batch's deviation",
        ),
        (
            "activation == TANH ? 1.0f - from[i] * from[i]",
            "activation == TANH ? 1.0f - from[i]",
            "the slope of tanh is another one",
        ),
        ("if (learning) *net->calls[layer] += 1;", "", "calls are not counted"),
    ),
    *of(
        "native/products.h",
        "test_compiled_mlp.py test_wide_product.py",
        ("value * (1.0f - out * out)", "value * (1.0f - out)", "the slope of tanh is another one"),
        (
            "int64_t from = by->picked ? by->picked[row] : row;",
            "int64_t from = row;",
            "slopes are those of other rows",
        ),
    ),
]
