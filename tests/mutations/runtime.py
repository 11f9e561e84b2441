"""Bugs of logic in the loop, in sessions and logs, and in writing and reading checkpoints."""

from __future__ import annotations

from mutations.bug import of

RUNTIME = [
    *of(
        "runtime/loop.py",
        "test_replay_experience.py test_dqn_trainer_smoke.py test_prioritized_replay_buffer.py test_session.py",
        ("clock.steps += len(step)", "clock.steps += 1", "steps of several environments count once"),
        (
            "clock.updates += result.gradient_steps",
            "clock.updates += 1",
            "gradient steps are not counted",
            "test_ppo_trainer_smoke.py test_session.py",
        ),
        (
            "            experience.feedback(batch, result)\n",
            "",
            "priorities are never updated",
            "test_dqn_trainer_smoke.py test_resume_exact.py",
        ),
        (
            "clock.episodes += len(episodes)",
            "clock.episodes += 1",
            "episodes that end together count once",
            "test_collector.py test_session.py test_metrics.py test_dqn_trainer_smoke.py test_resume_exact.py",
        ),
        ("torch.set_flush_denormal(False)", "pass", "an environment's own arithmetic loses its denormals"),
    ),
    *of(
        "runtime/clock.py",
        "test_session.py test_metrics.py test_prolonged_runs.py test_resume_exact.py",
        (
            "return self.steps >= self.total",
            "return self.steps > self.total",
            "a run makes one step too many",
        ),
        (
            "(steps // self.frequency + 1) * self.frequency",
            "steps + self.frequency",
            "what is due once is counted from when it happened",
        ),
    ),
    *of(
        "runtime/metrics.py",
        "test_metrics.py",
        ('row[f"train/{name}"] = total / count', 'row[f"train/{name}"] = total', "metrics are sums"),
        (
            "        self._sums.clear()\n        return row",
            "        return row",
            "means go on from row to row",
        ),
        ("deque(maxlen=window)", "deque()", "the mean return is that of all episodes"),
        (
            "        self._sums[name] = (total, count + len(means))",
            "        self._sums[name] = (total, count + 1)",
            "a portion of values counts once",
        ),
    ),
    *of(
        "runtime/streams.py",
        "test_resume_exact.py test_session.py",
        (
            "zlib.crc32(name.encode()), *indices)",
            "*indices,)",
            "all streams are the same",
            "test_collector.py test_resume_exact.py",
        ),
        ('state["has_uint32"],', "0,", "a cached half draw is lost"),
        ("low | high << 64", "low", "half of a generator's state is lost"),
    ),
    *of(
        "runtime/timing.py",
        "test_session.py test_metrics.py test_cli.py",
        ("        self._last = now\n", "        pass\n", "time is charged several times"),
    ),
    *of(
        "runtime/signals.py",
        "test_faults.py",
        (
            "if number == self.received and time.monotonic() - self._when < SAME:",
            "if False:",
            "a signal that comes twice at once kills",
        ),
        ("            os._exit(128 + number)\n", "            return\n", "a second signal is ignored"),
        ("if not (hung_up and number == signal.SIGHUP)", "if True", "nohup does not help"),
    ),
    *of(
        "runtime/callbacks.py",
        "test_session.py test_public_api.py",
        (
            "if evaluation.mean >= self.threshold:",
            "if evaluation.mean > self.threshold:",
            "a threshold that is met does not stop",
        ),
        (
            'f"{prefix}{name}-{seen[name]}"',
            'f"{prefix}{name}-1"',
            "two callbacks of a class share their state",
        ),
    ),
    *of(
        "runtime/session.py",
        "test_session.py",
        (
            "if self._best is not None and result.mean <= self._best:",
            "if self._best is not None and result.mean < self._best:",
            "an equal evaluation is a new best",
            "test_session.py test_resume_exact.py",
        ),
        (
            "            self._best, self._best_at = before\n",
            "            pass\n",
            "a best that was not saved keeps out the next",
        ),
        (
            "self._evaluation_due, self._saved_at = True, None",
            "self._saved_at = None",
            "an evaluation that was cut short is not repeated",
        ),
        (
            "        self._saved_at = None  # a checkpoint of this step does not know of the stop\n",
            "",
            "a stop is forgotten by a resume",
        ),
        (
            "_ = self._save(envs_lost=True) if envs_lost else self._save_once()",
            "_ = self._save_once()",
            "environments that failed are saved as if they had not",
            "test_faults.py",
        ),
        (
            "if due.checkpoint.due(steps) and not saved:",
            "if due.checkpoint.due(steps):",
            "a step is saved twice",
            "test_session.py test_checkpoint_workflows.py test_faults.py test_resume_exact.py",
        ),
        (
            'elif read_hint(self.folder.checkpoints, "best") is None:',
            "elif False:",
            "a branch has a best that it does not hold",
        ),
        (
            "(self.steps, path)\n        # A kill",
            "(self.steps + 1, path)\n        # A kill",
            "resuming a finished run saves it again",
        ),
    ),
    *of(
        "runtime/saving.py",
        "test_saving.py test_faults.py",
        (
            "        self._failed = 0\n        self._previous = saved",
            "        self._previous = saved",
            "failed saves need not be in a row",
        ),
        (
            "if self._failed >= MAX_FAILED_SAVES and seconds >= MAX_FAILING_SECONDS:",
            "if self._failed >= MAX_FAILED_SAVES:",
            "one bad second ends a run",
        ),
        ("if (path / MANIFEST).is_file()]", "]", "what is no checkpoint is called the newest"),
        (
            '"there is no checkpoint yet" if self._previous is None else "no checkpoint is left"',
            '"the previous checkpoint is intact"',
            "a checkpoint is promised that is gone",
        ),
    ),
    *of(
        "runtime/checkpoint.py",
        "test_checkpoint_format.py",
        (
            "            storage.sync_folder(temporary)\n            target",
            "            target",
            "names of files are not on the disk when the checkpoint gets its own",
        ),
        ("        storage.sync(handle)\n", "", "files are not on the disk when the checkpoint gets its name"),
        (
            "        storage.unlink(path / MANIFEST)\n        storage.sync_folder(path)\n",
            "        storage.unlink(path / MANIFEST)\n",
            "a checkpoint that is half removed may verify",
        ),
        (
            "                rest = rest[written:]",
            "                rest = rest[len(rest) :]",
            "a short write is taken for a whole one",
        ),
        (
            "for name in steps[keep:] if name not in spared",
            "for name in steps[keep:]",
            "the best checkpoint is retired",
        ),
        (
            "            refused.append(str(error))\n",
            "            raise\n",
            "a damaged checkpoint hides the older ones",
        ),
        (
            "        verify_size(target, record)\n    except",
            "        pass\n    except",
            "a segment that was cut is linked on",
            "test_checkpoint_segments.py",
        ),
        (
            "spared = {*protect, *([latest.name] if latest else [])}",
            "spared = {*protect}",
            "the checkpoint that was just saved is retired",
        ),
    ),
    *of(
        "runtime/checkpoint_read.py",
        "test_checkpoint_format.py",
        ('if digest.hexdigest() != record["sha256"]:', "if False:", "damaged files are accepted"),
        (
            'if named and named[0] != manifest["step"]:',
            "if False:",
            "a checkpoint may be of another step than it is called",
        ),
        (
            'if manifest["sha256"] != manifest_digest(manifest):',
            "if False:",
            "a damaged manifest is accepted",
        ),
        (
            "for name in sorted(present ^ {MANIFEST, *files}):",
            "for name in sorted({*files} - present):",
            "files that nobody lists are accepted",
        ),
        ("if version > FORMAT_VERSION:", "if False:", "a newer format is read as if it were this one"),
    ),
    *of(
        "runtime/checkpoint_format.py",
        "test_checkpoint_format.py",
        (
            'key.replace("~", "~0").replace("/", "~1")',
            'key.replace("/", "~1")',
            "names with a tilde come back as others",
        ),
        ('text += b" " * (-len(text) % 8)', "pass", "tensors are not aligned"),
        ('block.dtype.newbyteorder("<")', "block.dtype", "big-endian arrays are written as they are"),
    ),
    *of(
        "runtime/strict_json.py",
        "test_checkpoint_format.py",
        ("object_pairs_hook=_unique,", "", "a key may stand twice"),
        (
            'if depth > MAX_DEPTH:\n            raise ValueError(f"JSON',
            'if False:\n            raise ValueError(f"JSON',
            "JSON may be nested without end",
        ),
    ),
    *of(
        "runtime/soundness.py",
        "test_senseless_checkpoints.py",
        (
            "not bool(torch.isfinite(value).all())",
            "False",
            "weights that are no numbers are accepted",
            "test_senseless_checkpoints.py -k weights",
        ),
        (
            "if type(steps) is not int or steps != checkpoint.step:",
            "if False:",
            "a clock may differ from the manifest",
            "test_senseless_checkpoints.py -k clock",
        ),
        (
            "odd = sorted(checkpoint.tree.keys() ^ SECTIONS)",
            "odd = []",
            "sections may be missing",
            "test_senseless_checkpoints.py -k missing",
        ),
    ),
    *of(
        "runtime/resuming.py",
        "test_cli.py test_session.py test_prolonged_runs.py",
        ('if key.partition(".")[0] in _FIXED:', "if False:", "a resumed run may change what its state means"),
        (
            'return {**changed, "schedule_timesteps": before.schedule_length}',
            "return changed",
            "a larger budget stretches schedules",
            "test_prolonged_runs.py",
        ),
        (
            "if config.total_timesteps < min(checkpoint.step, saved.total_timesteps):",
            "if False:",
            "a budget may be below the steps made",
        ),
        (
            'elif newest_checkpoint(owner / "checkpoints")[0].path.name == path.name:',
            "elif True:",
            "an older checkpoint goes on in its run instead of a branch",
            "test_cli.py -k branches",
        ),
    ),
    *of(
        "runtime/policy.py",
        "test_memory.py test_public_api.py test_action_masks.py",
        (
            "return (action[0] if single else action), state",
            "return action, state",
            "one observation gives a batch of actions",
        ),
        ("return carry_on(carry, gained, begins)", "return carry", "episode_start is ignored"),
        (
            "        action = self.actions.to_env(decision.to_play)\n",
            "        action = decision.to_play\n",
            "actions are given in the learner's units",
            "test_public_api.py test_ddpg_trainer_smoke.py test_sac_trainer_smoke.py",
        ),
    ),
    *of(
        "runtime/trust.py",
        "test_security.py",
        ("    if not is_installed(module):", "    if False:", "a run may import what is not installed"),
        ("found.__module__ == module and ", "", "a class may be found through another module"),
        ("if name.startswith(_LEGACY):", "if False:", "a legacy id may name a module"),
    ),
    *of(
        "plain_files.py",
        "test_special_files.py",
        (
            "_WAYS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC",
            "_WAYS = os.O_CLOEXEC",
            "links are followed",
        ),
        ("if os.fstat(handle).st_nlink > 1:", "if False:", "a file with a second name is written to"),
        (
            "    if len(content) > limit:",
            "    if False:",
            "files may be of any size",
            "test_special_files.py test_config.py",
        ),
    ),
]
