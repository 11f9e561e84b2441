"""The command line. torch is imported only by commands that compute, and after the config was accepted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training import cli_streams, current_folder
from rl_training.cli_arguments import check_memory_options, parse_json, run_path, training_source
from rl_training.cli_output import (
    print_evaluation,
    print_export,
    print_report,
    print_seeds,
    print_training,
    shown,
)
from rl_training.cli_streams import report
from rl_training.errors import ConfigError, RLTrainingError, machine_error, printable
from rl_training.runtime.console import notice
from rl_training.version import __version__

if TYPE_CHECKING:
    from rl_training.config import ExperimentConfig

app = typer.Typer(
    name="rl-training",
    help="Train, resume, evaluate and use deep reinforcement learning agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to override.")
]
RunArgument = Annotated[
    Path | None, typer.Argument(metavar="RUN", help="A run folder, one of its checkpoints, or a saved agent.")
]
CheckpointOption = Annotated[Path | None, typer.Option("--checkpoint", help="The same as RUN.")]
BestOption = Annotated[
    bool, typer.Option("--best", help="Use the best checkpoint of the run instead of the newest.")
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Let the run import and call any code that it names, also from the current folder. Without it, only "
        "environments that are registered with Gymnasium and classes of installed packages are used.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def train(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG] [KEY=VALUE]...",
            help="A YAML file or a packaged config, such as dqn/cartpole, and settings to override.",
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", "-c", metavar="CONFIG", help="The same as CONFIG.")
    ] = None,
    algo: Annotated[
        str | None, typer.Option(help="An algorithm with its defaults, instead of a config: dqn.")
    ] = None,
    env: Annotated[
        str | None, typer.Option(help="The environment, the same as env.id=ENV: Acrobot-v1.")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="The run folder; by default a new one below runs/.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run, the same as seed=N.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds to run, counted from --seed.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of seeds that run at the same time.", show_default="1"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")] = False,
    trust: TrustOption = False,
) -> None:
    """Train an agent from a config.

    A config file may name code in the current folder. If CONFIG is a run folder, that needs --trust.
    """
    if jobs is not None and seeds is None:
        raise ConfigError("--jobs: goes with --seeds N only")
    from rl_training.experiment.configs import check_source, is_run_folder, load_config

    source, given, budget = training_source(words, config, algo, env, seed)
    experiment = load_config(source, given)
    check_source(source, experiment, trust=trust)
    if budget:
        notice(budget)
    if trust or not is_run_folder(source):
        current_folder.offer()
    if seeds is not None:
        _train_seeds(experiment, seeds, jobs or 1, run_dir, quiet)
        return
    from rl_training.experiment import registry

    result = registry.train(experiment, run_dir=run_dir, console=not quiet)
    with report():
        print_training(result)


@app.command()
def resume(
    run: RunArgument = None,
    overrides: Overrides = None,
    checkpoint: CheckpointOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")] = False,
    trust: TrustOption = False,
) -> None:
    """Continue a run exactly where it was; total_timesteps=N trains longer."""
    path, given = run_path(run, checkpoint, overrides)
    _offer_if(trust)
    from rl_training.experiment import registry

    result = registry.resume(path, overrides=given, console=not quiet, trust=trust)
    with report():
        print_training(result)


@app.command("eval")
def evaluate(
    run: RunArgument = None,
    checkpoint: CheckpointOption = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Number of episodes; by default that of the final evaluation.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the episodes, instead of evaluation.seed.")
    ] = None,
    best: BestOption = False,
    video: Annotated[
        Path | None, typer.Option(metavar="FILE.mp4", help="Also write a video of the first episodes.")
    ] = None,
    video_episodes: Annotated[
        int | None, typer.Option(min=1, help="Number of episodes in the video.", show_default="1")
    ] = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Evaluate an agent: play episodes with its greedy actions."""
    _offer_if(trust)
    path, _ = run_path(run, checkpoint, None)
    if video is not None:
        from rl_training.runtime.mp4 import check_target

        check_target(video)
    elif video_episodes is not None:
        raise ConfigError("--video-episodes: goes with --video FILE.mp4 only")
    from rl_training.experiment import registry

    result = registry.evaluate(
        path,
        episodes,
        best=best,
        seed=seed,
        video=video,
        video_episodes=video_episodes or 1,
        trust=trust,
        console=True,
    )
    print_evaluation(result, video, as_json)


