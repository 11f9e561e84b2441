"""The report: what is on it, that it needs nothing but itself, and that names and configs cannot run anything."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from helpers.html_pages import MP4, put_log, put_run, put_seeds
from rl_training.errors import ConfigError
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.report import page
from rl_training.experiment.report.page import add_report, make_report
from rl_training.experiment.report.runs import newest_video
from rl_training.experiment.report.settings import flat
from rl_training.statistics import bootstrap_interval, iqm

Cli = Callable[..., Any]
SCORES = [100.0, 120.0, 90.0, 300.0, 110.0]


class Parsed(HTMLParser):
    """The elements, attributes and texts of a page, whose tags have to be balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def words(self) -> str:
        return " ".join(text for tag, text in self.texts if tag not in ("script", "style"))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def made(tmp_path: Path, *folders: Path) -> tuple[str, Parsed]:
    out = tmp_path / "out.html"
    assert make_report({folder.name: folder for folder in folders}, out) == []
    text = out.read_text(encoding="utf-8")
    return text, Parsed(text)


def test_a_run_is_told_of(tmp_path: Path) -> None:
    changed: dict[str, Any] = {"algo_kwargs.gamma": 0.97}
    run = put_run(tmp_path / "run", 123.25, seed=7, **changed)
    _, found = made(tmp_path, run)
    for words in (
        "DQN on CartPole-v1",
        "Seed 7, finished",
        "123.25",
        "± 2 over 2 episodes",
        "2,000",
        "500",
        "0.97",
        "Some CPU",
    ):
        assert words in found.words, words
    names = {text for tag, text in found.texts if tag == "title"}
    assert {"Evaluation", "Training", "Loss", "learning 75.0%", "environment 25.0%"} <= names
    assert "P(" not in found.words
    assert f"rl-training train --config {run}" in found.words
    bold = [t for tag, t in found.texts if tag == "code"]
    gamma = bold.index("gamma")
    assert bold[gamma + 1 : gamma + 3] == ["0.97", "0.99"], "the value, and the default from which it differs"


def test_seeds_have_an_interval_and_every_seed_its_line(tmp_path: Path) -> None:
    _, found = made(tmp_path, put_seeds(tmp_path / "exp", SCORES))
    low, high = bootstrap_interval(SCORES)
    assert f"IQM of 5 seeds, 95 % interval {low:.5g} to {high:.5g}" in found.words
    assert f"{iqm(SCORES):.5g}" in found.words
    titles = [text for tag, text in found.texts if tag == "title"]
    assert all(f"seed {seed}" in titles for seed in range(5))
    assert all(f"score {score:g}" in titles for score in SCORES)
    strip = next(a for a in found.all("svg") if (a.get("class") or "").startswith("strip"))
    assert strip["aria-label"] == "IQM 110, from 90 to 300"
    assert len([a for a in found.all("path") if a["class"] == "line c0 seed"]) > 5 * 2
    assert len([a for a in found.all("path") if a["class"] == "band c0"]) == 1


def test_results_side_by_side_have_the_verdict_of_compare(tmp_path: Path, cli: Cli) -> None:
    a = put_seeds(tmp_path / "low", [90.0, 100.0, 95.0, 80.0, 70.0])
    b = put_seeds(tmp_path / "high", [490.0, 500.0, 480.0, 470.0, 485.0], **{"algo_kwargs.gamma": 0.97})
    _, found = made(tmp_path, a, b)
    said = cli("compare", a, b, "--out", tmp_path / "c.png", "--json")
    verdict = json.loads(said.out)["pairs"][0]["verdict"]
    assert verdict == "high is better (p = 0.0079)"
    assert ("b", verdict) in found.texts
    assert "In what they differ" in found.words
    codes = [text for tag, text in found.texts if tag == "code"]
    begin = codes.index("gamma")
    assert codes[begin + 1 : begin + 3] == ["0.998", "0.97"]
    assert codes[:begin] == ["algo_", "kwargs."], "nothing else differs"


