"""The code of README and docs runs as it is printed there, page by page, and prints what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from helpers.bad_observations import BAD
from helpers.pages import DOCS, ROOT, Block, blocks, commands, run_page, understand
from rl_training.envs.spaces import describe_observations
from rl_training.errors import ConfigError
from rl_training.experiment.configs import load_config
from rl_training.experiment.suites import load_suite
from rl_training.models.encoders import encoder_of

PAGE = DOCS / "observations.md"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    image, trained, loaded, table, cells, own, memory = run_page(tmp_path, PAGE)
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


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_configs_are_valid(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.language == "yaml":
            check_yaml(block, tmp_path)


def check_yaml(block: Block, folder: Path) -> None:
    given = yaml.safe_load(block.text)
    if "entries" in given:
        (folder / "suite.yaml").write_text(block.text, encoding="utf-8")
        load_suite(folder / "suite.yaml")
        return
    # Sections are put into an experiment.
    given = given if "algo" in given else {"algo": "dqn", **given}
    load_config({"env": {"id": "CartPole-v1"}, "total_timesteps": 32_000, **given})


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_command_line_understands_every_command(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.language in ("sh", "bash"):
            for words in commands(block.text):
                understand(words, tmp_path)


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
