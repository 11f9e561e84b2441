"""Compiles the C files beside this one; run by the installation, or later by ``python -m rl_training.native.build``.

It stands alone, without any import from the package, because it is loaded before there is one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARY = Path(__file__).with_name("kernels.so")
KERNELS = ("dqn_gradient", "lstm", "ppo_gradient")
"""What is compiled once for each kind of processor, with a name for each."""
WIDE_KERNELS = ("mlp", "product")
"""What is compiled for registers of 512 bits, too."""
# Not -ffast-math: it would make the whole process flush denormal numbers from the moment the library is loaded.
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-Wno-psabi",
)
X86_KINDS = {
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma"),
}
"""Processors that there is a version of its own for, besides the plain one."""


def digest(folder: Path) -> str:
    """Return the hash of the C files in a folder and of how they are compiled, by which a library knows its sources."""
    sources = sorted(path for path in folder.iterdir() if path.suffix in (".c", ".h"))
    options = [*FLAGS, *(option for kind in X86_KINDS.values() for option in kind)]
    parts = [" ".join(options).encode(), *(path.read_bytes() for path in sources)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def compile_library(library: Path = LIBRARY) -> None:
    """Compile the sources beside ``library`` into it, once for each kind of processor.

    Raises ``OSError`` without a compiler, and ``subprocess.CalledProcessError`` if it fails.
    """
    folder = library.parent
    kinds: dict[str, tuple[str, ...]] = {"plain": ()}
    if platform.machine() in ("x86_64", "AMD64"):
        kinds |= X86_KINDS
    about = [f'-DSOURCES="{digest(folder)}"', *(f"-DHAS_{kind.upper()}" for kind in kinds)]
    with tempfile.TemporaryDirectory() as temporary:
        threads = ["-fopenmp"] if _has_threads(Path(temporary)) else []
        objects = [
            _compiled(
                folder / f"{name}.c",
                Path(temporary, f"{name}_{kind}"),
                [*options, *threads, f"-DKIND={kind}"],
            )
            for kind, options in kinds.items()
            for name in (*(KERNELS if kind != "avx512" else ()), *WIDE_KERNELS)
        ]
        objects.append(_compiled(folder / "dispatch.c", Path(temporary, "dispatch"), [*about, *threads]))
        linked = Path(temporary, library.name)
        _cc("-shared", *objects, *threads, "-lm", "-o", str(linked))
        # Put in its place at once: runs that use the old one have it mapped into their memory.
        new = library.with_name(f"{library.name}.{os.getpid()}")
        try:
            new.write_bytes(linked.read_bytes())
            new.replace(library)
        finally:
            new.unlink(missing_ok=True)


def _has_threads(folder: Path) -> bool:
    """Say whether the compiler has OpenMP; what is compiled without it has one thread."""
    trial = folder / "trial.c"
    trial.write_text("#include <omp.h>\nint trial(void) { return omp_get_max_threads(); }\n")
    try:
        _cc("-fPIC", "-shared", "-fopenmp", str(trial), "-o", str(folder / "trial.so"))
    except subprocess.CalledProcessError:
        return False
    return True


def _compiled(source: Path, name: Path, options: list[str]) -> str:
    out = str(name.with_suffix(".o"))
    _cc(*FLAGS, *options, "-c", str(source), "-o", out)
    return out


def _cc(*arguments: str) -> None:
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run([*compiler, *arguments], check=True, capture_output=True, text=True)


def main() -> int:
    """Compile the library; return the exit code."""
    try:
        compile_library()
    except subprocess.CalledProcessError as error:
        print(f"error: the compiler failed\n{error.stderr}".rstrip(), file=sys.stderr)
    except (OSError, IndexError) as error:
        print(f"error: no C compiler, as CC or cc: {error}", file=sys.stderr)
    else:
        print(LIBRARY)
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
