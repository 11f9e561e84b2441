"""The command line in this process: what it prints, and the code with which it ends."""

from __future__ import annotations

import contextlib
import io
import sys
from unittest import mock

from rl_training.cli import main


def command(*words: object) -> tuple[int, str, str]:
    """Return the exit code, the output and the errors of ``rl-training`` with these words."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["rl-training", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, out.getvalue(), err.getvalue()
