"""The package as it is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import rl_training
from rl_training.experiment.configs import load_config, packaged_configs

ROOT = Path(__file__).parent.parent


def test_version_and_console_script() -> None:
    assert version("rl_training") == rl_training.__version__
    (script,) = entry_points(group="console_scripts", name="rl-training")
    assert script.value == "rl_training.cli:main"


def test_import_is_instant_and_imports_no_torch() -> None:
    code = (
        "import sys, rl_training; assert not {'torch', 'numpy', 'pydantic', 'gymnasium'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_package_is_typed_and_ships_its_configs() -> None:
    package = Path(rl_training.__file__).parent
    assert (package / "py.typed").is_file()
    assert packaged_configs()
    for name in packaged_configs():
        assert load_config(name).algo == name.split("/")[0]


def test_root_configs_are_the_packaged_ones() -> None:
    assert (ROOT / "configs").resolve() == (ROOT / "src" / "rl_training" / "assets" / "configs").resolve()
