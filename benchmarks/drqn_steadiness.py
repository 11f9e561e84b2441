"""What is going on inside a DRQN or R2D2 run on CartPole, checkpoint by checkpoint: why a policy falls back.

For every checkpoint of a run folder (train with ``checkpoint.keep=100`` to have them all), the greedy policy plays
episodes without the limit of 500 steps, and from these and from the replay come

- end: how many of the episodes reach 500 and 1,000 steps, leave the track or fall over, and when the first one ends;
- value: the mean Q-value of the actions taken against the discounted return that followed, and the gap between
  the two actions' values, over the first 500 steps;
- memory: mean size of the hidden and the cell state around steps 10, 100 and 450;
- window: how often the greedy action stays the same when it is chosen from nothing but the last 8, 16 or 32
  observations, and the mean return (up to 500) of a policy that really acts that way;
- stale: |Q(stored memory) - Q(memory recomputed from the episode's beginning)| at the first and at the last step of
  sequences from the replay, for the oldest and for the newest tenth; the same from an empty memory;
- core: effective rank of the core's features (exponential of the entropy of their singular values), and the shares
  of dead units of the encoder and of saturated ones of the core;
- behind: the mean value of observations of the replay that follow a whole sequence, by that sequence's memory (returns
  end with it) and by the memory of the sequence that begins at or before them (the value that is learned).

Values are those of the target network, or of the online one where actions are chosen; rescaled ones are scaled back.

Run: python benchmarks/drqn_steadiness.py RUN [--episodes N] [--last K] [--json FILE]
     python benchmarks/drqn_steadiness.py --train drqn/cartpole_no_velocity --seed N RUN [key=value ...]
"""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rl_training.algorithms.drqn import DRQN, unscale
from rl_training.data import RecurrentReplayBuffer
from rl_training.data.transitions import carry_on
from rl_training.experiment.configs import load_config
from rl_training.runtime.checkpoint import list_checkpoints, read_checkpoint
from rl_training.runtime.run import Run
from rl_training.runtime.workflows import checkpoint_config, start
from rl_training.spaces import Array

LIMIT, SHOWN = 1_000, 500
"""Steps after which an episode is cut, and those that count for the agent's return."""
WINDOWS = (8, 16, 32)
TRACK = 2.4


@dataclass
class Played:
    """Episodes side by side; what is beyond the end of one is zero."""

    obs: Array  # [T, N, *obs]
    action: Array  # [T, N]
    reward: Array  # [T, N]
    q: Array  # [T, N, A]
    memory: dict[str, Array]  # each [T, N, size], after the observation
    length: Array  # [N]
    left: Array  # [N] bool, whether the cart had left the track


def play(learner: DRQN, env_id: str, kwargs: dict[str, Any], count: int, window: int | None = None) -> Played:
    """Play ``count`` greedy episodes; with a ``window``, from an empty memory and the last observations only."""
    envs = [gym.make(env_id, max_episode_steps=LIMIT, **kwargs) for _ in range(count)]
    obs = np.stack([env.reset(seed=10_000 + i)[0] for i, env in enumerate(envs)])
    carry, going = learner.initial_carry(count), np.ones(count, bool)
    length, left = np.zeros(count, np.int64), np.zeros(count, bool)
    seen: list[Array] = []
    rows: dict[str, list[Array]] = {"action": [], "reward": [], "q": [], "hidden": [], "cell": []}
    for t in range(LIMIT if window is None else SHOWN):
        seen.append(obs)
        if window is None:
            q, carry = learner.step(obs, carry)
        else:
            first = max(0, t + 1 - window)
            q = from_window(learner, np.stack(seen), rows["action"], rows["reward"], first)
        q = in_rewards(learner, torch.from_numpy(q)).numpy()
        action = q.argmax(1)
        obs, reward = obs.copy(), going.astype(np.float32)
        length += going
        for i in np.flatnonzero(going):
            obs[i], _, terminated, truncated, _ = envs[i].step(int(action[i]))
            if terminated or truncated:
                going[i] = False
                left[i] = abs(envs[i].unwrapped.state[0]) > TRACK  # type: ignore[attr-defined]
        if "action" in carry:
            carry["action"] = action + 1
        carry = carry_on(carry, reward, np.zeros(count, bool))
        for name, row in (("action", action), ("reward", reward), ("q", q)):
            rows[name].append(row)
        for name in ("hidden", "cell"):
            if name in carry:
                rows[name].append(carry[name].reshape(count, -1).copy())
        if not going.any():
            break
    arrays = {name: np.stack(values) for name, values in rows.items() if values}
    memory = {name: array for name, array in arrays.items() if name in ("hidden", "cell")}
    return Played(np.stack(seen), arrays["action"], arrays["reward"], arrays["q"], memory, length, left)


