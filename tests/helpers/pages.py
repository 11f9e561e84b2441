"""The code blocks of README and docs: taken from the pages, run or understood as they are printed."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from helpers.children import Child
from rl_training.cli import app, main
from rl_training.cli_arguments import training_source
from rl_training.experiment.configs import load_config, packaged_configs, packaged_suites

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.(?:py|yaml))\n")
COMMENT = re.compile(r"(^|\s)# .*$", re.MULTILINE)
SHORT = ("total_timesteps=6000", "evaluation.final_episodes=10")
"""What a packaged config is trained with here; everything else is run as it is printed."""


class Block(NamedTuple):
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that the block is, if it says so in its first line."""
        match = FILE.match(self.text)
        return match and match.group(1)


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page, in order."""
    return [Block(*found) for found in FENCE.findall(page.read_text(encoding="utf-8"))]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words behind each ``rl-training`` in the lines of a shell."""
    lexer = shlex.shlex(COMMENT.sub("", text), posix=True, punctuation_chars=";&|\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] | None = None
    for word in [*lexer, ";"]:
        if not word.strip(";&|\n"):
            if words is not None:
                yield words
            words = None
        elif words is not None:
            words.append(word)
        elif word == "rl-training":
            words = []


def understand(words: list[str], folder: Path) -> None:
    """Let the command line read a command without doing it; configs and settings in it have to be valid."""
    if words[0].startswith("-"):
        return  # --help, --version
    name, *rest = words
    command: Any = typer.main.get_command(app)
    context: Any = command.commands[name].make_context(name, rest)
    given = context.params
    config: Any = given.get("config") or "dqn/cartpole"  # a run's is of any algorithm
    settings: Any = given.get("overrides") or []
    if name == "train":
        told = (given[key] for key in ("words", "config", "algo", "env", "seed"))
        config, settings, _ = training_source(*told)
    if settings or name in ("train", "show"):
        here = isinstance(config, str) and (folder / config).is_file()
        load_config(folder / config if here else config, settings)
    if name == "benchmark":
        suite = given["suite"]
        assert suite in packaged_suites() or suite.endswith(".yaml"), suite


def run(folder: Path, block: Block) -> str:
    """Run a block in ``folder`` and return what it prints."""

    def work() -> None:
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        if block.language == "python":
            (folder / "script.py").write_text(block.text, encoding="utf-8")
            runpy.run_path("script.py", run_name="__main__")
            return
        for words in commands(block.text):
            sys.argv = ["rl-training", *_shortened(words)]
            try:
                main()
            except SystemExit as ended:
                if ended.code:
                    raise

    child = Child(folder, work)
    assert child.wait(400) == 0, f"{block.text}\n{child.out}\n{child.err}"
    return child.out + child.err


def run_page(folder: Path, page: Path) -> list[str]:
    """Run the blocks of a page from top to bottom, and return what each prints.

    Blocks that say which file they are become that file; ``python`` and ``sh`` are run; ``bash`` is not, because it
    takes long or stands for itself, and is understood only.
    """
    said = []
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language in ("python", "sh"):
            said.append(run(folder, block))
        elif block.language == "bash":
            for words in commands(block.text):
                understand(words, folder)
    return said


def _shortened(words: list[str]) -> list[str]:
    packaged = words[0] == "train" and packaged_configs().keys() & set(words)
    return [*words, *SHORT] if packaged else words
