"""Calls ``cc``, or copies what it made of the same input before: ``cached_compiler.py FOLDER ARGUMENT...``.

A bug in C changes one of several files, most of which take seconds to compile.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path


def main(folder: Path, arguments: list[str]) -> int:
    """Compile; return the exit code."""
    if "-c" not in arguments:
        return subprocess.run(["cc", *arguments]).returncode
    out = Path(arguments[arguments.index("-o") + 1])
    options = [word for word in arguments if word not in (str(out), "-o", "-c")]
    expanded = subprocess.run(["cc", "-E", "-P", *options], capture_output=True)
    if expanded.returncode:
        return subprocess.run(["cc", *arguments]).returncode
    flags = " ".join(option for option in options if not option.endswith(".c"))
    key = hashlib.sha256(flags.encode() + b"\0" + expanded.stdout).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{key}.o"
    if not kept.exists():
        code = subprocess.run(["cc", *arguments]).returncode
        if code:
            return code
        part = kept.with_suffix(f".{os.getpid()}")  # another worker may be at the same
        shutil.copy(out, part)
        part.replace(kept)
    shutil.copy(kept, out)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
