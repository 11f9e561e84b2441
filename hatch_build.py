"""Compiles src/rl_training/native when the package is built; without a C compiler it is left out."""

from __future__ import annotations

import importlib.util
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src", "rl_training", "native")


class NativeBuildHook(BuildHookInterface):
    """Puts native/kernels.so into a wheel, and beside its sources for an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it, and say that the wheel is one for this kind of machine."""
        if self.target_name != "wheel":
            return
        spec = importlib.util.spec_from_file_location("native_build", Path(self.root, FOLDER, "build.py"))
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        try:
            build.compile_library()
        except (OSError, IndexError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", None) or error
            self.app.display_warning(f"rl_training: no compiled kernels, DQN will be slower: {reason}")
            return
        build_data["artifacts"].append(str(FOLDER / "kernels.so"))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
