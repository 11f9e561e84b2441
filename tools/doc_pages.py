"""The generated parts of the documentation: options, facts, limits, results and commands, from where they are declared.

A page marks them by comments, ``<!-- made by `make generated`: NAME -->`` and ``<!-- end -->``; everything else is
written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import typer
import yaml

from rl_training.algorithms.spec import EVERY_OBS, OBS_KINDS, AlgorithmSpec
from rl_training.cli import app
from rl_training.config.explain import Option, algorithm_options, as_written, shared_options
from rl_training.experiment.configs import load_config, packaged_configs, packaged_suites

DOCS = Path(__file__).parent.parent / "docs"
MARKED = re.compile(r"(<!-- made by `make generated`: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages(specs: list[AlgorithmSpec]) -> dict[Path, str]:
    """Return the pages with generated parts, and the text they should have."""
    parts: dict[Path, dict[str, Callable[[], str]]] = {
        DOCS / "options.md": {"options": lambda: sections(shared_options())},
        DOCS / "cli.md": {"commands": commands},
        DOCS / "algorithms" / "index.md": {"algorithms": lambda: overview(specs)},
    }
    for spec in specs:
        parts[DOCS / "algorithms" / f"{spec.name}.md"] = {
            "facts": partial(facts, spec),
            "options": partial(options_of, spec),
            "configs": partial(configs, spec),
            "limits": partial(limits, spec),
        }
    return {path: filled(path, made) for path, made in parts.items()}


def filled(path: Path, made: dict[str, Callable[[], str]]) -> str:
    """Return the text of a page with its generated parts replaced."""
    text = path.read_text(encoding="utf-8")
    there = {match.group(2) for match in MARKED.finditer(text)}
    if there != made.keys():
        raise ValueError(f"{path}: should have the generated parts {sorted(made)}, has {sorted(there)}")
    return MARKED.sub(lambda match: match.group(1) + made[match.group(2)]() + match.group(3), text)


# Options


def table(options: Iterable[Option], name: Callable[[Option], str]) -> str:
    """Return a table of options."""
    lines = ["| option | default | allowed | meaning |", "|---|---|---|---|"]
    for option in options:
        default = option.default_text if option.default_text == "required" else f"`{option.default_text}`"
        meaning = option.meaning.replace("``", "`") + (" *Fixed.*" if option.fixed else "")
        cells = (f"`{name(option)}`", default, option.allowed, meaning)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join([*lines, ""])


def options_of(spec: AlgorithmSpec) -> str:
    """Return the hyper-parameters of an algorithm, one table for each group."""
    text = ""
    for group, options in groupby(algorithm_options(spec.config), lambda option: option.group):
        text += (
            f"\n### {group.rstrip('.').replace('``', '`')}\n\n{table(options, lambda option: option.name)}"
        )
    return text + "\n"


def sections(options: list[Option]) -> str:
    """Return the shared options, one table for each section."""
    text = ""
    places = [section_of(option) for option in options]
    ordered = sorted(options, key=lambda option: (section_of(option) != "", places.index(section_of(option))))
    for section, own in groupby(ordered, section_of):
        some = list(own)
        title = f"`{section}`" if section else "Top level"
        text += f"\n## {title}\n\n{some[0].group}\n\n{table(some, lambda option: option.key)}"
    return text + "\n"


def section_of(option: Option) -> str:
    """Return the section that an option stands in, nothing for the top level."""
    return option.key.rpartition(".")[0]


# Algorithms


def overview(specs: list[AlgorithmSpec]) -> str:
    """Return the table of all algorithms."""
    lines = ["| algorithm | `algo` | actions | what it is |", "|---|---|---|---|"]
    for spec in specs:
        what = f"{spec.summary[0].upper()}{spec.summary[1:]}"
        lines.append(f"| [{spec.title}]({spec.name}.md) | `{spec.name}` | {actions(spec)} | {what} |")
    return "\n".join([*lines, ""])


def actions(spec: AlgorithmSpec) -> str:
    """Return the kinds of actions that an algorithm takes."""
    if len(spec.action_kinds) > 1:
        return "discrete, continuous, MultiDiscrete, MultiBinary"
    return "discrete" if "discrete" in spec.action_kinds else "continuous, with bounds"


def facts(spec: AlgorithmSpec) -> str:
    """Return what there is to know before using an algorithm."""
    kinds = (OBS_KINDS[kind] for kind in sorted(spec.obs_kinds))
    seen = "any, see [observations](../observations.md)" if spec.obs_kinds == EVERY_OBS else ", ".join(kinds)
    network = ", ".join(
        f"`{key}: {as_written(value)}`" for key, value in spec.config.network_defaults.items()
    )
    rows = [
        ("`algo` in a config", f"`{spec.name}`"),
        ("Python class", f"`rl_training.{spec.class_name}`"),
        ("observations", seen),
        ("actions", actions(spec)),
        ("defaults of `network`", f"{network}, else as for [all](../options.md#network)" if network else ""),
        ("paper", f"[{spec.paper}]({spec.url})"),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows if value), ""])


def configs(spec: AlgorithmSpec) -> str:
    """Return the packaged configs of an algorithm, and what was measured with them."""
    names = [name for name in packaged_configs() if name.startswith(f"{spec.name}/")]
    lines = ["| config | environment | env steps | benchmark suites |", "|---|---|---|---|"]
    for name in names:
        config = load_config(name)
        suites = ", ".join(f"`{suite}`" for suite, used in _suites().items() if name in used) or "none"
        lines.append(f"| `{name}` | `{config.env.id}` | {config.total_timesteps:,} | {suites} |")
    text = "\n".join([*lines, ""])
    measured = [result for result in results() if any(name in names for name, _ in result.rows)]
    if not measured:
        return f"{text}\nNone of them has been measured yet.\n"
    for result in measured:
        rows = [row for name, row in result.rows if name in names]
        text += f"\n[{result.title}](../benchmarks.md#{result.anchor}):\n\n"
        text += "\n".join([result.head, "|---" * (result.head.count("|") - 1) + "|", *rows, ""])
    return text


def _suites() -> dict[str, set[str]]:
    read = {
        name: yaml.safe_load(path.read_text(encoding="utf-8")) for name, path in packaged_suites().items()
    }
    return {name: {entry["config"] for entry in suite["entries"]} for name, suite in read.items()}


class Measured(NamedTuple):
    """A table of docs/benchmarks.md whose rows are configs."""

    title: str
    anchor: str
    head: str
    rows: list[tuple[str, str]]


def results() -> list[Measured]:
    """Return the tables of results, with the headings above them."""
    found: list[Measured] = []
    title, head = "", ""
    for line in (DOCS / "benchmarks.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
        elif line.startswith("| config |"):
            head = line
            found.append(Measured(title, _anchor(title), head, []))
        elif head and (match := re.match(r"\| `(\w+/\w+)` \|", line)):
            found[-1].rows.append((match.group(1), line))
        elif not line.startswith("|"):
            head = ""
    return found


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")


def limits(spec: AlgorithmSpec) -> str:
    """Return the rows of the roadmap that are about an algorithm, as paragraphs."""
    found = []
    for line in (DOCS / "roadmap.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 2 and "`" in cells[0]:
            named = spec.name in re.findall(r"`(\w+)`", cells[0])
            if named != cells[0].startswith("all but"):
                found.append(cells[1].rstrip(" |").replace("](", "](../"))
    if not found:
        raise ValueError(f"docs/roadmap.md: has no row for {spec.name}")
    return "\n\n".join([*reversed(found), ""])


# Commands


def commands() -> str:
    """Return the commands of the command line, with their arguments and options."""
    root: Any = typer.main.get_command(app)
    text = ""
    for name, command in root.commands.items():
        usage = " ".join(_usage(command))
        text += f"\n## {name}\n\n`rl-training {name} {usage}`\n\n{_clean(command.help)}\n\n"
        lines = ["| argument or option | default | meaning |", "|---|---|---|"]
        for parameter in command.params:
            words = ", ".join(f"`{word}`" for word in parameter.opts)
            if parameter.param_type_name == "argument":
                words = f"`{_metavar(parameter)}`"
            lines.append(f"| {words} | {_default(parameter)} | {_clean(parameter.help)} |")
        text += "\n".join([*lines, ""])
    return text + "\n"


def _usage(command: Any) -> Iterator[str]:
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            yield _metavar(parameter)
    yield "[OPTIONS]"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    shown = parameter.show_default if isinstance(parameter.show_default, str) else None
    value = shown or parameter.default
    plain = isinstance(value, str | int | Path) and not isinstance(value, bool) and str(value)
    return f"`{value}`" if plain else ""


def _clean(text: str | None) -> str:
    return " ".join((text or "").replace("\\[", "[").replace("|", "\\|").split())
