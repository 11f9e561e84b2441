"""JSON lines between the driver and a worker: one request first, then whatever its mode asks for."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any


class Channel:
    """Requests come by stdin; answers go to what was stdout, and whatever a library prints there to stderr."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def read(self) -> dict[str, Any] | None:
        """Return the next request; none once there are no more."""
        line = sys.stdin.readline()
        if not line:
            return None
        request: dict[str, Any] = json.loads(line)
        return request

    def write(self, **answer: Any) -> None:
        self._answers.write(json.dumps(answer) + "\n")


Handler = Callable[[Channel, dict[str, Any]], None]


def serve(
    libraries: tuple[str, ...], handlers: Mapping[str, Handler], *, optional: tuple[str, ...] = ()
) -> None:
    """Say which versions these are, and do what the first request's ``mode`` asks for."""
    channel = Channel()
    channel.write(versions=versions(libraries, optional))
    request = channel.read()
    if request is None:
        return
    mode = request["mode"]
    if mode not in handlers:
        raise SystemExit(f"mode: '{mode}' is unknown here; known are {', '.join(handlers)}")
    handlers[mode](channel, request)


def versions(libraries: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the versions of libraries; ``optional`` ones, which only some modes need, may be missing."""
    found = {name: version(name) for name in libraries}
    for name in optional:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def peak_rss() -> int:
    """Return the most bytes of memory that this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