@app.command()
def predict(
    run: RunArgument = None,
    checkpoint: CheckpointOption = None,
    obs: Annotated[str, typer.Option(help="One observation or a batch, as JSON: '[0.1, 0, 0, 0]'.")] = "",
    action_mask: Annotated[
        str, typer.Option(help="Which actions are allowed, as JSON: '[1, 0]'; for a batch, a list of these.")
    ] = "",
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file that keeps the agent's memory between calls; without it, an episode begins.",
        ),
    ] = None,
    episode_start: Annotated[
        str, typer.Option(help="Where an episode begins, as JSON: true, or for a batch '\\[true, false]'.")
    ] = "",
    reward: Annotated[
        str,
        typer.Option(
            help="Reward of the last action, for agents that take it as an input, as JSON: 1 or '[1, 0]'."
        ),
    ] = "",
    best: BestOption = False,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print the action for an observation."""
    _offer_if(trust)
    path, _ = run_path(run, checkpoint, None)
    if not obs:
        raise ConfigError("--obs: is missing; give an observation as JSON, such as '[0.1, 0, 0, 0]'")
    values = parse_json(obs, "--obs")
    mask = parse_json(action_mask, "--action-mask") if action_mask else None
    begins = parse_json(episode_start, "--episode-start") if episode_start else None
    gained = parse_json(reward, "--reward") if reward else None
    from rl_training.runtime.memory_file import read_memory, write_memory

    memory = read_memory(state) if state is not None else None
    from rl_training.experiment import registry

    policy = registry.policy(path, best=best, trust=trust)
    check_memory_options(policy, state, begins, gained)
    chosen, memory = policy.predict(values, memory, begins, action_mask=mask, reward=gained)
    action = chosen.tolist()
    if state is not None:
        write_memory(state, memory)
    print(json.dumps({"action": action}) if as_json else action)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the algorithms, the packaged configs and the benchmark suites."""
    from rl_training.experiment.configs import packaged_configs, packaged_suites
    from rl_training.experiment.registry import algorithms

    specs, configs, suites = algorithms(), list(packaged_configs()), list(packaged_suites())
    if as_json:
        print(json.dumps({"algorithms": list(specs), "configs": configs, "suites": suites}))
        return
    print("Algorithms")
    width = max(map(len, specs))
    for spec in specs.values():
        print(f"  {spec.name:<{width}} {spec.title}: {spec.summary}")
    print("Configs")
    for name in configs:
        print(f"  {name}")
    print("Benchmark suites")
    for name in suites:
        print(f"  {name}")


@app.command()
def show(
    config: Annotated[str, typer.Argument(help="A YAML file, a packaged config or a run folder.")],
    overrides: Overrides = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also print the meaning and the allowed values of each option.")
    ] = False,
) -> None:
    """Print a config with every default."""
    from rl_training.config.loading import dump_yaml
    from rl_training.experiment.configs import load_config

    resolved = load_config(config, overrides or [])
    if explain:
        from rl_training.config.explain import explained

        print("\n".join(map(printable, explained(resolved))))
        return
    print("\n".join(map(printable, dump_yaml(resolved).split("\n"))), end="")


@app.command()
def benchmark(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="A YAML file or a packaged suite, such as cartpole.")
    ],
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder of the results; by default runs/benchmark/SUITE.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of runs at the same time.", show_default="one for each core"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark suite: several configs, each with several seeds.

    The exit code is 1 if a bar is missed or a run fails. After a stop, the same command continues.
    """
    from rl_training.experiment.suites import load_suite

    plan = load_suite(suite)
    current_folder.offer()
    from rl_training.experiment.benchmark import CARD, RESULTS, Benchmark

    result = Benchmark(plan, folder=run_dir, at_once=jobs).run(console=not quiet)
    with report():
        if as_json:
            print(json.dumps(json.loads((result.folder / RESULTS).read_text(encoding="utf-8"))))
        else:
            for entry in result.entries:
                print(f"  {entry.name:<32} {entry.line}")
            print(f"Results {shown(result.folder / RESULTS)}")
            print(f"Card    {shown(result.folder / CARD)}")
            print_report(result.folder)
    if not result.reached:
        raise typer.Exit(1)


@app.command("compare")
def compare_(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULT...",
            help="Folders of runs, of several seeds or of a suite's entries; NAME=FOLDER gives a name.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE.png", help="File for the picture of the learning curves.")
    ] = Path("compare.png"),
    as_json: JsonOption = False,
) -> None:
    """Compare two or more results, and say whether their seeds can tell them apart."""
    if out.suffix != ".png" or not out.parent.is_dir() or out.is_dir():
        raise ConfigError(f"--out: {out}: should be a .png file in a folder that exists")
    from rl_training.experiment.comparison import compare, name_folders

    comparison = compare(name_folders(results))
    if not as_json:
        print("\n".join(map(printable, comparison.lines())), flush=True)
    try:
        comparison.plot(out)
    except OSError as error:
        raise ConfigError(f"--out: {out}: {error.strerror}") from None
    if as_json:
        print(json.dumps({**comparison.plain(), "picture": str(out)}))
    else:
        print(f"Picture {shown(out)}")


@app.command()
def export(
    to: Annotated[Path, typer.Option(metavar="FILE", help="policy.onnx, or policy.safetensors for NumPy.")],
    run: RunArgument = None,
    checkpoint: CheckpointOption = None,
    best: BestOption = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is there already.")
    ] = False,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write an agent to a file that runs without this package, after a check that it does what `predict` does."""
    _offer_if(trust)
    path, _ = run_path(run, checkpoint, None)
    from rl_training.experiment import registry

    done = registry.export(path, to, best=best, overwrite=overwrite, trust=trust)
    with report():
        print_export(done, as_json)


