"""The commands that run suites, compare, explain and hand on what was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rl_training import current_folder
from rl_training.cli_arguments import run_path
from rl_training.cli_options import (
    BestOption,
    CheckpointOption,
    JsonOption,
    Overrides,
    RunArgument,
    TrustOption,
)
from rl_training.cli_output import print_export, print_report, shown
from rl_training.cli_streams import report
from rl_training.errors import ConfigError, printable
from rl_training.runtime.console import notice


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


def compare(
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
    from rl_training.experiment import comparison as comparisons

    comparison = comparisons.compare(comparisons.name_folders(results))
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
    if trust:
        current_folder.offer()  # what the run names may lie there
    path, _ = run_path(run, checkpoint, None)
    from rl_training.experiment import registry

    done = registry.export(path, to, best=best, overwrite=overwrite, trust=trust)
    with report():
        print_export(done, as_json)


def write_report(
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
