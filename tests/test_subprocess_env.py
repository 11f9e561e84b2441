"""The subprocess vector env: trajectories as in one process, and no way for an env to hurt the run."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_training.envs.subprocess import SubprocessVectorEnv
from rl_training.errors import EnvError

IMAGE = Box(0, 255, (12, 10, 3), np.uint8)
FOREVER = 1000.0


class EpisodeSeeds(gym.Wrapper):
    """Draws the seed of every episode by itself, and knows where it is in it."""

    def __init__(self, env, stream):
        super().__init__(env)
        self.stream = stream
        self.episode_seed: Any = None
        self.episode_step: Any = None
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episode_seed = 1000 * self.stream + self.episodes
        self.episode_step = 0
        self.episodes += 1
        return self.env.reset(seed=self.episode_seed, options=options)

    def step(self, action):
        self.episode_step += 1
        return self.env.step(action)

    def shifted(self, by, times=1):
        return self.stream + by * times

    def shout(self):
        raise EnvError(f"too loud (episode seed {self.episode_seed}, step {self.episode_step})")


class ImageEnv(gym.Env):
    """Frames that tell episode and step, all written into one array; an episode lasts three steps."""

    observation_space = IMAGE
    action_space = Discrete(2)

    def __init__(self):
        self.frame = np.zeros(IMAGE.shape, np.uint8)
        self.episode = self.steps = 0

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        self.steps = 0
        self.frame[:] = 10 * self.episode
        return self.frame, {"level": self.episode} if options else {}

    def step(self, action):
        assert type(action) is int, "single environments take a plain int for a discrete action"
        self.steps += 1
        self.frame += 1
        return self.frame, 0.5, False, self.steps == 3, {"won": True} if action and self.steps == 3 else {}


class FaultyEnv(ImageEnv):
    """Runs ``fault`` at one place: in ``init``, in the n-th ``reset`` or in the n-th ``step``."""

    def __init__(self, fault: Callable[[], None], place: str, when: int = 1):
        super().__init__()
        self.fault, self.place, self.countdown = fault, place, when
        self.visit("init")

    def visit(self, place):
        if place == self.place:
            self.countdown -= 1
            if self.countdown == 0:
                self.fault()

    def reset(self, *, seed=None, options=None):
        self.visit("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.visit("step")
        return super().step(action)


class FixedObs(gym.Env):
    action_space = Discrete(2)

    def __init__(self, space, obs):
        self.observation_space, self.obs = space, obs

    def reset(self, *, seed=None, options=None):
        return self.obs, {}


def fail():
    raise ValueError("no such\n   block")


def hang():
    time.sleep(FOREVER)


def hang_deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(FOREVER)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def crash():
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # Without pytest's report of it.
    os.kill(os.getpid(), signal.SIGSEGV)


def leave():
    os._exit(7)


def die_leaving_a_process():
    if os.fork() == 0:
        time.sleep(2)
        os._exit(0)
    killed()


def cartpoles(count):
    return [lambda i=i: EpisodeSeeds(gym.make("CartPole-v1"), i) for i in range(count)]


def with_fault(fault, place, when=1, index=1, count=3):
    """Return env functions of which only the one at ``index`` has a fault."""
    fns: list[Any] = [ImageEnv] * count
    fns[index] = lambda: FaultyEnv(fault, place, when)
    return fns


def play(env, steps):
    env.reset()
    for _ in range(steps):
        env.step(np.zeros(env.num_envs, np.int64))


def child_pids():
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for children in lists for pid in children.read_text().split()}


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def resources():
    gc.collect()
    return child_pids(), set(os.listdir("/dev/shm")), len(os.listdir("/proc/self/fd"))


def wait_until_gone(pids, seconds=5.0):
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


@pytest.fixture
def make() -> Iterator[Callable[..., SubprocessVectorEnv]]:
    made = []

    def build(env_fns, **kwargs):
        made.append(SubprocessVectorEnv(env_fns, **kwargs))
        return made[-1]

    before = child_pids()
    yield build
    for env in made:
        env.close()
    assert child_pids() == before


# What it computes.


def test_trajectories_equal_those_of_one_process(make):
    ours = make(cartpoles(3))
    theirs = SyncVectorEnv(cartpoles(3), autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.metadata == theirs.metadata
    assert ours.render_mode == theirs.render_mode
    for name in ("single_observation_space", "single_action_space", "observation_space", "action_space"):
        assert getattr(ours, name) == getattr(theirs, name)

    np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])
    actions, ended = np.random.default_rng(0), 0
    for _ in range(200):
        action = actions.integers(2, size=3)
        *got, infos = ours.step(action)
        *expected, expected_infos = theirs.step(action)
        for ours_array, theirs_array in zip(got, expected, strict=True):
            np.testing.assert_array_equal(ours_array, theirs_array)
            assert ours_array.dtype == theirs_array.dtype
        assert ("final_obs" in infos) == ("final_obs" in expected_infos)
        if "final_obs" in infos:
            ended += infos["_final_obs"].sum()
            np.testing.assert_array_equal(infos["_final_obs"], expected_infos["_final_obs"])
            for one, other in zip(infos["final_obs"], expected_infos["final_obs"], strict=True):
                np.testing.assert_array_equal(one, other)
        else:
            assert not infos
    assert ended >= 12


@pytest.mark.parametrize(("seed", "each"), [(7, [7, 8, 9]), ([5, 5, None], [5, 5, None])])
def test_reset_seeds_each_env(make, seed, each):
    obs, _ = make([lambda: gym.make("CartPole-v1")] * 3).reset(seed=seed)
    for row, one in zip(obs, each, strict=True):
        alone, _ = gym.make("CartPole-v1").reset(seed=one)
        assert np.array_equal(row, alone) == (one is not None)


def test_images_and_their_final_obs(make):
    env = make([ImageEnv] * 2)
    first, _ = env.reset(options={"verbose": True})
    assert first.dtype == np.uint8
    assert first.shape == (2, *IMAGE.shape)
    env.step(np.array([0, 0]))
    env.step(np.array([0, 0]))
    obs, reward, terminated, truncated, infos = env.step(np.array([0, 1]))

    np.testing.assert_array_equal(obs, np.full_like(obs, 20))
    np.testing.assert_array_equal(reward, [0.5, 0.5])
    assert truncated.all()
    assert not terminated.any()
    # The env has written its new first frame over this one.
    for final in infos["final_obs"]:
        np.testing.assert_array_equal(final, np.full(IMAGE.shape, 13, np.uint8))
    np.testing.assert_array_equal(infos["_final_obs"], [True, True])
    assert infos.keys() == {"final_obs", "_final_obs"}
    np.testing.assert_array_equal(first, np.full_like(first, 10), "a later step wrote into an earlier result")


@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (Discrete(5, start=2), 6),
        (MultiDiscrete([3, 4]), np.array([2, 3])),
        (MultiBinary(3), np.array([1, 0, 1], np.int8)),
        (Box(-9, 9, (), np.float64), np.float64(-3.5)),
        (Box(0, 1, (2, 0), np.float32), np.zeros((2, 0), np.float32)),
    ],
)
def test_array_like_observations(make, space, obs):
    env = make([lambda: FixedObs(space, obs)] * 2)
    got, _ = env.reset()
    np.testing.assert_array_equal(got, np.stack([obs, obs]))
    assert got in env.observation_space


def test_call_each(make):
    env = make(cartpoles(3))
    assert env.call_each("shifted", [(10,), (20,), (30, 2)]) == [10, 21, 62]
    env.reset()
    with pytest.raises(ValueError, match=r"one entry per env \(3\), got 1"):
        env.call_each("shifted", [(1,)])
    assert env.call_each("shifted", [(1,)] * 3) == [1, 2, 3], "a refused call must not disturb the workers"
    with pytest.raises(EnvError, match=r"env \d: AttributeError: .*no_such.*\(episode seed \d+, step 0\)$"):
        env.call_each("no_such")


# What an env can do to it.


def test_exception_names_env_episode_and_step(make):
    def faulty():
        return EpisodeSeeds(FaultyEnv(fail, "step", when=5), 4)

    env = make([ImageEnv, faulty])
    with pytest.raises(EnvError) as caught:
        play(env, 5)
    assert str(caught.value) == "env 1: ValueError: no such block (episode seed 4001, step 2)"
    assert "in fail\n" in caught.value.details


def test_env_errors_keep_their_message(make):
    env = make(cartpoles(1))
    env.reset()
    with pytest.raises(EnvError) as caught:
        env.call_each("shout")
    assert str(caught.value) == "env 0: too loud (episode seed 0, step 0)"


@pytest.mark.parametrize(("place", "when"), [("init", 1), ("reset", 1), ("reset", 2)])
def test_exception_outside_step(make, place, when):
    with pytest.raises(EnvError, match=r"^env 1: ValueError: no such block$"):
        play(make(with_fault(fail, place, when)), 3)


@pytest.mark.parametrize(
    ("fault", "place", "when", "activity"),
    [
        (hang, "init", 1, "start"),
        (hang, "reset", 1, "reset"),
        (hang, "reset", 2, "reset"),
        (hang, "step", 2, "step"),
        (hang_deaf, "step", 2, "step"),
    ],
)
def test_hanging_env_is_ended(make, fault, place, when, activity):
    limits = {"step_timeout": 0.4, "reset_timeout": 0.5}
    start = time.monotonic()
    with pytest.raises(EnvError) as caught:
        play(make(with_fault(fault, place, when), **limits), 4)
    assert time.monotonic() - start < 2.5
    limit = limits["step_timeout" if activity == "step" else "reset_timeout"]
    assert str(caught.value) == f"env 1: {activity} took longer than {limit} s; worker ended"


def test_only_the_hanging_worker_is_ended(make):
    env = make(with_fault(hang, "step"), step_timeout=0.3)
    with pytest.raises(EnvError):
        play(env, 1)
    assert [
        worker.is_alive() for worker in sorted(multiprocessing.active_children(), key=lambda w: w.pid or 0)
    ] == [True] * 2


def test_reset_after_an_episode_may_take_longer_than_a_step(make):
    env = make(with_fault(lambda: time.sleep(0.8), "reset", when=2), step_timeout=0.3, reset_timeout=5.0)
    play(env, 4)


def test_call_each_can_have_its_own_timeout(make):
    env = make([lambda: FaultyEnv(hang, "method")])
    with pytest.raises(EnvError, match=r"^env 0: call took longer than 0\.3 s; worker ended$"):
        env.call_each("visit", [("method",)], timeout=0.3)


@pytest.mark.parametrize(
    ("fault", "place", "cause"),
    [
        (killed, "init", "killed by SIGKILL, perhaps out of memory"),
        (leave, "reset", "exited with code 7"),
        (killed, "step", "killed by SIGKILL, perhaps out of memory"),
        (crash, "step", "killed by SIGSEGV"),
        (leave, "step", "exited with code 7"),
        (die_leaving_a_process, "step", "killed by SIGKILL, perhaps out of memory"),
    ],
)
def test_death_of_a_worker_is_noticed_while_others_are_busy(make, fault, place, cause):
    """Within a second, on a machine with nothing else to do; a loaded one may take a few."""

    def busy():
        return FaultyEnv(lambda: time.sleep(60.0), "step")

    start = time.monotonic()
    with pytest.raises(EnvError) as caught:
        play(make([busy, *with_fault(fault, place)]), 1)
    assert time.monotonic() - start < 30.0
    assert str(caught.value) == f"env 2: worker {cause}"


@pytest.fixture
def handlers() -> Iterator[None]:
    """A parent that handles SIGINT and SIGTERM in Python, as one that trains does."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_death_between_two_steps(make):
    env = make([ImageEnv] * 2)
    env.reset()
    victim = min(child_pids())
    os.kill(victim, signal.SIGKILL)
    assert not wait_until_gone([victim])
    with pytest.raises(EnvError, match=r"^env 0: worker killed by SIGKILL, perhaps out of memory$"):
        env.step(np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("space", "obs", "message"),
    [
        (Box(0, 1, (4,), np.float32), np.zeros(1, np.float32), r"of shape \(4,\), got \(1,\)$"),
        (Box(0, 9, (2,), np.uint8), np.array([0.5, 1.5]), r"Cannot cast"),
    ],
)
def test_malformed_observation_is_refused(make, space, obs, message):
    with pytest.raises(EnvError, match=message):
        make([lambda: FixedObs(space, obs)]).reset()


