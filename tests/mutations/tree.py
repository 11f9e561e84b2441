"""A copy of the repository for one worker, in which one bug after the other is put into the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mutations.bug import ROOT, SOURCE, Bug

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".mypy_cache", ".pytest_cache", ".ruff_cache", "runs")
_COMPILER = Path(__file__).with_name("cached_compiler.py")


class Tree:
    """The working tree is never touched; what the copy is put back to is what was copied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        shutil.copytree(ROOT, path, ignore=_LEFT_OUT, symlinks=True)
        self.variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (path / "src", path / "tests" / "example_package"))),
            "PYTHONDONTWRITEBYTECODE": "1",  # or code with a bug in it might be kept
            "OMP_NUM_THREADS": "1",
            "CC": f"{sys.executable} {_COMPILER} {path.with_name('objects')}",  # of all workers
        }

    @contextmanager
    def with_bug(self, bug: Bug) -> Iterator[None]:
        """Have a bug in the package, compiled if it is one in C."""
        file = self.path / SOURCE / bug.file
        library = self.path / SOURCE / "native" / "kernels.so"
        compiled = file.suffix in (".c", ".h")
        text, library_before = file.read_text(), library.read_bytes() if compiled else b""
        times = file.stat()
        try:
            file.write_text(bug.put_into(text))
            if compiled:
                build = (sys.executable, "-m", "rl_training.native.build")
                subprocess.run(build, env=self.variables, cwd=self.path, check=True, capture_output=True)
            yield
        finally:
            file.write_text(text)
            # As before also for what was compiled from the file.
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
            if compiled:
                library.unlink()
                library.write_bytes(library_before)
