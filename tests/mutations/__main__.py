"""Puts every bug of the list into a copy of the package, runs the tests that should notice, and writes a report."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from mutations.bug import Bug, stale
from mutations.every import BUGS, sample
from mutations.report import counts, page
from mutations.server import run_tests, warm_up
from mutations.tree import Tree


def main(words: Sequence[str] | None = None) -> int:
    """Run what is not in the report yet; return 1 if a bug went unnoticed that should not have."""
    parser = argparse.ArgumentParser(prog="python -m mutations", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", help="bugs whose file, text or description matches this")
    parser.add_argument("--sample", type=int, metavar="N", help="only N of those of wiring, and all others")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--out", type=Path, default=Path("runs/bugs"), help="folder of the report")
    parser.add_argument("--again", action="store_true", help="forget what an earlier run has found")
    parser.add_argument("--check", action="store_true", help="only run the tests without any bug")
    given = parser.parse_args(words)
    if problems := stale(BUGS):
        print("\n".join(["error: the list is not of this code:", *problems]), file=sys.stderr)
        return 2
    chosen = [bug for bug in sample(given.sample) if _is_meant(bug, given.only)]
    given.out.mkdir(parents=True, exist_ok=True)
    lines = given.out / "results.jsonl"
    if given.again:
        lines.unlink(missing_ok=True)
    known = {row["key"] for row in _read(lines)}
    missing = [bug for bug in chosen if bug.key not in known]
    if given.check:
        return _check(sorted({bug.tests for bug in chosen}))
    print(f"{len(chosen)} bugs, {len(missing)} of them to be put in", flush=True)
    with tempfile.TemporaryDirectory(prefix="bugs-") as folder:
        _all(missing, given.jobs, Path(folder), lines)
    rows = {row["key"]: row for row in _read(lines)}
    found = [(bug, rows[bug.key]) for bug in chosen if bug.key in rows]
    (given.out / "report.md").write_text(page(found))
    print(counts(found))
    unexplained = [bug for bug, row in found if not row["red"] and not bug.survives]
    for bug in unexplained:
        print(f"unnoticed: {bug.file}: {bug.what}")
    return 1 if unexplained else 0


def _all(bugs: list[Bug], jobs: int, folder: Path, lines: Path) -> None:
    context = get_context("fork")
    taken = context.Value(
        "i", 0
    )  # how many bugs have a worker; a queue of them all would not fit into its pipe
    workers = [
        context.Process(target=_work, args=(bugs, taken, folder / f"tree-{i}", lines, folder))
        for i in range(jobs)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit("error: a worker failed; the same command goes on where it was")


def _is_green(tree: Tree, test: str, log: Path) -> bool:
    """Say whether a test that has noticed a bug does not fail without it; one that hangs is not tried again."""
    return "::" not in test or run_tests(tree, shlex.quote(test.removeprefix("tests/")), log).failed is None


def _next(bugs: list[Bug], taken: Any) -> Bug | None:
    with taken.get_lock():
        taken.value += 1
        return bugs[taken.value - 1] if taken.value <= len(bugs) else None


def _work(bugs: list[Bug], taken: Any, place: Path, lines: Path, folder: Path) -> None:
    warm_up()
    tree, green = Tree(place), set[str]()
    while (bug := _next(bugs, taken)) is not None:
        with tree.with_bug(bug):
            outcome = run_tests(tree, bug.tests, folder / f"{place.name}.log")
        if outcome.failed is not None and outcome.failed not in green:
            if not _is_green(tree, outcome.failed, folder / f"{place.name}.log"):
                print(f"error: {outcome.failed} fails without a bug, too", file=sys.stderr, flush=True)
                continue
            green.add(outcome.failed)
        row = {
            "key": bug.key,
            "file": bug.file,
            "what": bug.what,
            "red": outcome.failed is not None,
            "test": outcome.failed,
            "seconds": round(outcome.seconds, 1),
        }
        with lines.open("a") as file:  # one line in one write
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        print(
            f"{'red  ' if row['red'] else 'GREEN'} {row['seconds']:6.1f} s  {bug.file}: {bug.what}",
            flush=True,
        )


def _check(selections: list[str]) -> int:
    """See that every selection of tests exists and is green without a bug."""
    warm_up()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="bugs-") as folder:
        tree = Tree(Path(folder, "tree"))
        for tests in selections:
            log = Path(folder, "check.log")
            outcome = run_tests(tree, tests, log)
            bad += outcome.failed is not None
            print(f"{outcome.seconds:6.1f} s  {tests}  {outcome.failed or ''}", flush=True)
            if outcome.failed is not None:
                print(log.read_text()[-2000:])
    return min(bad, 1)


def _is_meant(bug: Bug, pattern: str | None) -> bool:
    return pattern is None or re.search(pattern, f"{bug.file}: {bug.what}: {bug.old}") is not None


def _read(lines: Path) -> list[dict[str, Any]]:
    if not lines.exists():
        return []
    rows = []
    for line in lines.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:  # torn by a kill  # noqa: PERF203
            continue
    return rows


if __name__ == "__main__":
    sys.exit(main())