@app.command("report")
def report_(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER...", help="Runs, several seeds or benchmarks, or NAME=FOLDER."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Where the page goes.", show_default="report.html in the folder"
        ),
    ] = None,
) -> None:
    """Write one HTML page about runs: curves, scores, time, metrics, settings. It opens without a network."""
    from rl_training.experiment.comparison import name_folders
    from rl_training.experiment.report.page import REPORT, check_target, make_report

    named = name_folders(folders)
    target = out or (next(iter(named.values())) / REPORT if len(named) == 1 else Path(REPORT))
    if out is not None:
        check_target(out)
    for problem in make_report(named, target):
        notice(f"warning: {problem}")
    print(f"Report  {shown(target)}")


@app.command()
def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a folder of several.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1.", show_default="one that is free")
    ] = 0,
    text: Annotated[bool, typer.Option("--text", help="In this terminal instead of a page.")] = False,
) -> None:
    """Show runs while they go: curve, metrics, time left, latest video. Nothing is changed; Ctrl-C ends it."""
    if text:
        from rl_training.experiment.watch.text import show_text

        show_text(run)
        return
    from rl_training.experiment.watch.server import serve

    serve(run, port, lambda url: print(f"Watching {shown(run)} at {url} (Ctrl-C ends it)", flush=True))


@app.command()
def doctor(
    source: Annotated[
        str,
        typer.Argument(metavar="CONFIG|RUN", help="A YAML file, a packaged name, or the folder of a run."),
    ],
    overrides: Overrides = None,
    full: Annotated[
        bool, typer.Option("--full", help="For a RUN: also check its environment and run the probes.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(min=1.0, help="About how long it may take.", show_default="24")
    ] = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say what may keep an agent from learning, before or after a run; exit 1 if something was found."""
    from rl_training.experiment.doctor.command import examine

    if not examine(source, overrides or [], full=full, seconds=seconds, trust=trust, as_json=as_json):
        raise typer.Exit(1)


def _train_seeds(
    experiment: ExperimentConfig[Any], seeds: int, jobs: int, run_dir: Path | None, quiet: bool
) -> None:
    from rl_training.experiment.manager import ExperimentManager

    manager = ExperimentManager(experiment, seeds=seeds, folder=run_dir, jobs=jobs)
    summary = manager.run(console=not quiet)
    with report():
        print_seeds(summary)


def _offer_if(trust: bool) -> None:
    """With trust, what a run names may lie in the current folder."""
    if trust:
        current_folder.offer()


def main() -> None:
    """Run the command line; every error of ours is one line on stderr and an exit code."""
    current_folder.withdraw()  # what an earlier command in this process was allowed
    cli_streams.prepare()
    try:
        with cli_streams.answer():
            code = app(standalone_mode=False)
        sys.exit(code)
    except RLTrainingError as error:
        stopped = error.exit_code > 128  # by a signal: somebody asked for that, so it is no error
        if not getattr(error, "cut_off", False):
            notice(str(error) if stopped else f"error: {error}")
        sys.exit(error.exit_code)
    except (OSError, MemoryError) as error:  # of the machine, not of this package
        lost = machine_error(error)
        notice(f"error: {lost}")
        sys.exit(lost.exit_code)
    except Exception as error:
        # Usage errors of typer come from its own or from click's classes, depending on its version.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        if text := " ".join(message().split()):  # none: help was shown instead
            notice(f"error: {text.rstrip('.')}; --help says what there is")
        sys.exit(getattr(error, "exit_code", 2))
    finally:
        cli_streams.settle()


if __name__ == "__main__":
    main()
