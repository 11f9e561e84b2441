"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
