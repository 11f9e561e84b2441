"""CONTRIBUTING.md says what adding an algorithm takes: all of that is there for every one, and nothing besides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rl_training.algorithms.catalogue import PACKAGED, packaged

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "rl_training"
SECTION = (ROOT / "CONTRIBUTING.md").read_text().partition("## Adding an algorithm")[2]
OF_EACH = re.findall(r"`([^`]*<name>[^`]*)`", SECTION)
SHARED = {"src/rl_training/algorithms/catalogue.py", "src/rl_training/api/algorithms.pyi"}
DOCTOR = {
    f"src/rl_training/experiment/doctor/{name}.py"
    for name in (
        "network",
        "observability",
        "policy_rules",
        "probe_config",
        "rewards",
        "value_rules",
        "values",
    )
}
"""Rules about what one family logs, and advice to take another algorithm. One that they do not know gets the others."""
FAMILIES = (
    {"c51", "rainbow"},
    {"qr_dqn", "iqn", "tqc"},
    {"drqn", "r2d2"},
    {"ppo", "a2c", "recurrent_ppo", "trpo"},
    {"ddpg", "td3", "sac", "tqc", "discrete_sac", "crossq", "drqv2"},
)
"""Algorithms that share parts, and whose files may name each other."""


def own_mathematics(algo: str) -> bool:
    return packaged(algo).learner.partition(":")[0] == f"rl_training.algorithms.{algo}"


def own_family(algo: str) -> bool:
    """Whether no trainer of another algorithm takes its options."""
    return algo not in ("prioritized_dqn", "c51", "qr_dqn", "iqn", "rainbow", "r2d2", "a2c")


def test_the_list_names_what_is_written_by_hand() -> None:
    assert set(OF_EACH) == {
        "src/rl_training/algorithms/<name>.py",
        "src/rl_training/algorithms/declared/<name>.py",
        "src/rl_training/runtime/<name>_trainer.py",
        "src/rl_training/assets/configs/<name>/<env>.yaml",
        "examples/<name>_<env>_reference.py",
        "tests/test_<name>_update.py",
        "tests/test_<name>_trainer_smoke.py",
    }
    assert all(f"`{path}`" in SECTION for path in SHARED)


@pytest.mark.parametrize("algo", PACKAGED)
def test_everything_on_the_list_is_there(algo: str) -> None:
    for pattern in OF_EACH:
        found = list(ROOT.glob(pattern.replace("<name>", algo).replace("<env>", "*")))
        if pattern.endswith(("_trainer.py", "_trainer_smoke.py")):
            assert bool(found) == own_family(algo), pattern
        else:
            mathematics = pattern.endswith(("algorithms/<name>.py", "_update.py"))
            assert bool(found) == (own_mathematics(algo) or not mathematics), pattern
    for page in ("docs/roadmap.md", "docs/sourcebook.md"):
        assert f"`{algo}`" in (ROOT / page).read_text(), page


@pytest.mark.parametrize(
    "algo", [name for name in PACKAGED if name != "dqn"]
)  # the example in every help text
def test_nothing_else_in_the_source_names_it(algo: str) -> None:
    names = re.compile(rf"\b({algo}|{packaged(algo).class_name}|{re.escape(packaged(algo).title)})\b")
    expected: set[str] = set()
    family = {algo}.union(*(family for family in FAMILIES if algo in family))
    for name in family:
        spec = packaged(name)
        expected |= {
            f"src/rl_training/algorithms/declared/{name}.py",
            f"src/{spec.learner.partition(':')[0].replace('.', '/')}.py",
            f"src/rl_training/algorithms/compiled_{name}.py",  # the same mathematics in C
        }
    for path in [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.pyi")]:
        place = str(path.relative_to(ROOT))
        trainer = place.endswith(tuple(f"/{name}_trainer.py" for name in family))
        known = place in expected | SHARED | DOCTOR or "/models/" in place or trainer
        assert known or not names.search(path.read_text()), f"{place} names {algo}"
