"""The how-to pages, README and the start page: their code runs as printed, and what they claim is checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from torch import nn

import rl_training
from helpers.pages import DOCS, ROOT, Block, blocks, run_page
from rl_training.errors import ConfigError

HOWTO = DOCS / "howto"
SB3 = DOCS / "coming_from_stable_baselines3.md"


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def start(page: Path, folder: Path) -> None:
    learned, loaded = run_page(folder, page)
    assert "a mean return of at least 475 of 500" in page.read_text()
    assert numbers(line(learned, "mean return"))[-1] >= 475
    assert line(loaded, "action") in ("action 0", "action 1")


def environment(page: Path, folder: Path) -> None:
    walked, of_config, _ = run_page(folder, page)
    assert "in 10 steps" in page.read_text()
    assert line(walked, "steps to the end:") == "steps to the end: (10, 10, 10, 10, 10)"
    assert "5 episodes: return " in of_config


def network(page: Path, folder: Path) -> None:
    packaged, own, _ = run_page(folder, page)
    assert "parameters=" in line(packaged, "DQN(")
    assert "SiLU" in own


def callbacks(page: Path, folder: Path) -> None:
    good, function, own = run_page(folder, page)
    assert numbers(line(good, "stopped after"))[-1] < 100_000
    assert "It prints `stopped after 1500 steps`" in page.read_text()
    assert line(function, "stopped after") == "stopped after 1500 steps"
    assert own.splitlines()[-1] == "True" or line(own, "True") == "True"


def masks(page: Path, folder: Path) -> None:
    (said,) = run_page(folder, page)
    assert "The best return is 5." in page.read_text()
    assert numbers(line(said, "mean return"))[-1] > 3, "at random it is 1"
    assert line(said, "action") in {f"action {slot}" for slot in range(5)}


def memory(page: Path, folder: Path) -> None:
    _, steps, shell = run_page(folder, page)
    assert line(steps, "steps").startswith("steps ")
    assert len(re.findall("^[012]$", shell, re.MULTILINE)) == 2


def pixels(page: Path, folder: Path) -> None:
    (said,) = run_page(folder, page)
    assert "It prints `(2, 3, 36, 36)`" in page.read_text()
    assert line(said, "(2,") == "(2, 3, 36, 36)"


def resuming(page: Path, folder: Path) -> None:
    here, later, other = run_page(folder, page)
    assert "It prints `3072` and `4096`" in page.read_text()
    assert re.findall(r"^\d+$", here, re.MULTILINE) == ["3072", "4096"]
    assert line(later, "5120") == "5120 second"
    assert line(other, "6144") == "6144 third"


def seeds(page: Path, folder: Path) -> None:
    (said,) = run_page(folder, page)
    assert line(said, "3 scores, IQM").startswith("3 scores, IQM ")


def comparing(page: Path, folder: Path) -> None:
    (said,) = run_page(folder, page)
    assert "usual" in said
    assert (folder / "usual_and_slow.png").stat().st_size > 5_000
    assert "cannot tell them apart" in said


def benchmarking(page: Path, folder: Path) -> None:
    assert run_page(folder, page) == []


def deploying(page: Path, folder: Path) -> None:
    _, acts, shell, bare = run_page(folder, page)
    assert re.search(r"^[01] \(2,\)$", acts, re.MULTILINE)
    assert line(shell, "{") in ('{"action": 0}', '{"action": 1}')
    assert "Linear" in bare


def exporting(page: Path, folder: Path) -> None:
    _, used = run_page(folder, page)
    assert (folder / "policy.onnx.json").is_file()
    assert re.search(r"^\[[01]\] \[\[", used, re.MULTILINE)


def coming(page: Path, folder: Path) -> None:
    run_page(folder, page)


CHECKS: dict[Path, Callable[[Path, Path], None]] = {
    DOCS / "index.md": start,
    SB3: coming,
    HOWTO / "custom_environment.md": environment,
    HOWTO / "custom_network.md": network,
    HOWTO / "callbacks.md": callbacks,
    HOWTO / "action_masks.md": masks,
    HOWTO / "memory.md": memory,
    HOWTO / "pixels.md": pixels,
    HOWTO / "resuming.md": resuming,
    HOWTO / "seeds.md": seeds,
    HOWTO / "comparing.md": comparing,
    HOWTO / "benchmarking.md": benchmarking,
    HOWTO / "exporting.md": exporting,
    HOWTO / "deploying.md": deploying,
}


def line(said: str, begins: str) -> str:
    """Return the first line that begins so."""
    found = [one for one in said.splitlines() if one.startswith(begins)]
    assert found, f"no line begins with {begins!r} in:\n{said}"
    return found[0]


@pytest.mark.parametrize("page", CHECKS, ids=lambda page: page.stem)
def test_the_code_of_the_page_runs_and_does_what_it_says(page: Path, tmp_path: Path) -> None:
    CHECKS[page](page, tmp_path)


def test_every_page_with_python_is_checked() -> None:
    with_python = {page for page in DOCS.rglob("*.md") if "```python" in page.read_text()}
    elsewhere = {DOCS / "observations.md", DOCS / "architecture.md"}  # the second shows the loop, simplified
    assert with_python - elsewhere == CHECKS.keys() & with_python


def test_the_python_of_the_readme_is_that_of_the_start_page() -> None:
    readme = [block for block in blocks(ROOT / "README.md") if block.language == "python"]
    assert readme == blocks_of_start()[: len(readme)]
    assert len(readme) == 1


def blocks_of_start() -> list[Block]:
    return [block for block in blocks(DOCS / "index.md") if block.language == "python"]


# Coming from Stable-Baselines3: every line of the two tables


def cells(section: str) -> list[list[str]]:
    """Return the code in the first two columns of a section's table, one row for each line of it."""
    text = SB3.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = [row.strip("|").split(" | ")[:2] for row in text.splitlines() if row.startswith("| `")]
    return [[*re.findall(r"^\s*`(.*?)`", row[0]), *re.findall(r"^\s*`(.*?)`", row[1])] for row in rows]