def test_environments_are_not_held_against_each_other(tmp_path: Path) -> None:
    a, b = put_seeds(tmp_path / "a", SCORES), put_seeds(tmp_path / "b", SCORES, config="sac/pendulum")
    _, found = made(tmp_path, a, b)
    assert [text for tag, text in found.texts if tag == "h2"][:2] == ["CartPole-v1", "Pendulum-v1"]
    assert "P(" not in found.words


def test_a_folder_of_everything_is_a_report_too(tmp_path: Path) -> None:
    put_seeds(tmp_path / "runs" / "dqn" / "five", SCORES)
    put_run(tmp_path / "runs" / "one", 50.0)
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    _, found = made(tmp_path, tmp_path / "runs")
    assert "2 results, 6 runs" in found.words
    assert "dqn/five" in found.words


def test_a_benchmark_says_whether_its_bars_were_reached(tmp_path: Path) -> None:
    suite = tmp_path / "bench"
    put_seeds(suite / "dqn-cartpole", SCORES)
    entry = {"name": "dqn/cartpole", "bar": 475.0, "below": None, "reached": False, "score_is": "iqm"}
    results = {"suite": "quick", "summary": "A summary.", "source": "quick", "entries": [entry]}
    (suite / "results.json").write_text(json.dumps(results))
    (suite / "facts.json").write_text(json.dumps({"cores": 2, "memory_gib": 7}))
    _, found = made(tmp_path, suite)
    for words in ("Benchmark quick", "A summary.", "dqn/cartpole", "475:", "missed", "bar 475", "memory_gib"):
        assert words in found.words, words
    assert "rl-training benchmark quick" in found.words


EVIL = "</script></style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'"


@pytest.fixture
def evil_run(tmp_path: Path) -> Path:
    """A run in whose every text somebody has put a script."""
    folder = tmp_path / "<script>alert(2)<" / "a\"b'c<img src=x onerror=alert(3)>"
    folder.parent.mkdir()
    run = put_run(folder, 10.0)
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(
        config.replace(
            "id: CartPole-v1", f"id: {json.dumps(EVIL)}\n  kwargs: {{{json.dumps(EVIL)}: {json.dumps(EVIL)}}}"
        ).replace("  kwargs: {}\n", "", 1)
    )
    (run / "metadata.json").write_text(json.dumps({"title": EVIL, "environment": {EVIL: EVIL, "cpu": EVIL}}))
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "env": EVIL, "algo": EVIL, "stop_reason": EVIL}))
    rows = [{"step": step, EVIL[:90]: 1.0, "eval/mean_reward": 2.0} for step in (1, 2)]
    put_log(run / "metrics.jsonl", rows)
    (run / "x<script>.mp4").write_bytes(MP4)
    return run


def test_nothing_that_a_run_folder_says_becomes_markup(tmp_path: Path, evil_run: Path) -> None:
    for folders in ([evil_run], [evil_run, put_run(tmp_path / "good", 5.0)]):
        text, found = made(tmp_path, *folders)
        assert len(found.all("script")) == len(found.all("style")) == 1
        assert found.all("img") == []
        assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on")]
        assert text.count("<script") == text.count("</script") == 1
        assert "alert(1)" in found.words, "it is shown, as the text that it is"


def test_the_page_allows_only_its_own_script_and_style(tmp_path: Path) -> None:
    text, found = made(tmp_path, put_run(tmp_path / "run"))
    (policy,) = (a["content"] for a in found.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in (policy or "").split(";"))
    assert rules["default-src"] == "'none'"
    assert {rules["img-src"], rules["media-src"]} == {"data:"}
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert not [name for _, attrs in found.tags for name in attrs if name == "style"], (
        "which the policy would drop"
    )
    assert text.index("http-equiv") < text.index("<style")


def test_the_page_names_no_other_place(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run")
    (run / "film.mp4").write_bytes(MP4)
    text, found = made(tmp_path, run)
    places = [
        v
        for _, attrs in found.tags
        for k, v in attrs.items()
        if k in ("src", "href", "data", "action", "poster")
    ]
    assert places == ["data:video/mp4;base64," + base64.b64encode(MP4).decode()]
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}, (
        "a name, not a place"
    )
    assert "@import" not in text
    assert "url(" not in text


