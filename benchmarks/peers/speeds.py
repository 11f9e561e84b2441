"""The contests of speed: sides take turns at one job, or at each phase of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import jobs
from context import Context, library
from report import Section, mib
from turns import Entrant, Times, ratios, take_turns

COLUMNS = (
    "side",
    "steps/s",
    "updates/s",
    "updates a step",
    "we are faster by",
    "80 % of the turns",
    "by processor time",
    "processor / wall",
    "peak MiB",
)


def speed(name: str) -> Callable[[Context], Section]:
    """Return the section of one contest."""
    contest = jobs.CONTESTS[name]

    def section(context: Context) -> Section:
        times = _times(context, name, contest)
        table = Section(f"{name}: {contest.title}", COLUMNS)
        table.rows += _rows(name, times)
        table.notes.append(f"{context.turns} turns of {contest.turn:,} steps each.")
        table.data = _data(times)
        return table

    return section


def phased(name: str) -> Callable[[Context], Section]:
    """Return the section of a job in phases, with the seconds that the whole job takes at the speeds measured."""
    job = jobs.PHASED[name]

    def section(context: Context) -> Section:
        table = Section(f"{name}: {job.title}", ("phase", *COLUMNS))
        table.data = {"phases": {}, "steps": job.steps}
        each: list[tuple[dict[str, Times], int]] = []
        for phase, (contest, steps) in job.phases.items():
            times = _times(context, f"{name}-{phase}", contest)
            each.append((times, steps))
            table.rows += [[contest.title, *row] for row in _rows(name, times)]
            table.notes.append(f"{contest.title}: {context.turns} turns of {contest.turn:,} steps each.")
            table.data["phases"][phase] = _data(times)
        seconds = {
            side: sum(steps / times[side].speed for times, steps in each)
            for side in context.among(job.filling.sides)
            if all(side in times for times, _ in each)
        }
        table.data["seconds"] = seconds
        parts = " and ".join(f"{steps:,} {contest.title}" for contest, steps in job.phases.values())
        for side, taken in seconds.items():
            versus = ""
            if side != "ours" and "ours" in seconds:
                versus = f"; we are faster by {taken / seconds['ours']:.2f}"
            table.notes.append(
                f"{job.steps:,} steps, {parts}, take {library(name, side)} {taken:,.0f} s at these speeds{versus}."
            )
        return table

    return section


def _times(context: Context, where: str, contest: jobs.Contest) -> dict[str, Times]:
    entrants = [Entrant(side, side, contest.job) for side in context.among(contest.sides)]
    return take_turns(
        context, where, entrants, turn=contest.turn, warm_up=contest.warm_up, learns=contest.learns
    )


def _compared(times: Mapping[str, Times]) -> dict[str, dict[str, float]]:
    return {side: ratios(times["ours"], times[side]) for side in times} if "ours" in times else {}


def _rows(name: str, times: Mapping[str, Times]) -> list[list[str]]:
    compared = _compared(times)
    rows = []
    for side, spent in times.items():
        versus = compared.get(side) if side != "ours" else None
        rows.append(
            [
                library(name, side),
                f"{spent.speed:,.0f}",
                f"{spent.speed * spent.updates_per_step:,.0f}",
                f"{spent.updates_per_step:.4f}",
                f"{versus['wall']:.2f}" if versus else "",
                f"{versus['low']:.2f} to {versus['high']:.2f}" if versus else "",
                f"{versus['cpu']:.2f}" if versus else "",
                f"{sum(spent.cpu) / sum(spent.seconds):.2f}",
                mib(spent.peak_rss),
            ]
        )
    return rows


def _data(times: Mapping[str, Times]) -> dict[str, Any]:
    compared = _compared(times)
    return {side: {**asdict(spent), "ratios": compared.get(side)} for side, spent in times.items()}
