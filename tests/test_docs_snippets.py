"""The code of docs/observations.md runs as it stands there, block by block, and prints what the page says."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from helpers.bad_observations import BAD
from helpers.children import Child
from rl_training.cli import main
from rl_training.envs.spaces import describe_observations
from rl_training.errors import ConfigError
from rl_training.experiment.configs import load_config
from rl_training.models.encoders import encoder_of

PAGE = Path(__file__).parent.parent / "docs" / "observations.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.(?:py|yaml))\n")
SHORT = ("total_timesteps=6000", "evaluation.final_episodes=10")
"""What a packaged config is trained with here; everything else is run as it stands on the page."""


class Block(NamedTuple):
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that the block is, if it says so in its first line."""
        match = FILE.match(self.text)
        return match and match.group(1)


BLOCKS = [Block(*found) for found in FENCE.findall(PAGE.read_text(encoding="utf-8"))]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words behind each ``rl-training``."""
    words = shlex.split(text)
    begins = [i for i, word in enumerate(words) if word == "rl-training"]
    for begin, end in zip(begins, [*begins[1:], len(words)], strict=True):
        yield words[begin + 1 : end]


def shortened(words: list[str]) -> list[str]:
    packaged = words[0] == "train" and not words[words.index("--config") + 1].endswith(".yaml")
    return [*words, *SHORT] if packaged else words


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
            sys.argv = ["rl-training", *shortened(words)]
            try:
                main()
            except SystemExit as ended:
                if ended.code:
                    raise

    child = Child(folder, work)
    assert child.wait(180) == 0, child.err
    return child.out + child.err


def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    said = []
    for block in BLOCKS:
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.language in ("python", "sh"):
            said.append(run(tmp_path, block))
    image, trained, loaded, table, cells, own, memory = said
    scores = [float(score) for score in re.findall(r"catches (\S+)", image)]
    assert len(scores) == 2
    assert min(scores) > 0.6, "chance is about 0.28"
    assert "observations: image 1 x 10 x 10 (uint8)\n" in image
    shown = re.search(r"^observations: camera: .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown is not None
    assert shown.group() in trained
    assert shown.group() in own
    assert "It prints `4`" in PAGE.read_text(encoding="utf-8")
    assert re.search("^4$", trained, re.MULTILINE), "the step to the right"
    assert re.search(r"^action [0-4]$", loaded, re.MULTILINE)
    assert "observations: discrete number, 64 one-hot inputs" in table
    assert re.search("^first move: (left|down|right|up)$", cells, re.MULTILINE)
    assert "observations: image 1 x 10 x 10 (uint8)\n" in memory


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "yaml"])
def test_sections_of_configs_are_valid(block: Block) -> None:
    # The first word of YAML files is their own, sections are put into an experiment.
    given = yaml.safe_load(block.text)
    load_config(given if "algo" in given else {"algo": "dqn", "total_timesteps": 5_000, **given})


def test_every_error_on_the_page_is_one_that_is_raised() -> None:
    raised = set()
    for space in BAD.values():
        if space is not None:
            with pytest.raises(ConfigError) as error:
                encoder_of(describe_observations(space))
            raised.add(f"error: {error.value}")
    shown = re.findall(r"^error: .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(shown) == 4
    assert set(shown) <= raised