def in_rewards(learner: DRQN, q: torch.Tensor) -> torch.Tensor:
    """Return Q-values in the scale of the rewards."""
    return unscale(q) if learner.config.value_rescaling else q


def from_window(learner: DRQN, obs: Array, action: list[Array], reward: list[Array], first: int) -> Array:
    """Return the Q-values [N, A] of the last of observations [T, N, *obs], from an empty memory before ``first``."""
    state = {name: torch.from_numpy(a) for name, a in learner.initial_carry(obs.shape[1]).items()}
    if first and "action" in state:
        state["action"] = torch.from_numpy(action[first - 1] + 1)
    if first and "reward" in state:
        state["reward"] = torch.from_numpy(reward[first - 1])
    shape = (0, obs.shape[1])
    past = torch.from_numpy(np.stack(action[first:]) if len(action) > first else np.zeros(shape, np.int64))
    gained = torch.from_numpy(
        np.stack(reward[first:]) if len(reward) > first else np.zeros(shape, np.float32)
    )
    with torch.no_grad():
        q, _ = learner.online.q_values_sequence(
            torch.from_numpy(obs[first:]), state, actions=past, rewards=gained
        )
    result: Array = q[-1].numpy()
    return result


def of_episodes(played: Played, gamma: float) -> dict[str, Any]:
    """Return how episodes ended, what they were thought to be worth, and how the memory grew."""
    steps = np.arange(len(played.action))[:, None]
    made = steps < played.length
    returns = np.zeros(played.reward.shape)
    following = np.zeros(len(played.length))
    for t in reversed(range(len(returns))):
        following = returns[t] = np.where(made[t], played.reward[t] + gamma * following, 0.0)
    # Of an episode that was cut, the rest is worth something, too: as much as if it went on for ever.
    cut = played.length >= LIMIT
    ahead = np.maximum(played.length - steps, 0)
    returns = np.where(cut & made, returns + gamma**ahead / (1.0 - gamma), returns)
    shown = made & (steps < SHOWN)
    chosen = np.take_along_axis(played.q, played.action[..., None], 2)[..., 0]
    ended, short = ~cut, played.length < SHOWN
    report = {
        "return": float(np.minimum(played.length, SHOWN).mean()),
        "reach 500": float((~short).mean()),
        "reach 1000": float(cut.mean()),
        "off the track": int((ended & played.left).sum()),
        "fallen over": int((ended & ~played.left).sum()),
        "first end": int(played.length.min()),
        "median end": float(np.median(played.length)),
        "q": float(chosen[shown].mean()),
        "true": float(returns[shown].mean()),
        "error": float(np.abs(chosen - returns)[shown].mean()),
        "gap": float(np.ptp(played.q, 2)[shown].mean()),
    }
    for name, values in played.memory.items():
        for at in (10, 100, 450):
            if len(values) > at and made[at].any():
                report[f"|{name}| at {at}"] = float(np.linalg.norm(values[at][made[at]], axis=1).mean())
    return report


def of_windows(learner: DRQN, played: Played, env_id: str, kwargs: dict[str, Any]) -> dict[str, float]:
    """Return how much of what the policy does needs a memory longer than a window."""
    report = {}
    action, reward = list(played.action), list(played.reward)
    for window in WINDOWS:
        same = []
        for t in range(window, min(len(action), SHOWN), 7):
            q = from_window(learner, played.obs[: t + 1], action[:t], reward[:t], t + 1 - window)
            going = played.length > t
            same.append((q.argmax(1) == played.action[t])[going])
        report[f"same by {window}"] = float(np.concatenate(same).mean()) if same else float("nan")
        lengths = play(learner, env_id, kwargs, 10, window).length
        report[f"return by {window}"] = float(np.minimum(lengths, SHOWN).mean())
    return report