def test_only_videos_of_bounded_size_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = put_run(tmp_path / "run")
    (run / "videos").mkdir()
    (run / "videos" / "old.mp4").write_bytes(MP4)
    os.utime(run / "videos" / "old.mp4", (1, 1))
    (run / "long.mp4").write_bytes(MP4 + bytes(10_000))
    (run / "text.mp4").write_text("no video")
    (run / "link.mp4").symlink_to(run / "videos" / "old.mp4")
    os.mkfifo(run / "pipe.mp4")
    monkeypatch.setattr("rl_training.experiment.report.sections.MAX_VIDEO", 5_000)
    _, found = made(tmp_path, run)
    assert ("h3", "videos/old.mp4") in found.texts
    assert len(found.all("video")) == 1


def test_a_long_log_makes_no_long_page(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run")
    peak = {7_000: 999.0}
    rows = [
        {"step": n, "train/loss": peak.get(n, 0.5), "rollout/ep_rew_mean": float(n % 7)}
        for n in range(20_000)
    ]
    put_log(run / "metrics.jsonl", rows)
    text, _ = made(tmp_path, run)
    assert len(text) < 80_000
    assert "Loss ends at 0.5" in text
    (high,) = re.findall(r'aria-label="Loss: [^"]*" data-x="[^"]*" data-y="[^ ]* ([^ "]*)', text)
    assert float(high) >= 999.0, "the axis reaches the peak"


def test_what_is_damaged_is_told_and_left_out(tmp_path: Path, cli: Cli) -> None:
    folder = put_seeds(tmp_path / "exp", [1.0, 2.0, 3.0])
    (folder / "seed-0" / "result.json").write_text('{"steps": 10')
    with (folder / "seed-1" / "metrics.jsonl").open("a") as file:
        file.write("\x00\x00\n" + '{"step": 2000, "eval/mean')
    (folder / "seed-2" / "config.yaml").write_text("algo: [unclosed")
    said = cli("report", folder)
    assert said.code == 0
    assert said.out.strip().endswith("exp/report.html")
    lines = said.err.strip().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("warning: ") for line in lines)
    for words in (
        "seed-0/result.json: damaged",
        "seed-1/metrics.jsonl: 1 damaged line left out",
        "seed-2/config.yaml",
    ):
        assert words in said.err
        assert words in Parsed((folder / "report.html").read_text()).words


def test_an_unfinished_run_has_a_report(tmp_path: Path) -> None:
    _, found = made(tmp_path, put_run(tmp_path / "run", None))
    assert "Seed 0, not finished" in found.words
    assert "Where the time went" not in found.words
    found = made(tmp_path, put_seeds(tmp_path / "exp", [5.0, None]))[1]
    assert "1 of 2" in found.words


@pytest.mark.parametrize(
    ("make", "words", "message"),
    [
        (lambda p: None, ("missing",), "missing: no such folder"),
        (lambda p: (p / "empty").mkdir(), ("empty",), "empty: holds no run"),
        (lambda p: (p / "run" / "checkpoints").mkdir(parents=True), ("run",), "run: holds no metrics"),
        (
            lambda p: (put_run(p / "run", None) / "metrics.jsonl").write_text(""),
            ("run",),
            "run: holds no metrics",
        ),
        (
            lambda p: put_run(p / "run"),
            ("run", "--out", "no/such/x.html"),
            "--out: no/such/x.html: should be a file",
        ),
        (lambda p: put_run(p / "run"), ("run", "run"), "two results are named 'run'"),
        (lambda p: None, (), "Missing argument 'FOLDER...'"),
    ],
)
def test_what_cannot_be_reported_is_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path)
    said = cli("report", *words)
    assert said.code == 2
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert message in said.err
    assert not list(tmp_path.rglob("*.html"))


def test_a_checkpoint_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match="is a checkpoint; give the folder of its run"):
        make_report({"x": tmp_path / "step-1"}, tmp_path / "x.html")