def test_infos_of_any_kind_stay_where_they_are(make):
    class Chatty(ImageEnv):
        def reset(self, *, seed=None, options=None):
            return self.frame, {"hook": lambda: None, "path": np.arange(id(self) % 7)}

    assert make([Chatty] * 2).reset()[1] == {}


def test_unsupported_and_differing_spaces(make):
    with pytest.raises(EnvError, match="Dict observation spaces are not supported"):
        make([lambda: FixedObs(Dict({"a": IMAGE}), None)])
    with pytest.raises(
        EnvError, match=r"^env 1: its space Discrete\(3\) differs from env 0's Discrete\(2\)$"
    ):
        make([lambda: FixedObs(Discrete(2), 0), lambda: FixedObs(Discrete(3), 0)])
    with pytest.raises(EnvError, match="at least one"):
        make([])


def test_unusable_after_an_error_or_interrupt(make, monkeypatch):
    failed = make(with_fault(fail, "step"))
    with pytest.raises(EnvError):
        play(failed, 1)
    with pytest.raises(EnvError, match="cannot be used any more: a step failed"):
        failed.reset()

    def interrupt(timeout):
        raise KeyboardInterrupt

    interrupted = make([ImageEnv])
    monkeypatch.setattr(interrupted._selector, "select", interrupt)
    with pytest.raises(KeyboardInterrupt):
        interrupted.reset()
    with pytest.raises(EnvError, match="a reset failed or was interrupted"):
        interrupted.step(np.zeros(1, np.int64))


