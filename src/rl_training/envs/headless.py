"""Rendering on machines without a display."""

from __future__ import annotations

import os
import sys


def headless() -> bool:
    """Say whether there is no display to open a window on."""
    return sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def prepare() -> None:
    """Let environments draw without a display, and without taking over the signals that end a process.

    Many draw with SDL, by way of pygame, or with MuJoCo. It has to come before they are made.
    """
    os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")
    if headless():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("MUJOCO_GL", "egl")
