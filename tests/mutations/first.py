"""Bugs that an earlier review found unnoticed."""

from __future__ import annotations

from mutations.bug import of

FIRST = [
    *of(
        "runtime/collector.py",
        "test_memory.py",
        (
            "self._resetting if self._next_step else terminated | truncated",
            "self._resetting if self._next_step else terminated",
            "a truncation does not wipe the agent's memory",
        ),
    ),
    *of(
        "runtime/evaluator.py",
        "test_memory.py",
        (
            "carry_on(decision.carry, reward, terminated | truncated)",
            "carry_on(decision.carry, reward, terminated)",
            "in evaluation, a truncation does not wipe the agent's memory",
        ),
        (
            "EpisodeSeeds(root, offset=i, stride=count)",
            "EpisodeSeeds(root, stride=count)",
            "parallel evaluation environments replay the same episodes",
        ),
    ),
    *of(
        "algorithms/value_learner.py",
        "test_dqn_update.py",
        (
            "        for target, online in self._buffers:\n            target.copy_(online)\n",
            "",
            "batch statistics do not reach the target network",
        ),
    ),
    *of(
        "algorithms/actor_critic.py",
        "test_learner.py",
        (
            "        for own, source in self._buffers:\n            own.copy_(source)\n",
            "",
            "batch statistics do not reach the slow copy",
        ),
    ),
    *of(
        "algorithms/optimizer.py",
        "test_learner.py",
        (
            "math.isfinite(loss_value + norm_value)",
            "math.isfinite(loss_value)",
            "a gradient that is not finite reaches the weights if the loss is finite",
        ),
    ),
    *of(
        "data/experience.py",
        "test_replay_experience.py",
        (
            "self._env_steps, self._owed, self._refilled_from = env_steps, owed, refilled_from",
            "self._env_steps = env_steps",
            "updates that are owed are forgotten by a resume",
        ),
    ),
    *of(
        "runtime/collector.py",
        "test_collector.py",
        (
            "        self._started[ended] += 1\n",
            "",
            "environments that restart repeat their first episodes",
        ),
        (
            "        self._started[:] = started\n",
            "",
            "a restarted run repeats its first episodes",
        ),
        (
            'self.envs.call_each("start_from", [(int(k),) for k in self._started])',
            "pass",
            "own environments that restart repeat their first episodes",
        ),
        (
            "key = (*self._root.spawn_key, int(self._started.sum()))",
            "key = self._root.spawn_key",
            "foreign environments that restart repeat their first episodes",
        ),
    ),
    *of(
        "runtime/checkpoint.py",
        "test_checkpoint_format.py",
        (
            "sorted(parsed, key=lambda name: parsed[name], reverse=True)",
            "sorted(parsed, reverse=True)",
            "the tenth checkpoint of a step counts as older than the second",
        ),
        (
            "return step_name(step, max(taken, default=0) + 1)",
            "return step_name(step, len(taken) + 1)",
            "after a retirement a name is used again",
        ),
    ),
    *of(
        "algorithms/compiled_dqn.py",
        "test_compiled_dqn.py",
        (
            "self._shapes = ((int(sizes[0]),), (int(sizes[0]),), (), (), (), (), (network.num_actions,))",
            "self._shapes = ((int(sizes[0]),), (int(sizes[0]),), (), (), (), (), (int(sizes[-1]),))",
            "masks of a dueling network have to be one too wide",
        ),
    ),
    *of(
        "native/dqn_gradient.c",
        "test_compiled_dqn.py",
        (
            "if (action < 0 || action >= outputs - net->dueling) return j;",
            "if (action < 0 || action >= outputs) return j;",
            "with dueling, one action too many is allowed",
        ),
    ),
    *of(
        "algorithms/drqv2.py",
        "test_drqv2_update.py",
        (
            "self.adam(nn.ModuleList([network.encoder, network.critic]))",
            "self.adam(nn.ModuleList([network.encoder, network.critic]), eps=1e-8)",
            "DrQ-v2's critic ignores adam_eps",
        ),
        (
            "self.adam(nn.ModuleList([network.encoder, network.critic]))",
            "self.adam(nn.ModuleList([network.encoder, network.critic]), max_grad_norm=None)",
            "DrQ-v2's critic ignores max_grad_norm",
        ),
        (
            "self._actor_adam(network.actor)",
            "self._actor_adam(network.actor, eps=1e-8)",
            "DrQ-v2's actor ignores adam_eps",
        ),
    ),
]