# How it ends.


def play_and_close(fns):
    with contextlib.closing(SubprocessVectorEnv(fns, step_timeout=0.15, reset_timeout=0.3)) as env:
        play(env, 4)


def test_random_faults_leave_nothing_behind(request):
    rng = np.random.default_rng(0)
    faults: Any = [fail, hang, killed, crash, leave]
    before = resources()
    for _ in range(200 if request.config.getoption("--slow", default=False) else 25):
        fault = rng.choice(faults)
        place, when = str(rng.choice(["init", "reset", "step"])), int(rng.integers(1, 3))
        count = int(rng.integers(1, 5))
        fns = with_fault(fault, place, 1 if place == "init" else when, int(rng.integers(count)), count)
        with pytest.raises(EnvError, match=r"^env \d: "):
            play_and_close(fns)
        assert multiprocessing.active_children() == []
    assert resources() == before


def test_close_is_bounded_and_idempotent(make):
    class Stubborn(ImageEnv):
        def close(self):
            hang_deaf()

    env = make([Stubborn, ImageEnv])
    start = time.monotonic()
    env.close()
    env.close()
    assert time.monotonic() - start < 4.0
    assert env.closed
    with pytest.raises(EnvError, match="it is closed"):
        env.reset()


def test_close_lets_envs_close_in_silence(make, tmp_path, capfd):
    class Tidy(ImageEnv):
        def close(self):
            (tmp_path / "closed").touch()
            raise RuntimeError("too late to matter")

    env = make([Tidy])
    make(
        [ImageEnv]
    )  # Its worker has inherited the parent's end of the pipe, so closing that end is not enough.
    env.close()
    assert (tmp_path / "closed").exists()
    assert capfd.readouterr().err == ""


