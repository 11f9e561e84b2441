"""What a worker does in each mode, for any library that trains in rounds and can be called between them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Protocol

import gymnasium as gym
import jobs
import numpy as np
from job_kinds import AnyJob, read_job
from numpy.typing import NDArray
from protocol import Channel, Handler, peak_rss

Array = NDArray[Any]
Act = Callable[[Array], Array]


class Finished(Exception):
    """Raised between two rounds to end a training that nobody needs any more."""


class Trainee(Protocol):
    """A run of a library."""

    @property
    def steps(self) -> int: ...

    @property
    def updates(self) -> int: ...

    def run(self, hook: Callable[[], None]) -> None:
        """Train to the end, calling ``hook`` whenever no update is owed, before the next step."""


class Player(Trainee, Protocol):
    """A run whose agent can be asked for greedy actions in between."""

    def act(self, obs: Array) -> Array:
        """Return actions [N] for observations [N, *obs]."""


Build = Callable[[AnyJob, int, int], Trainee]
"""From a job, its env steps and its seed to a run."""
BuildPlayer = Callable[[AnyJob, int, int], Player]


def train(trainee: Trainee, hook: Callable[[], None]) -> None:
    with contextlib.suppress(Finished):
        trainee.run(hook)
        hook()  # not every library calls it after the last round


class Turns:
    """Makes the next turn whenever it is asked for one, and says what it took; the first answer ends the warm-up."""

    def __init__(self, channel: Channel, trainee: Trainee, warm_up: int) -> None:
        self._channel, self._trainee, self._until = channel, trainee, warm_up
        self._begin = self._now()

    def __call__(self) -> None:
        if self._trainee.steps < self._until:
            return
        spent = {name: value - self._begin[name] for name, value in self._now().items()}
        self._channel.write(**spent, peak_rss=peak_rss())
        request = self._channel.read()
        if request is None:
            raise Finished
        self._begin = self._now()
        self._until = self._trainee.steps + request["steps"]

    def _now(self) -> dict[str, float]:
        steps, updates = self._trainee.steps, self._trainee.updates
        return {"seconds": perf_counter(), "cpu": process_time(), "steps": steps, "updates": updates}


def speed(build: Build) -> Handler:
    def handle(channel: Channel, request: dict[str, Any]) -> None:
        trainee = build(read_job(request["job"]), request["total"], 0)
        train(trainee, Turns(channel, trainee, request["warm_up"]))

    return handle


def measure_memory(channel: Channel, trainee: Trainee, imported: int) -> None:
    """Train to the end, and answer how much memory it took at most, and how much importing the libraries had."""
    trainee.run(lambda: None)
    channel.write(peak_rss=peak_rss(), imported=imported, steps=trainee.steps, updates=trainee.updates)


def memory(build: Build) -> Handler:
    def handle(channel: Channel, request: dict[str, Any]) -> None:
        imported = peak_rss()
        measure_memory(channel, build(read_job(request["job"]), request["total"], 0), imported)

    return handle


class Curve:
    """Evaluates every so many steps and writes the files of a run folder."""

    def __init__(self, player: Player, env: str, folder: Path, every: int) -> None:
        self._player, self._env, self._every, self._next = player, env, every, every
        self._folder = folder
        self._start = perf_counter()
        folder.mkdir(parents=True)

    def __call__(self) -> None:
        if self._player.steps < self._next:
            return
        self._next += self._every
        returns, _ = play(self._player.act, self._env, jobs.CURVE_EPISODES)
        row = {"step": self._player.steps, "eval/mean_reward": float(np.mean(returns))}
        with (self._folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def finish(self) -> None:
        returns, lengths = play(self._player.act, self._env, jobs.FINAL_EPISODES)
        evaluation = {
            "mean": float(np.mean(returns)),
            "std": float(np.std(returns)),
            "returns": returns,
            "lengths": lengths,
        }
        steps, updates = self._player.steps, self._player.updates
        seconds = perf_counter() - self._start
        result = {"steps": steps, "updates": updates, "seconds": seconds, "evaluation": evaluation}
        (self._folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")


def curve(build: BuildPlayer) -> Handler:
    def handle(channel: Channel, request: dict[str, Any]) -> None:
        job = read_job(request["job"])
        player = build(job, request["total"], request["seed"])
        writer = Curve(player, job.env, Path(request["folder"]), request["every"])
        train(player, writer)
        writer.finish()
        channel.write(done=True)

    return handle


def bar(build: BuildPlayer) -> Handler:
    """Answer as soon as an evaluation reaches the bar, or at the end of the run."""

    def handle(channel: Channel, request: dict[str, Any]) -> None:
        job = read_job(request["job"])
        player = build(job, request["total"], request["seed"])
        score, best, due = 0.0, 0.0, request["every"]

        def hook() -> None:
            nonlocal score, best, due
            if player.steps < due:
                return
            due += request["every"]
            score = float(np.mean(play(player.act, job.env, request["episodes"])[0]))
            best = max(best, score)
            if score >= request["bar"]:
                raise Finished

        train(player, hook)
        channel.write(reached=score >= request["bar"], steps=player.steps, best=best)

    return handle


def handlers(build: BuildPlayer) -> dict[str, Handler]:
    return {"speed": speed(build), "curve": curve(build), "time-to-bar": bar(build), "memory": memory(build)}


def play(act: Act, env: str, episodes: int) -> tuple[list[float], list[int]]:
    """Play greedily, always the same episodes; environment i has those that are i modulo their number."""
    count = min(jobs.EVALUATION_ENVS, episodes)
    envs = [gym.make(env) for _ in range(count)]
    playing = list(range(count))
    obs = np.stack([e.reset(seed=jobs.EVALUATION_SEED + k)[0] for e, k in zip(envs, playing, strict=True)])
    returns, lengths = [0.0] * episodes, [0] * episodes
    while any(k < episodes for k in playing):
        actions = act(obs)
        for i, k in enumerate(playing):
            if k >= episodes:
                continue
            obs[i], reward, terminated, truncated, _ = envs[i].step(actions[i])
            returns[k] += float(reward)
            lengths[k] += 1
            if terminated or truncated:
                playing[i] += count
                if playing[i] < episodes:
                    obs[i], _ = envs[i].reset(seed=jobs.EVALUATION_SEED + playing[i])
    for e in envs:
        e.close()
    return returns, lengths
