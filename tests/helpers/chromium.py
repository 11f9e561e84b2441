"""A headless Chromium, driven over a pipe by its own protocol, where there is one."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --hide-scrollbars --remote-debugging-pipe"
)


class Browser:
    """One page of a browser; ``requests`` and ``messages`` are what it asked for and what its console said."""

    def __init__(self, writing: int, reading: int) -> None:
        self._writing, self._reading = writing, reading
        self._number, self._left = 0, b""
        self._session: str | None = None
        self.requests: list[str] = []
        self.messages: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next(60.0)
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]

    def open(self, url: str, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Open a page and wait until it has loaded."""
        self.requests, self.messages = [], []
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 30.0) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < deadline, condition
            time.sleep(0.05)

    def point(self, selector: str, across: float, down: float) -> None:
        """Move the mouse to a place within an element, given in shares of its size."""
        found = f"document.querySelector({selector!r}).getBoundingClientRect()"
        box = self.run(f"(({{x, y, width, height}}) => [x, y, width, height])({found})")
        x, y = box[0] + across * box[2], box[1] + down * box[3]
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path: Path) -> None:
        """Write a PNG of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _next(self, seconds: float) -> dict[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._reading], [], [], seconds)
            part = os.read(self._reading, 2**20) if ready else b""
            assert part, "the browser is silent"
            self._left += part
        text, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        params = found.get("params", {})
        if found.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif found.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.messages.append(json.dumps(params))
        return found


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with a profile of its own, and end it."""
    assert PROGRAM is not None
    (its_end, writing), (reading, other_end) = os.pipe(), os.pipe()

    def as_3_and_4() -> None:
        low, high = os.dup(its_end), os.dup(other_end)  # neither may be what the other is about to become
        spare = os.dup(low), os.dup(high)
        os.dup2(spare[0], 3)
        os.dup2(spare[1], 4)

    words = [PROGRAM, *_FLAGS.split(), f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(
        words, preexec_fn=as_3_and_4, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        os.close(its_end)
        os.close(other_end)
        try:
            yield Browser(writing, reading)
        finally:
            process.terminate()
            process.wait(20)
            os.close(writing)
            os.close(reading)