WORKS, INSTEAD = cells("What works as it is"), cells("What to write instead")
NAMES_OF_SB3 = {
    "BaseCallback",
    "CheckpointCallback",
    "EvalCallback",
    "NormalActionNoise",
    "ReplayBuffer",
    "StopTrainingOnRewardThreshold",
    "SubprocVecEnv",
    "VecFrameStack",
    "VecNormalize",
    "make_vec_env",
}


class Net(nn.Sequential):
    def __init__(self, obs_shape: tuple[int, ...], num_actions: int) -> None:
        super().__init__(nn.Linear(obs_shape[0], num_actions))


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    brief = {"final_episodes": 1}
    model = rl_training.DQN("CartPole-v1", learning_starts=50, evaluation=brief).learn(
        100, progress_bar=False
    )
    public = {name: getattr(rl_training, name) for name in dir(rl_training)}
    return {**public, "model": model, "gym": gym, "nn": nn, "Net": Net}


def test_every_line_that_should_work_works(names: dict[str, Any]) -> None:
    assert len(WORKS) > 15
    for row in WORKS:
        eval(row[0], names)


def test_importing_a_class_of_theirs_says_what_to_write() -> None:
    assert "`from rl_training import EvalCallback`" in SB3.read_text()
    with pytest.raises(ImportError, match="EvalCallback: is not here; evaluation="):
        exec("from rl_training import EvalCallback")


def test_every_line_that_should_not_work_says_so_and_the_other_one_works(names: dict[str, Any]) -> None:
    assert len(INSTEAD) > 20
    for row in INSTEAD:
        theirs, ours = row
        missing = NAMES_OF_SB3 & set(re.findall(r"\w+", theirs))
        with pytest.raises(NameError if missing else (ConfigError, AttributeError)):
            eval(theirs, names)
        eval(ours, names)
