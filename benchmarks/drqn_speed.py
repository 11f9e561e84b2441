"""DRQN's update against the same mathematics unrolled step by step, and where the time of a run goes.

The peer is what one writes down first: an ``LSTMCell`` called in a loop over time, for the online and the target
network, autograd through all of it, ``torch.optim.Adam``. Both start from the same weights and learn from the same
batches; before anything is timed, their losses and weights are compared. They take turns in one process, so that
whatever else the machine does hits both alike. Times are processor time, the medians of the turns.

Run: python benchmarks/drqn_speed.py [--turns N] [--json FILE]
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

import torch
from torch import nn

from rl_training.algorithms.declared.drqn import DRQNConfig
from rl_training.algorithms.drqn import DRQN
from rl_training.data import SequenceBatch
from rl_training.experiment.configs import load_config
from rl_training.models.recurrent import LSTMQNetwork
from rl_training.runtime.drqn_trainer import train_drqn

OBS, ACTIONS = 4, 2
UPDATES = 10
"""Updates in one turn."""


@dataclass(frozen=True)
class Job:
    """Sizes of an update."""

    name: str
    steps: int
    batch: int
    size: int


JOBS = (Job("A", 20, 32, 64), Job("B", 40, 64, 64), Job("C", 80, 32, 256))


@dataclass(frozen=True)
class Speed:
    """Updates per second of both sides."""

    job: Job
    ours: float
    stepwise: float
    ratio: float
    low: float
    high: float


class Stepwise:
    """DRQN as one writes it down first."""

    def __init__(self, network: LSTMQNetwork, options: DRQNConfig) -> None:
        self.encoder = copy.deepcopy(network.encoder)
        self.cell = nn.LSTMCell(network.core.input_size, network.core_size)
        self.head = copy.deepcopy(network.head)
        for cell, core in zip(self.cell.parameters(), network.core.parameters(), strict=True):
            cell.data.copy_(core.data)
        self.modules = nn.ModuleList([self.encoder, self.cell, self.head])
        self.target = copy.deepcopy(self.modules).requires_grad_(False)
        self.optimizer = torch.optim.Adam(
            self.modules.parameters(), lr=options.learning_rate, eps=options.adam_eps
        )
        self.max_grad_norm = options.max_grad_norm

    def unroll(self, modules: nn.ModuleList, batch: SequenceBatch) -> torch.Tensor:
        encoder, cell, head = modules
        memory = (batch.state["hidden"][:, 0], batch.state["cell"][:, 0])
        outputs = []
        for obs in batch.obs:
            memory = cell(encoder(obs), memory)
            outputs.append(head(memory[0]))
        return torch.stack(outputs)

    def update(self, batch: SequenceBatch) -> float:
        q = self.unroll(self.modules, batch)
        with torch.no_grad():
            next_q = self.unroll(self.target, batch)
            best = q.argmax(2, keepdim=True)
            following = next_q.gather(2, best).squeeze(2).gather(0, batch.after)
            target = batch.returns + batch.discount * following
        chosen = q[:-1].gather(2, batch.action[..., None]).squeeze(2)
        each = nn.functional.huber_loss(chosen, target, reduction="none")
        loss = (each * batch.mask).sum() / batch.mask.sum()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        assert self.max_grad_norm is not None
        nn.utils.clip_grad_norm_(self.modules.parameters(), self.max_grad_norm)
        self.optimizer.step()
        return float(loss.detach())


def random_batch(job: Job, seed: int) -> SequenceBatch:
    """Return chunks of which one in four ends early."""
    draw = torch.Generator().manual_seed(seed)
    steps, size = job.steps, job.batch
    lengths = torch.where(torch.arange(size) % 4 == 0, steps // 2, steps)
    after = (torch.arange(steps)[:, None] + 1).minimum(lengths)
    return SequenceBatch(
        obs=torch.randn(steps + 1, size, OBS, generator=draw),
        action=torch.randint(ACTIONS, (steps, size), generator=draw),
        reward=torch.ones(steps, size),
        returns=torch.randn(steps, size, generator=draw),
        discount=torch.full((steps, size), 0.99),
        after=after,
        mask=torch.arange(steps)[:, None] < lengths,
        starts=torch.zeros(steps, size, dtype=torch.bool),
        state={name: torch.randn(size, 1, job.size, generator=draw) for name in ("hidden", "cell")},
    )


def sides(job: Job) -> tuple[DRQN, Stepwise]:
    """Return both learners, with the same weights."""
    torch.manual_seed(0)
    options = DRQNConfig(learning_rate=1e-3, core_size=job.size, sequence_length=job.steps)
    network = LSTMQNetwork((OBS,), ACTIONS, (64,), core_size=job.size)
    stepwise = Stepwise(network, options)
    return DRQN(network, ACTIONS, options, total_timesteps=1000), stepwise


def check_equal(job: Job) -> None:
    """Let both make a few updates, and stop if they do not agree up to rounding."""
    ours, stepwise = sides(job)
    for seed in range(5):
        batch = random_batch(job, seed)
        loss, other = float(ours.update(batch).metrics["loss"]), stepwise.update(batch)
        if abs(loss - other) > 1e-4 * abs(other):
            raise SystemExit(f"job {job.name}: losses differ: {loss} and {other}")
    weights = [
        torch.cat([p.detach().flatten() for p in m.parameters()]) for m in (ours.online, stepwise.modules)
    ]
    gap = float((weights[0] - weights[1]).abs().max())
    if gap > 1e-4:
        raise SystemExit(f"job {job.name}: weights differ by {gap}")


def measure(job: Job, turns: int) -> Speed:
    """Time both sides in turns."""
    ours, stepwise = sides(job)
    batches = [random_batch(job, seed) for seed in range(UPDATES)]
    times: dict[str, list[float]] = {"ours": [], "stepwise": []}
    for turn in range(turns + 1):
        for name, learner in (("ours", ours), ("stepwise", stepwise)):
            begin = process_time()
            for batch in batches:
                learner.update(batch)
            if turn:  # the first one is for warming up
                times[name].append((process_time() - begin) / UPDATES)
    each = [b / a for a, b in zip(times["ours"], times["stepwise"], strict=True)]
    mine, other = statistics.median(times["ours"]), statistics.median(times["stepwise"])
    return Speed(job, 1 / mine, 1 / other, other / mine, min(each), max(each))


def time_split() -> dict[str, float]:
    """Return the seconds of a short run of the packaged config, by what they were spent on."""
    overrides = {
        "total_timesteps": 12_000,
        "evaluation.frequency": 0,
        "evaluation.final_episodes": 0,
        "logging.tensorboard": False,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        train_drqn(load_config("drqn/cartpole_no_velocity", overrides), run_dir=path, console=False)
        split: dict[str, float] = json.loads((path / "result.json").read_text())["time_split"]
    return split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, one thread")
    results = []
    for job in JOBS:
        check_equal(job)
        speed = measure(job, args.turns)
        results.append(speed)
        print(
            f"job {job.name}: {job.batch} sequences of {job.steps} steps, core {job.size}: "
            f"{speed.ours:.0f} updates/s, step by step {speed.stepwise:.0f}, "
            f"ratio {speed.ratio:.2f} (turns {speed.low:.2f} to {speed.high:.2f})",
            flush=True,
        )
    split = time_split()
    total = sum(split.values())
    shares = ", ".join(f"{name} {100 * seconds / total:.0f} %" for name, seconds in split.items())
    print(f"12,000 steps of drqn/cartpole_no_velocity in {total:.1f} s: {shares}")
    if args.json:
        args.json.write_text(
            json.dumps({"jobs": [asdict(result) for result in results], "time_split": split}, indent=2)
        )


if __name__ == "__main__":
    main()
