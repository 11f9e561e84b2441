"""The live page and its server: what it shows of runs that go on, and whom it does not answer."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.html_pages import MP4, put_log, put_run, put_seeds
from rl_training.errors import RunLockedError
from rl_training.experiment.report import log as reading
from rl_training.experiment.watch import watched as watching
from rl_training.experiment.watch.server import Live, Server
from rl_training.experiment.watch.text import drawn, view
from rl_training.experiment.watch.watched import Watcher, is_held
from rl_training.runtime.curves import Series
from rl_training.runtime.folder import RunFolder

Cli = Callable[..., Any]
EVIL = "</script><script>alert(1)</script>"


class Site:
    """A server in this process, and requests to it."""

    def __init__(self, path: Path) -> None:
        self.live = Live(Watcher(path))
        self.live.turn()
        self.server = Server(0, self.live)
        self.port = self.server.server_address[1]
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def ask(
        self, path: str, method: str = "GET", host: str | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.putrequest(method, path, skip_host=True)
        if host != "":
            connection.putheader("Host", host or f"127.0.0.1:{self.port}")
        connection.endheaders()
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, content

    def data(self, query: str = "") -> dict[str, Any]:
        status, _, content = self.ask("/data.json" + query)
        assert status == 200
        found: dict[str, Any] = json.loads(content)
        return found

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def site() -> Iterator[Callable[[Path], Site]]:
    made: list[Site] = []

    def open_site(path: Path) -> Site:
        made.append(Site(path))
        return made[-1]

    yield open_site
    for one in made:
        one.close()


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_a_run_is_shown_as_it_goes_on(tmp_path: Path, site: Callable[[Path], Site]) -> None:
    run = put_run(tmp_path / "run", None)
    put_log(
        run / "metrics.jsonl",
        [{"step": n, "rollout/ep_rew_mean": n / 10, "time/time_elapsed": n / 50} for n in (100, 200)],
    )
    with RunFolder(run):
        page = site(run)
        blocks = page.data()["blocks"]
        assert "running" in words(blocks["head"])
        assert "200 of 2,000 steps" in words(blocks["tiles"])
        assert "36 s left" in words(blocks["tiles"]), "1,800 steps at 50 a second"
        assert "50 steps per second" in words(blocks["tiles"])
        with (run / "metrics.jsonl").open("a") as file:
            file.write('{"step": 400, "eval/mean_reward": 77.5}\n{"step": 500, "eval')
        page.live.turn()
        later = page.data()
        assert "77.5 evaluation at step 400" in words(later["blocks"]["tiles"])
        assert later["title"].startswith("20%")
        assert later["blocks"]["curve"] != blocks["curve"]
    page.live.turn()
    assert "stopped before its end" in words(page.data()["blocks"]["head"])


def test_a_finished_run_is_finished_and_one_that_is_resumed_runs(
    tmp_path: Path, site: Callable[[Path], Site]
) -> None:
    page = site(put_run(tmp_path / "run", 42.5))
    assert "finished" in words(page.data()["blocks"]["head"])
    assert "left" not in words(page.data()["blocks"]["tiles"])
    with RunFolder(tmp_path / "run"):
        put_log(tmp_path / "run" / "metrics.jsonl", [{"step": 100, "eval/mean_reward": 1.5}])  # cut back
        page.live.turn()
        blocks = page.data()["blocks"]
    assert "running" in words(blocks["head"])
    assert "1.5 best evaluation" in words(blocks["tiles"])


def test_a_folder_shows_all_runs_and_those_that_begin(
    tmp_path: Path, site: Callable[[Path], Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_seeds(tmp_path / "exp", [10.0, 20.0])
    page = site(tmp_path / "exp")
    assert "2 runs: 0 running, 2 finished" in words(page.data()["blocks"]["head"])
    links = re.findall(r'href="(/\?run=\d+)">([^<]*)', page.data()["blocks"]["runs"])
    assert links == [("/?run=0", "seed-0"), ("/?run=1", "seed-1")]
    assert "IQM, 2 seeds" in words(page.data()["blocks"]["curve"])
    put_run(tmp_path / "exp" / "seed-10", None, seed=10)
    monkeypatch.setattr(watching, "_LOOK", -1.0)
    page.live.turn()
    assert "3 runs" in words(page.data()["blocks"]["head"])
    assert "seed 10" in words(page.data("?run=2")["blocks"]["head"])
    assert "seed 0" in words(page.data("?run=0")["blocks"]["head"])


def test_every_page_is_whole_and_names_only_itself(tmp_path: Path, site: Callable[[Path], Site]) -> None:
    page = site(put_seeds(tmp_path / "exp", [10.0, 20.0]))
    for path in ("/", "/?run=1"):
        status, headers, content = page.ask(path)
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        text = content.decode()
        assert "<svg" in text, "what is known is there at once, also without a script"
        places = set(re.findall(r'(?:src|href)="([^"]*)"', text))
        assert places <= {"data:,", "/page.css", "/page.js", "/watch.js", "/", "/?run=0", "/?run=1"}
        for place in places - {"data:,"}:
            assert page.ask(place)[0] == 200


def test_nothing_that_a_run_says_becomes_markup(tmp_path: Path, site: Callable[[Path], Site]) -> None:
    run = put_run(tmp_path / "a<b>c" / "seed-<i>", None)
    (run / "metadata.json").write_text(json.dumps({"title": EVIL}))
    put_log(run / "metrics.jsonl", [{"step": n, EVIL: 1.0, "rollout/ep_rew_mean": 1.0} for n in (1, 2)])
    (run / "result.json").write_text(json.dumps({"stop_reason": EVIL, "steps": EVIL}))
    for query in ("", "?run=0"):
        page = site(tmp_path / "a<b>c")
        text = page.ask("/" + query)[2].decode()
        assert EVIL not in text
        assert text.count("<script") == 2
        assert "<b>c" not in text
        assert EVIL not in json.dumps(page.data(query)["blocks"])


HOSTS = [
    "evil.example",
    "127.0.0.1",
    "127.0.0.1:1",
    "localhost.evil.example:PORT",
    "[::1]:PORT",
    "",
    "127.0.0.1:PORT, evil",
]


@pytest.mark.parametrize("host", HOSTS)
def test_other_names_are_not_answered(tmp_path: Path, site: Callable[[Path], Site], host: str) -> None:
    """A page of another site whose name leads to 127.0.0.1 asks by its own name."""
    page = site(put_run(tmp_path / "run"))
    for path in ("/", "/data.json", "/video"):
        status, _, content = page.ask(path, host=host.replace("PORT", str(page.port)))
        assert (status, content) == (403, b"this page is for 127.0.0.1 only\n")
    assert page.ask("/", host=f"localhost:{page.port}")[0] == 200


def test_it_listens_on_this_machine_only(tmp_path: Path, site: Callable[[Path], Site]) -> None:
    page = site(put_run(tmp_path / "run"))
    assert page.server.socket.getsockname()[0] == "127.0.0.1"


def test_only_reading_is_allowed_and_no_other_origin(tmp_path: Path, site: Callable[[Path], Site]) -> None:
    page = site(put_run(tmp_path / "run"))
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
        status, headers, _ = page.ask("/", method)
        assert (status, headers["allow"]) == (405, "GET, HEAD")
    status, headers, content = page.ask("/data.json", "HEAD")
    assert (status, content) == (200, b"")
    assert int(headers["content-length"]) > 100
    for path in ("/", "/data.json", "/no"):
        headers = page.ask(path)[1]
        assert not [name for name in headers if name.startswith("access-control")]
        assert headers["content-security-policy"].startswith("default-src 'none'; ")
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
        assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "path",
    [
        "/../config.yaml",
        "/config.yaml",
        "/page.css/../../runs.py",
        "/%2e%2e/secret",
        "//etc/passwd",
        "/metrics.jsonl",
        "http://evil.example/",
        "/?run=1",
        "/?run=999999",
        "/data.json?run=7",
        "/video?run=0",
    ],
)
def test_there_are_no_other_paths(tmp_path: Path, site: Callable[[Path], Site], path: str) -> None:
    (tmp_path / "secret").write_text("secret")
    page = site(put_run(tmp_path / "run"))
    status, _, content = page.ask(path)
    assert (status, content) == (404, b"no such page\n")


def test_what_is_no_number_is_no_run(tmp_path: Path, site: Callable[[Path], Site]) -> None:
    page = site(put_run(tmp_path / "run"))
    for query in ("?run=../x", "?run=-1", "?run=٣", "?run=" + "9" * 5_000, "?run", "?x=1"):
        assert page.ask("/data.json" + query.replace("٣", "%D9%A3"))[0] in (200, 404)


def test_the_latest_video_is_served(tmp_path: Path, site: Callable[[Path], Site]) -> None:
    run = put_run(tmp_path / "run")
    (run / "old.mp4").write_bytes(MP4 + b"old")
    os.utime(run / "old.mp4", (1, 1))
    (run / "new.mp4").write_bytes(MP4 + b"new")
    (run / "newest.mp4").symlink_to("/etc/passwd")
    page = site(run)
    (source,) = re.findall(r'src="([^"]*)"', page.data()["blocks"]["video"])
    status, headers, content = page.ask(source.replace("&amp;", "&"))
    assert (status, headers["content-type"], content) == (200, "video/mp4", MP4 + b"new")


def test_a_request_that_fails_is_one_line(
    tmp_path: Path,
    site: Callable[[Path], Site],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    page = site(put_run(tmp_path / "run"))

    def fail(number: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(page.live, "data", fail)
    with pytest.raises(http.client.RemoteDisconnected):
        page.ask("/")
    monkeypatch.undo()
    assert page.ask("/")[0] == 200
    assert capfd.readouterr().err == "warning: a request failed: RuntimeError: a mistake\n"


# What is watched


def test_a_look_at_a_lock_never_keeps_a_run_from_it(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run")
    assert not is_held(run / "run.lock")
    with RunFolder(run):
        assert is_held(run / "run.lock")
        with pytest.raises(RunLockedError):
            RunFolder(run)
    assert not is_held(run / "run.lock")
    assert not is_held(run / "missing")
    # Somebody who holds the lock for a moment, as a look does.
    looking = os.open(run / "run.lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.03, os.close, [looking]).start()
    RunFolder(run).close()


def test_nothing_is_written(tmp_path: Path, site: Callable[[Path], Site]) -> None:
    run = put_run(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    page = site(tmp_path)
    page.live.turn()
    page.ask("/")
    page.ask("/?run=0")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert run in before


def test_a_long_log_is_there_at_once_and_read_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LONG", 50_000)
    monkeypatch.setattr(watching, "_AT_ONCE", 100_000)
    monkeypatch.setattr(reading, "BLOCK", 50_000)
    monkeypatch.setattr(reading, "_SAMPLE", 128)
    run = put_run(tmp_path / "run", None)
    put_log(run / "metrics.jsonl", [{"step": n, "eval/mean_reward": n / 10} for n in range(1, 10_001)])
    (watched,) = Watcher(run).runs.values()
    assert watched.turn(), "there is more to read"
    assert watched.run.log.sampled
    assert watched.run.step == 10_000
    assert 0.1 < (watched.reading or 0) < 0.9
    turns = 1
    while watched.turn():
        turns += 1
    assert turns > 2
    assert (watched.run.log.rows, watched.reading) == (10_000, None)


def test_a_run_without_news_says_so(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run", None)
    os.utime(run / "metrics.jsonl", (time.time() - 600, time.time() - 600))
    with RunFolder(run):
        (watched,) = Watcher(run).runs.values()
        watched.turn()
        assert watched.state == ("running, no news for 10 min", "warn")
    (run / "metrics.jsonl").unlink()
    (watched,) = Watcher(run).runs.values()
    watched.turn()
    assert watched.state == ("nothing logged yet", "")


# The command


def test_text_is_printed_once_where_there_is_no_terminal(tmp_path: Path, cli: Cli) -> None:
    put_seeds(tmp_path / "exp", [10.0, 20.5])
    said = cli("watch", tmp_path / "exp", "--text")
    assert (said.code, said.err) == (0, "")
    assert re.search(r"seed-1\s+finished\s+2,000\s+2,000\s.*20\.5", said.out)
    said = cli("watch", tmp_path / "exp" / "seed-1", "--text")
    assert said.code == 0
    assert "DQN on CartPole-v1  finished" in said.out
    assert "evaluation 20.5, best 20.5" in " ".join(said.out.split())
    assert "█" in said.out


def test_text_takes_names_as_they_are(tmp_path: Path) -> None:
    from rich.console import Console

    run = put_run(tmp_path / "[red]x[/]", None)
    (run / "metadata.json").write_text(json.dumps({"title": "[bold]\x1b[31mDQN"}))
    for path in (run, tmp_path):
        watcher = Watcher(path)
        watcher.turn()
        console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
        console.print(view(watcher, 100))
        text = console.export_text()
        assert "\x1b[31m" not in text
        assert ("[bold]?[31mDQN" if path == run else "[red]x[/]") in text


def test_a_drawn_curve_rises_where_it_rises() -> None:
    rows = drawn(Series(np.array([0.0, 50.0, 100.0]), np.array([0.0, 10.0, 10.0])), 46)
    assert [row[:3].strip() for row in rows] == ["10", "", "", "", "", "", "", "0"]
    assert rows[0].endswith("█" * 20)
    assert rows[0][3:18].strip() == ""
    assert rows[7][-40:].count("█") > 30
    assert set(drawn(Series(np.array([0.0, 1.0]), np.array([5.0, 5.0])), 20)[7][2:]) == {"█"}


@pytest.mark.parametrize("text", [(), ("--text",)])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, "run: no such folder"),
        (lambda p: p.mkdir(), "run: holds no run"),
        (lambda p: p.write_text("x"), "run: no such folder"),
    ],
)
def test_what_cannot_be_watched_is_one_line(
    cli: Cli, tmp_path: Path, make: Any, message: str, text: tuple[str, ...]
) -> None:
    make(tmp_path / "run")
    said = cli("watch", tmp_path / "run", *text)
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert message in said.err


def test_a_port_in_use_is_one_line(cli: Cli, tmp_path: Path) -> None:
    run = put_run(tmp_path / "run")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = cli("watch", run, "--port", port)
    assert (said.code, said.out) == (2, "")
    assert said.err == f"error: --port: {port} is in use; give another one\n"
    said = cli("watch", run, "--port", 70_000)
    assert said.code == 2
    assert "--port" in said.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_in_good_order(tmp_path: Path, number: int, code: int) -> None:
    run = put_run(tmp_path / "run")
    words = [sys.executable, "-m", "rl_training", "watch", str(run)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        (port,) = re.findall(r" at http://127\.0\.0\.1:(\d+)/ ", line)
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=10)
        connection.request("GET", "/data.json")
        assert connection.getresponse().status == 200
        child.send_signal(number)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (code, "", "stopped watching\n")