def test_a_config_of_an_algorithm_that_is_not_here_is_shown_as_it_stands(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run")
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("algo: dqn", "algo: not_there"))
    out = tmp_path / "x.html"
    (problem,) = make_report({"run": run}, out)
    assert "algo: 'not_there' is unknown" in problem
    found = Parsed(out.read_text())
    assert "The defaults are not known here." in found.words
    assert ("code", "not_there") in found.texts


def test_seeds_write_their_report_and_lose_nothing_if_they_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rl_training.experiment.configs import load_config

    folder = put_seeds(tmp_path / "exp", [5.0, 6.0])
    config = load_config("dqn/cartpole", {"total_timesteps": 2_000})
    ExperimentManager(config, seeds=2, folder=folder).run(console=False)  # nothing is left to run
    assert "DQN on CartPole-v1" in Parsed((folder / "report.html").read_text()).words
    (folder / "report.html").unlink()
    capsys.readouterr()

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake\nof ours")

    monkeypatch.setattr(page, "gather", fail)
    summary = ExperimentManager(config, seeds=2, folder=folder).run(console=False)
    assert summary.scores == (5.0, 6.0)
    assert capsys.readouterr().err == "warning: no report.html: RuntimeError: a mistake?of ours\n"
    assert not (folder / "report.html").exists()


def test_a_report_that_cannot_be_written_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = put_seeds(tmp_path / "exp", [5.0])
    (folder / "report.html").mkdir()
    add_report(folder)
    assert capsys.readouterr().err.startswith(f"warning: no report.html: {folder}/report.html: not written: ")


def test_no_report_needs_torch(tmp_path: Path) -> None:
    run = put_run(tmp_path / "run")
    code = f"""
import sys
sys.argv = ["rl-training", "report", {str(run)!r}]
from rl_training.cli import main
try:
    main()
except SystemExit as stop:
    assert stop.code in (0, None), stop.code
assert not {{"torch", "matplotlib", "gymnasium"}} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert (run / "report.html").is_file()


@pytest.mark.parametrize("name", ["metrics.jsonl", "result.json", "config.yaml", "metadata.json", "run.lock"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "endless"])
def test_what_is_no_plain_file_is_not_read(tmp_path: Path, cli: Cli, name: str, kind: str) -> None:
    folder = put_seeds(tmp_path / "exp", [1.0, 2.0])
    (tmp_path / "secret").write_text('{"step": 1, "secret": 1, "title": "secret"}\n')
    path = folder / "seed-0" / name
    path.unlink()
    if kind == "link":
        path.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(2**40)
    for words in (("report", folder), ("watch", folder / "seed-0", "--text")):
        said = cli(*words)
        assert said.code == 0, said.err
        assert "secret" not in said.out
    assert "secret" not in (folder / "report.html").read_text().replace(str(tmp_path), "")


def test_what_a_config_names_is_not_imported(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("open('marker', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, Any] = {
        "env.id": "evil:make",
        "env.wrappers": [{"id": "evil:W"}],
        "network.factory": "evil:net",
    }
    run = put_run(tmp_path / "run", None, **names)
    (run / "evil.py").write_text("open('marker', 'w')")
    for words in (("report", run), ("watch", run, "--text")):
        assert cli(*words).code == 0
    assert "evil:make" in (run / "report.html").read_text()
    assert not (tmp_path / "marker").exists()
    assert "evil" not in sys.modules


def test_a_linked_folder_of_videos_is_none_of_the_run_s(tmp_path: Path) -> None:
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    elsewhere.mkdir()
    run.mkdir()
    (elsewhere / "private.mp4").write_bytes(b"\0\0\0\x18ftypisom" + bytes(64))
    (run / "videos").symlink_to(elsewhere)
    assert newest_video(run, 10_000) is None
    (run / "videos").unlink()
    elsewhere.rename(run / "videos")
    assert newest_video(run, 10_000) == run / "videos" / "private.mp4"


def test_numbers_that_python_does_not_write_are_named_as_such() -> None:
    assert flat({"algo": 16**5000, "env": {"id": "x"}}) == {
        "algo": "a number too long to show",
        "env.id": "x",
    }