def of_replay(learner: DRQN, buffer: RecurrentReplayBuffer, draw: np.random.Generator) -> dict[str, float]:
    """Return how stale the stored memories are, and what the replay consists of."""
    state = buffer.state_dict()
    order = np.argsort(state["start"], kind="stable")
    order = order[(state["steps"][order] > 0) & (state["env"][order] == 0)]
    begins = np.flatnonzero(state["first"][order])
    episodes = np.split(order, begins[begins > 0])
    tenth = max(len(episodes) // 10, 1)
    report = {"sequences": float(len(order)), "episodes": float(len(episodes))}
    recent = episodes[-tenth:]
    report["steps an episode, new"] = float(sum(map(len, recent)) * buffer.period / len(recent))
    if "hidden" in learner.config.stored_memory():
        for label, some in (("old", episodes[:tenth]), ("new", recent)):
            picked = [some[i] for i in draw.permutation(len(some))[:12]]
            gaps = np.concatenate([gaps_of(learner, buffer, slots) for slots in picked])
            for i, name in enumerate(("stale first", "stale last", "empty last")):
                report[f"{name} {label}"] = float(gaps[:, i].mean())
    whole = state["steps"] == buffer.length
    pairs = np.array([p for slots in episodes for p in pairwise(slots) if whole[p[0]]])
    return {**report, **behind(learner, buffer, pairs[draw.permutation(len(pairs))[:2_000]])}


def behind(learner: DRQN, buffer: RecurrentReplayBuffer, pairs: Array) -> dict[str, float]:
    """Return what the observations behind whole sequences are worth, by these and by the following ones."""
    ends, following = (buffer.gather(slots) for slots in pairs.T)
    with torch.no_grad():
        by_end = in_rewards(learner, learner.unroll(learner.target, ends)[-1]).amax(1)
        at = buffer.length - buffer.period
        learned = in_rewards(learner, learner.unroll(learner.target, following)[at]).amax(1)
    return {"behind, by this": float(by_end.mean()), "behind, by the next": float(learned.mean())}


def gaps_of(learner: DRQN, buffer: RecurrentReplayBuffer, slots: Array) -> Array:
    """Return the mean |difference of Q| [chunks, 3] that memories make in one episode's sequences."""
    batches = [buffer.gather(np.array([slot])) for slot in slots]
    memory = {name: torch.zeros_like(tensor) for name, tensor in batches[0].state.items()}
    rows = []
    for batch in batches:
        made = min(int(batch.mask.sum()), buffer.period)
        past = {"actions": batch.action[: made - 1], "rewards": batch.reward[: made - 1]}
        empty = {name: torch.zeros_like(tensor) for name, tensor in batch.state.items()}
        for name in ("action", "reward"):
            if name in batch.state:
                memory[name] = empty[name] = batch.state[name]
        with torch.no_grad():
            q, memory = learner.online.q_values_sequence(batch.obs[:made], memory, **past)
            stored, _ = learner.online.q_values_sequence(batch.obs[:made], batch.state, **past)
            blank, _ = learner.online.q_values_sequence(batch.obs[:made], empty, **past)
        q, stored, blank = (in_rewards(learner, values) for values in (q, stored, blank))
        rows.append([float((a - q).abs()[t].mean()) for a, t in ((stored, 0), (stored, -1), (blank, -1))])
    return np.array(rows)


def of_core(learner: DRQN, played: Played) -> dict[str, float]:
    """Return how much of the network is in use, on what the policy sees."""
    made = np.arange(len(played.obs))[:, None] < np.minimum(played.length, SHOWN)
    hidden = played.memory["hidden"][made]
    values = np.linalg.svd(hidden - hidden.mean(0), compute_uv=False)
    share = values[values > 0] / values.sum()
    with torch.no_grad():
        encoded = learner.online.encoder(torch.from_numpy(played.obs[made])).numpy()
    return {
        "rank": float(np.exp(-(share * np.log(share)).sum())),
        "dead": float((encoded.max(0) <= 0).mean()),
        "saturated": float((np.abs(hidden) > 0.95).mean()),
    }


def report_on(path: Path, episodes: int) -> dict[str, Any]:
    """Return everything about one checkpoint."""
    checkpoint = read_checkpoint(path)
    config = checkpoint_config(checkpoint)
    with closing(Run(config)) as run:
        run.load_state_dict(checkpoint.tree)
        learner: Any = run.algorithm
        env_id, kwargs = config.env.id, dict(config.env.kwargs)
        played = play(learner, env_id, kwargs, episodes)
        buffer: Any = run.experience
        return {
            "step": run.clock.steps,
            **of_episodes(played, config.algo_kwargs.gamma),
            **of_windows(learner, played, env_id, kwargs),
            **of_replay(learner, buffer.buffer, np.random.default_rng(0)),
            **of_core(learner, played),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("overrides", nargs="*", help="with --train: key=value")
    parser.add_argument("--train", metavar="CONFIG", help="train this into the run folder first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--last", type=int, default=100, help="only the last K checkpoints")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.train is not None:
        overrides = ["checkpoint.keep=100", f"seed={args.seed}", *args.overrides]
        start(load_config(args.train, overrides), run_dir=args.run, console=False)
    reports = []
    for path in reversed(list_checkpoints(args.run / "checkpoints")[: args.last]):
        reports.append(report_on(path, args.episodes))
        print(", ".join(f"{k} {v:.4g}" for k, v in reports[-1].items()), flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps(reports, indent=2))


if __name__ == "__main__":
    main()
