"""The live page: a server on 127.0.0.1 that reads and never writes, for this machine's own browser only."""

from __future__ import annotations

import errno
import json
import re
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError
from rl_training.experiment.report.html import Html, tag
from rl_training.experiment.report.page import asset
from rl_training.experiment.report.runs import newest_video
from rl_training.experiment.watch.view import MAX_VIDEO, moving_blocks, steady_blocks, title_of
from rl_training.experiment.watch.watched import Watched, Watcher
from rl_training.plain_files import read_plain
from rl_training.runtime.console import notice
from rl_training.runtime.signals import Interrupted, SignalGuard

HOST = "127.0.0.1"
_BLOCKS = ("head", "tiles", "runs", "curve", "video", "metrics", "more")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Live:
    """What is watched, and the page made of it; one thread reads, those of requests ask."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self._lock = threading.Lock()
        self._made: dict[int | None, tuple[int, dict[str, Html]]] = {}

    def turn(self) -> bool:
        """Look for what is new; return whether there is more to read."""
        with self._lock:
            return self.watcher.turn()

    def data(self, number: int | None) -> dict[str, Any] | None:
        """Return the title and the blocks of the page, none if there is no such run."""
        with self._lock:
            watched = self._chosen(number)
            if watched is None and (number is not None or not self.watcher.several):
                return None
            version = watched.version if watched is not None else self.watcher.version
            if number not in self._made or self._made[number][0] != version:
                self._made[number] = (version, steady_blocks(self.watcher, watched))
            blocks = {**moving_blocks(self.watcher, watched), **self._made[number][1]}
            return {"title": title_of(self.watcher, watched), "blocks": blocks}

    def video(self, number: int | None) -> bytes | None:
        """Return the newest video of a run."""
        with self._lock:
            watched = self._chosen(number)
        path = newest_video(watched.run.path, MAX_VIDEO) if watched is not None else None
        return read_plain(path, MAX_VIDEO) if path is not None else None

    def _chosen(self, number: int | None) -> Watched | None:
        if number is None and not self.watcher.several:
            number = 0
        return None if number is None else self.watcher.find(number)


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD for a few fixed paths, from this machine's own names only."""

    timeout = 15
    server: Server
    server_version, sys_version = "rl_training", ""

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer with the headers."""
        self._answer()

    def _refuse_method(self) -> None:
        self._send(405, "text/plain", b"only GET and HEAD\n", Allow="GET, HEAD")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse_method

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        # A page of another site whose name was made to lead here still asks by that name.
        port = self.server.server_address[1]
        if self.headers.get_all("Host") not in ([f"{HOST}:{port}"], [f"localhost:{port}"]):
            self._send(403, "text/plain", b"this page is for 127.0.0.1 only\n")
            return
        path, _, query = self.path.partition("?")
        known = re.match(r"run=([0-9]{1,6})(&|$)", query)
        number = int(known.group(1)) if known else None
        kind, content = self._content(path, number)
        if content is None:
            self._send(404, "text/plain", b"no such page\n")
        else:
            self._send(200, kind, content)

    def _content(self, path: str, number: int | None) -> tuple[str, bytes | None]:
        live = self.server.live
        if path in ("/page.css", "/page.js"):
            return ("text/css" if path.endswith("css") else "text/javascript"), asset(path[1:]).encode()
        if path == "/watch.js":
            return "text/javascript", Path(__file__).with_name("watch.js").read_bytes()
        if path == "/video":
            return "video/mp4", live.video(number)
        data = live.data(number) if path in ("/", "/data.json") else None
        if data is None:
            return "", None
        if path == "/":
            return "text/html", page(data["title"], data["blocks"]).encode()
        return "application/json", json.dumps(data).encode()

    def _send(self, status: int, kind: str, content: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind if kind == "video/mp4" else f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        for name, value in {**_HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class Server(ThreadingHTTPServer):
    """A server of one watcher."""

    daemon_threads = True

    def __init__(self, port: int, live: Live) -> None:
        self.live = live
        super().__init__((HOST, port), Handler)

    def server_bind(self) -> None:
        """Bind without asking the network for this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in a line what went wrong; a browser that went away is nothing."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            notice(f"warning: a request failed: {type(error).__name__}: {error}")


def page(title: str, blocks: dict[str, Html]) -> str:
    """Return the page with what is known now; its script keeps it up to date."""
    lost = "The watch command has ended, or cannot be reached. The page goes on when it is back."
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href="/page.css"),
    ]
    body = [
        tag("header", tag("div", blocks.get("head"), id="head")),
        tag(
            "main",
            tag("p", lost, id="lost", class_="card problems", hidden=True),
            [tag("div", blocks.get(name), id=name) for name in _BLOCKS[1:]],
        ),
        tag("footer"),
        tag("script", src="/page.js"),
        tag("script", src="/watch.js"),
    ]
    return "<!DOCTYPE html>\n" + tag("html", tag("head", head), tag("body", body), lang="en") + "\n"


def serve(path: Path, port: int, tell: Callable[[str], None]) -> None:
    """Serve the page until a signal comes, which is the ``Interrupted`` that is raised."""
    live = Live(Watcher(path))
    try:
        server = Server(port, live)
    except OSError as error:
        used = error.errno == errno.EADDRINUSE
        why = "is in use; give another one" if used else f"cannot be used: {error.strerror}"
        raise ConfigError(f"--port: {port} {why}") from None
    with SignalGuard() as guard, server:
        more = live.turn()
        thread = threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True)
        thread.start()
        tell(f"http://{HOST}:{server.server_address[1]}/")
        while guard.received is None:
            time.sleep(0.005 if more else 0.5)
            more = live.turn()
        server.shutdown()
    raise Interrupted("stopped watching", guard.received)
