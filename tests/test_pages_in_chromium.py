"""Both pages in a real browser: nothing is refused, nothing asked for elsewhere, nothing wider than a phone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.chromium import PROGRAM, Browser, browser
from helpers.html_pages import put_log, put_run, put_seeds
from rl_training.experiment.report.page import make_report
from rl_training.experiment.watch.server import Live, Server
from rl_training.experiment.watch.watched import Watcher

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")
DARK = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def overlapping_labels(page: Browser) -> list[str]:
    """Return the labels of axes that cover each other."""
    found: list[str] = page.run("""(() => {
      const found = [];
      for (const svg of document.querySelectorAll('.frame > svg'))
        for (const kind of ['.xtick', '.ytick']) {
          const boxes = [...svg.querySelectorAll(kind)].map((t) => [t.textContent, t.getBoundingClientRect()]);
          for (let i = 1; i < boxes.length; i++) {
            const [a, b] = [boxes[i - 1][1], boxes[i][1]];
            if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) found.push(boxes[i][0]);
          }
        }
      return found;
    })()""")
    return found


def test_the_report_opens_by_itself(tmp_path: Path, chromium: Browser) -> None:
    a = put_seeds(tmp_path / "a", [100.0, 120.0, 90.0, 300.0, 110.0])
    b = put_seeds(tmp_path / "b", [-100.0, 420.0], **{"algo_kwargs.gamma": 0.9})
    out = tmp_path / "out.html"
    make_report({"a": a, "b": b}, out)
    colours = set()
    for width, dark in ((1200, False), (390, False), (390, True)):
        chromium.open(out.as_uri(), width, 844, dark)
        assert chromium.messages == []
        assert chromium.requests == [out.as_uri()]
        assert chromium.run("document.documentElement.scrollWidth") <= width
        assert overlapping_labels(chromium) == []
        colours.add(chromium.run(DARK))
    assert colours == {"rgb(246, 247, 249)", "rgb(14, 18, 23)"}


def test_the_values_under_the_pointer_are_those_of_the_log(tmp_path: Path, chromium: Browser) -> None:
    run = put_run(tmp_path / "run", 100.0)
    steps = range(100, 2_001, 100)
    put_log(
        run / "metrics.jsonl",
        [{"step": n, "eval/mean_reward": n / 7, "rollout/ep_rew_mean": n / 9} for n in steps],
    )
    out = tmp_path / "out.html"
    make_report({"run": run}, out)
    chromium.open(out.as_uri())
    chromium.point(".frame > svg", 0.76, 0.3)
    tip = chromium.run("document.querySelector('.tip').innerText.split('\\n').join(' ')")
    assert tip == f"step 1,500 Evaluation {1500 / 7:.1f} Training {1500 / 9:.1f}"
    chromium.point("h1", 0.5, 0.5)
    assert chromium.run("document.querySelectorAll('.tip, .cross').length") == 0
    assert chromium.messages == []


def test_a_script_that_got_into_the_page_would_not_run(tmp_path: Path, chromium: Browser) -> None:
    """The policy is the second wall behind the escaping, so it is tried with a page whose first wall is gone."""
    out = tmp_path / "out.html"
    make_report({"run": put_run(tmp_path / "run")}, out)
    text = out.read_text()
    evil = "<script>window.evil = 1</script><img src='x' onerror='window.evil = 1'><img src='http://127.0.0.1:9/x.png'>"
    out.write_text(text.replace("</main>", f"{evil}</main>"))
    chromium.open(out.as_uri())
    assert chromium.run("window.evil === undefined")
    assert any("Content Security Policy" in message for message in chromium.messages), (
        "and the browser says so"
    )


def test_the_live_page_keeps_up(tmp_path: Path, chromium: Browser) -> None:
    run = put_run(tmp_path / "exp" / "one", None)
    put_run(tmp_path / "exp" / "two", 20.0)
    live = Live(Watcher(tmp_path / "exp"))
    live.turn()
    server = Server(0, live)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    place = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        for width in (1200, 390):
            chromium.open(f"{place}/", width, 844)
            assert chromium.run("document.documentElement.scrollWidth") <= width
        chromium.open(f"{place}/?run=0", 390, 844)
        assert overlapping_labels(chromium) == []
        chromium.run("document.querySelector('details').open = true")
        with (run / "metrics.jsonl").open("a") as file:
            file.write('{"step": 2100, "eval/mean_reward": 4321.5}\n')
        live.turn()
        chromium.wait("document.getElementById('tiles').innerText.includes('4321.5')")
        assert chromium.run("document.querySelector('details').open"), "what was open stays open"
        assert chromium.messages == []
        assert {url.removeprefix(place).partition("?")[0] for url in chromium.requests} <= {
            *("/", "/data.json", "/page.css", "/page.js", "/watch.js", "data:,")
        }
    finally:
        server.shutdown()
        server.server_close()
    chromium.wait("!document.getElementById('lost').hidden")