def test_dropping_the_last_reference_ends_the_workers():
    before = child_pids()
    env = SubprocessVectorEnv([ImageEnv] * 2)
    assert len(child_pids() - before) == 2
    del env
    gc.collect()
    assert child_pids() == before


@pytest.mark.usefixtures("handlers")
def test_ctrl_c_is_the_parents_business(make):
    before = child_pids()
    env = make([ImageEnv] * 2)
    for pid in child_pids() - before:
        os.kill(pid, signal.SIGINT)
    play(env, 2)


def test_a_fork_of_the_owner_leaves_the_workers_alone(make):
    env = make([ImageEnv] * 2)
    pid = os.fork()
    if pid == 0:
        env.close()
        os._exit(0)
    os.waitpid(pid, 0)
    play(env, 2)


SCRIPT = """
    import weakref
    weakref.finalize(type("Early", (), {}), int)  # Has weakref's hook at exit run after multiprocessing's.
    import os, signal, time
    import gymnasium as gym
    from rl_training.envs.subprocess import SubprocessVectorEnv

    class Env(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 1, (1,)), gym.spaces.Discrete(2)

        def pid(self):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            return os.getpid()

        def wait(self, how):
            while how == "spinning":
                pass
            while how == "asleep":
                time.sleep(1)

    env = SubprocessVectorEnv([Env] * 3)
    print(*env.call_each("pid"), flush=True)
"""


WITHOUT_PRCTL = """
import rl_training.envs.worker as module
module._LIBC.prctl = lambda *_: None
"""


@contextlib.contextmanager
def script(ending, beginning=""):
    """Run the script in a process of its own; yields it and the pids of its workers."""
    code = beginning + textwrap.dedent(SCRIPT) + ending
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 3
        try:
            yield process, pids
        finally:
            process.kill()
            for pid in filter(is_running, pids):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "ending", ["time.sleep(1000)", 'env.call_each("wait", [("spinning",), ("asleep",), ("",)])']
)
def test_no_orphans_when_the_parent_is_killed(ending):
    with script(ending) as (process, pids):
        time.sleep(0.2)
        assert all(is_running(pid) for pid in pids)
        process.kill()
        assert wait_until_gone(pids) == []


def test_workers_see_the_parents_end_even_if_another_hangs():
    ending = 'env.call_each("wait", [("",), ("",), ("asleep",)])'
    with script(ending, beginning=WITHOUT_PRCTL) as (process, pids):
        time.sleep(0.2)
        process.kill()
        assert wait_until_gone(pids[:2], 2.0) == []
        assert is_running(pids[2])


@pytest.mark.parametrize("code", [0, 3])
def test_no_orphans_when_the_parent_just_ends(code):
    with script(f"raise SystemExit({code})") as (process, pids):
        assert process.wait(10) == code
        assert wait_until_gone(pids) == []
