"""What the command line prints about results, for people or as one line of JSON; torch is not imported here."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.errors import printable
from rl_training.shell import command, quoted_path

if TYPE_CHECKING:
    from rl_training.experiment.export.writing import Exported
    from rl_training.experiment.manager import Summary
    from rl_training.runtime.evaluator import Evaluation
    from rl_training.runtime.session import TrainResult


def print_training(result: TrainResult) -> None:
    """Print what a training came to, where it is, and what can be done with it next."""
    folder, program, trust = shown(result.run_dir), _program(), _trust_option(result.run_dir)
    if result.stop_reason:
        print(f"Stopped at step {result.steps}: {printable(result.stop_reason)}")
    speed = result.steps / max(result.seconds, 1e-9)
    print(
        f"Trained {result.steps} steps, {result.updates} updates, {result.seconds:.0f} s, {speed:.0f} steps/s"
    )
    print(f"Time    {result.time_split}")
    if result.evaluation is not None:
        value = result.evaluation
        print(f"Result  {value.mean:.2f} ± {value.std:.2f} over {len(value.returns)} evaluation episodes")
    print(f"Folder  {folder}")
    print(f"Curve   {shown(result.run_dir / 'curve.png')}")
    print("Next")
    print(f"  {command(*program)} eval {folder}{trust}")
    print(f"  {command(*program)} resume {folder}{trust} total_timesteps={2 * result.steps}")
    print(f"  {command(*_tensorboard(program))} --logdir {folder}")


def print_seeds(summary: Summary) -> None:
    """Print the score of each seed, and what they say together."""
    from rl_training.statistics import interval_text

    for seed, score in zip(summary.seeds, summary.scores, strict=True):
        print(f"  seed {seed}: {score:.2f}")
    print(f"IQM {summary.iqm:.2f}, {interval_text(summary.scores)}")
    print(f"Folder  {shown(summary.folder)}")
    print_report(summary.folder)


def print_report(folder: Path) -> None:
    """Print where the report is; one that could not be written was told of already."""
    if (folder / "report.html").is_file():
        print(f"Report  {shown(folder / 'report.html')}")


def print_evaluation(result: Evaluation, video: Path | None, as_json: bool) -> None:
    """Print the returns of an evaluation, and where its video is, if there is one."""
    if as_json:
        values = {
            "mean": result.mean,
            "std": result.std,
            "returns": result.returns,
            "lengths": result.lengths,
        }
        where = {} if video is None else {"video": str(video)}
        print(json.dumps({"episodes": len(result.returns), **values, **where}))
        return
    low, high = min(result.returns), max(result.returns)
    print(
        f"{len(result.returns)} episodes: return {result.mean:.2f} ± {result.std:.2f}, from {low:.2f} to {high:.2f}"
    )
    if video is not None:
        print(f"Video   {shown(video)}")


def print_export(done: Exported, as_json: bool) -> None:
    """Print what was written, and how it compares with ``predict``."""
    parity = done.parity
    if as_json:
        found = {"largest_difference": parity.largest, "ties": parity.ties, "source": parity.source}
        files = {"file": str(done.path), "card": str(done.card), "bytes": done.size}
        print(json.dumps({**files, "observations": parity.observations, **found}))
        return
    memory = f", memory carried over {parity.memory_steps} steps" if parity.memory_steps else ""
    ties = f", {parity.ties} ties by rounding" if parity.ties else ""
    worst = max(parity.largest.values(), default=0.0)
    print(f"File    {shown(done.path)}, {done.size:,} bytes")
    print(f"Card    {shown(done.card)}")
    print(
        f"Parity  equal actions on {parity.observations:,} observations{memory}, difference at most {worst:.1g}{ties}"
    )
    print(f"        observations: {printable(parity.source)}")


def shown(path: Path) -> str:
    """Return a path as it can be copied, seen from the working folder if it lies below."""
    return quoted_path(short_path(path))


def short_path(path: Path) -> Path:
    """Return a path below the working folder as seen from there, and any other as it is."""
    try:
        relative = os.path.relpath(path)
    except OSError:  # the working folder is gone
        return path
    return path if relative.startswith("..") else Path(relative)


def _trust_option(run: Path) -> str:
    """Return the option without which other commands refuse the names of this run."""
    from rl_training.experiment.configs import load_config
    from rl_training.runtime.trust import needs_trust

    return " --trust" if needs_trust(load_config(run / "config.yaml")) else ""


def _program() -> tuple[str | Path, ...]:
    """Return how this command line was called, so that what is printed can be typed as it is."""
    called = Path(sys.argv[0])
    if called.name != "rl-training":
        return "python", "-m", "rl_training"
    found = shutil.which("rl-training")
    on_path = found is not None and Path(found).resolve() == called.resolve()
    return ("rl-training" if on_path else short_path(called.absolute()),)


def _tensorboard(program: tuple[str | Path, ...]) -> tuple[str | Path, ...]:
    """Return how TensorBoard is called where this program is called so."""
    *front, last = program
    if isinstance(last, Path):
        return (last.with_name("tensorboard"),)
    return (*front, "tensorboard" if last == "rl-training" else "tensorboard.main")
