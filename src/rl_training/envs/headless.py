"""Rendering on machines without a display."""

from __future__ import annotations

import os
import sys


def headless() -> bool:
    """Say whether there is no display to open a window on."""
    return sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def prepare(render_mode: object) -> None:
    """Keep SDL, with which many environments draw, from looking for a display where there is none."""
    if render_mode == "rgb_array" and headless():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
