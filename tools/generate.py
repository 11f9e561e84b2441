"""Writes what follows from the declarations of algorithms, options and commands: the README's table, a stub for type
checkers, and parts of the documentation.

python tools/generate.py            # write
python tools/generate.py --check    # exit 1 if something is not up to date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import doc_pages
import results

from rl_training.algorithms.catalogue import PACKAGED, packaged
from rl_training.algorithms.spec import AlgorithmSpec

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
STUB = ROOT / "src" / "rl_training" / "api" / "algorithms.pyi"
BEGIN, END = "<!-- made by `make generated` -->\n", "<!-- end -->\n"


def table(specs: list[AlgorithmSpec]) -> str:
    """Return the README's table of algorithms."""
    lines = ["| `algo` | what it is | actions | measured scores |", "|---|---|---|---|"]
    for spec in specs:
        authors = spec.paper.partition(",")[0]
        what = f"{spec.summary[0].upper()}{spec.summary[1:]} ([{authors}]({spec.url}))"
        kinds = "all" if len(spec.action_kinds) > 1 else min(spec.action_kinds)
        name = f"[`{spec.name}`](docs/algorithms/{spec.name}.md)"
        lines.append(f"| {name} | {what} | {kinds} | {results.measured(spec.name)} |")
    return "\n".join([*lines, ""])


def stub(specs: list[AlgorithmSpec]) -> str:
    """Return what type checkers are told of ``rl_training.api.algorithms``."""
    head = (
        "# Made by `make generated` from the declarations of the algorithms; do not edit.\n"
        "from pathlib import Path\n"
        "from typing import Any\n\n"
        "from rl_training.algorithms.spec import AlgorithmSpec\n"
        "from rl_training.api.managed import ManagedAlgorithm\n\n"
        "def managed_class(algo: str | AlgorithmSpec) -> type[ManagedAlgorithm]: ...\n"
        "def load(path: str | Path, **options: Any) -> ManagedAlgorithm: ...\n\n"
    )
    return head + "".join(f"class {spec.class_name}(ManagedAlgorithm): ...\n" for spec in specs)


def generated() -> dict[Path, str]:
    """Return the files that follow from the declarations, with the content they should have."""
    specs = [packaged(name) for name in PACKAGED]
    return {
        README: _with(README, table(specs)),
        BENCHMARKS: _with(BENCHMARKS, results.table(), results.defaults_table()),
        STUB: stub(specs),
        **doc_pages.pages(specs),
    }


def _with(page: Path, *tables: str) -> str:
    """Return a page with tables in the places that are marked for them, in that order."""
    left = iter(tables)
    marked = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return marked.sub(lambda _: BEGIN + next(left) + END, page.read_text(encoding="utf-8"))


def main() -> None:
    """Write the files, or only compare them."""
    made = generated()
    stale = [
        path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)}: not up to date; run `make generated`", file=sys.stderr)
        sys.exit(bool(stale))
    for path in stale:
        path.write_text(made[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
