"""Suites of experiments: what they come to, their bars, and going on where they were stopped."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.children import command, wait_for
from rl_training.config.loading import dump_yaml
from rl_training.errors import ConfigError, RunLockedError
from rl_training.experiment import progress as progress_module
from rl_training.experiment import registry
from rl_training.experiment.benchmark import Benchmark
from rl_training.experiment.card import card
from rl_training.experiment.configs import load_config, packaged_suites
from rl_training.experiment.machine import machine_facts, source_digest
from rl_training.experiment.progress import SuiteProgress, last_step
from rl_training.experiment.suites import config_digest, load_suite
from rl_training.statistics import bootstrap_interval, iqm

TINY: dict[str, Any] = {
    "total_timesteps": 300,
    "algo_kwargs.learning_starts": 50,
    "algo_kwargs.train_freq": 4,
    "algo_kwargs.gradient_steps": 1,
    "network.hidden_sizes": [8],
    "evaluation.frequency": 100,
    "evaluation.episodes": 1,
    "evaluation.final_episodes": 3,
    "logging.tensorboard": False,
}


def write_suite(path: Path, *entries: dict[str, Any], summary: str = "Small ones.") -> Path:
    path.write_text(json.dumps({"summary": summary, "entries": list(entries)}))  # JSON is YAML, too
    return path


def entry(config: str = "dqn/cartpole", **more: Any) -> dict[str, Any]:
    return {"config": config, "seeds": 2, **more, "overrides": {**TINY, **more.get("overrides", {})}}


def test_results_and_card_say_what_was_measured(tmp_path: Path) -> None:
    source = write_suite(
        tmp_path / "small.yaml",
        entry(bar=1.0),
        entry(name="dqn/other", seeds=1, bar=10_000, score="worst", overrides={"algo_kwargs.gamma": 0.5}),
        entry("qr_dqn/cartpole", seeds=1),
    )
    result = Benchmark(load_suite(source), folder=tmp_path / "out").run(console=False)
    first, second, third = result.entries
    assert (first.reached, second.reached, third.reached) == (True, False, True)
    assert not result.reached
    scores = [
        json.loads((tmp_path / "out" / "dqn-cartpole" / f"seed-{n}" / "result.json").read_text())
        for n in (0, 1)
    ]
    means = [score["evaluation"]["mean"] for score in scores]
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(name in page for name in ("Benchmark small", "dqn/cartpole", "dqn/other", "qr_dqn/cartpole"))
    assert list(first.scores) == means
    assert first.score == first.iqm == iqm(means)
    assert first.interval is None  # two seeds are too few
    assert first.finished_seeds == (0, 1)
    assert list(first.seconds) == [score["seconds"] for score in scores]
    assert second.score == min(second.scores)
    plain = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [item["reached"] for item in plain["entries"]] == [True, False, True]
    assert plain["reached"] is False
    assert plain["entries"][1]["overrides"]["algo_kwargs.gamma"] == 0.5
    assert {"torch", "python", "cpu", "cores", "memory_gib"} <= plain["facts"].keys()
    page = (tmp_path / "out" / "card.md").read_text()
    assert page == card(result)
    assert page.count("**missed**") == 1
    assert page.count("| reached |") == 1
    assert "Small ones." in page
    assert f"{first.iqm:.1f}" in page
    assert first.digest in page
    assert "- `dqn/other`: `dqn` on `CartPole-v1`, config `dqn/cartpole`, with " in page
    assert "`algo_kwargs.gamma=0.5`" in page
    assert (tmp_path / "out" / "dqn-cartpole" / "curve.png").exists()
    assert "(dqn-cartpole/curve.png)" in page


def test_what_is_there_is_not_run_again_and_what_is_missing_is(tmp_path: Path) -> None:
    source = write_suite(tmp_path / "small.yaml", entry())
    first = Benchmark(load_suite(source), folder=tmp_path / "out").run(console=False)
    kept = tmp_path / "out" / "dqn-cartpole" / "seed-0" / "result.json"
    stamp = kept.stat().st_mtime_ns
    (tmp_path / "out" / "dqn-cartpole" / "seed-1" / "result.json").unlink()
    again = Benchmark(load_suite(source), folder=tmp_path / "out").run(console=False)
    assert kept.stat().st_mtime_ns == stamp
    assert again.entries[0].scores == first.entries[0].scores


def test_results_of_other_versions_are_not_mixed(tmp_path: Path) -> None:
    suite = load_suite(write_suite(tmp_path / "small.yaml", entry(seeds=1)))
    Benchmark(suite, folder=tmp_path / "out").run(console=False)
    path = tmp_path / "out" / "facts.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "torch": "1.0"}))
    with pytest.raises(
        ConfigError, match=r"was begun where torch was '1\.0', here it is '2.*choose another folder"
    ):
        Benchmark(suite, folder=tmp_path / "out").run(console=False)
    for changed in ("source", "suite", "unheard"):
        path.write_text(json.dumps({**facts, changed: "x"}))
        with pytest.raises(ConfigError, match=f"was begun where {changed} was 'x'"):
            Benchmark(suite, folder=tmp_path / "out").run(console=False)
    path.write_text("{")
    with pytest.raises(ConfigError, match="damaged"):
        Benchmark(suite, folder=tmp_path / "out").run(console=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot hold a benchmark"):
        Benchmark(suite, folder=tmp_path / "file").run(console=False)


def test_what_fails_does_not_stop_the_others(cli: Callable[..., Any], tmp_path: Path) -> None:
    broken = entry(name="broken", seeds=1, overrides={"env.id": "Pendulum-v1"})
    half = entry(name="half")
    source = write_suite(tmp_path / "small.yaml", broken, half, entry(seeds=1))
    out = tmp_path / "out"
    (out / "half" / "seed-1" / "checkpoints").mkdir(parents=True)
    (out / "half" / "seed-1" / "metrics.jsonl").write_text("")
    done = cli("benchmark", source, "--run-dir", out)
    assert done.code == 1
    failed, partly, good = done.out.splitlines()[:3]
    assert "1 of 1 seeds failed: broken, seed 0: algo: 'dqn' takes discrete" in failed
    assert "IQM " in partly
    assert "1 of 2 seeds failed: half, seed 1: " in partly
    assert good.split()[:2] == ["dqn/cartpole", "IQM"]
    assert "] dqn/cartpole seed 0: " in done.err
    rows = (out / "card.md").read_text().splitlines()
    assert sum("**failed**" in row for row in rows) == 2
    plain = json.loads((out / "results.json").read_text())["entries"]
    assert [len(item["scores"]) for item in plain] == [0, 1, 1]
    assert [(item["seeds"], item["finished_seeds"]) for item in plain] == [
        ([0], []),
        ([0, 1], [0]),
        ([0], [0]),
    ]
    assert [item["reached"] for item in plain] == [False, False, True]


def test_other_steps_are_another_benchmark(tmp_path: Path) -> None:
    """A run that is carried on is not the run that had more steps from the start: its schedules are shorter."""
    source = write_suite(tmp_path / "small.yaml", entry(seeds=1))
    Benchmark(load_suite(source), folder=tmp_path / "out").run(console=False)
    for steps in (200, 400):
        write_suite(source, entry(seeds=1, overrides={"total_timesteps": steps}))
        with pytest.raises(ConfigError, match="another experiment: total_timesteps differs"):
            Benchmark(load_suite(source), folder=tmp_path / "out").run(console=False)


def test_a_call_that_runs_nothing_changes_nothing(tmp_path: Path) -> None:
    suite = load_suite(write_suite(tmp_path / "small.yaml", entry(seeds=1)))
    Benchmark(suite, folder=tmp_path / "out", at_once=1).run(console=False)
    path = tmp_path / "out" / "results.json"
    held = json.loads(path.read_text())
    path.write_text(json.dumps({**held, "finished": "once"}))
    again = Benchmark(suite, folder=tmp_path / "out", at_once=2).run(console=False)
    assert (again.finished, again.at_once) == ("once", 1)
    # What is damaged is made again, or left out of consideration.
    for damaged in ('{"at_once": "many", "finished": "once"}', '{"at_once": [1]}', "[]", "{"):
        path.write_text(damaged)
        again = Benchmark(suite, folder=tmp_path / "out", at_once=2).run(console=False)
        assert (again.finished != "once", again.at_once) == (True, 2)
    result = tmp_path / "out" / "dqn-cartpole" / "seed-0" / "result.json"
    result.write_text('{"steps": 300, "evaluation": {}}')
    assert (
        Benchmark(suite, folder=tmp_path / "out").run(console=False).entries[0].scores
        == again.entries[0].scores
    )


def test_a_damaged_log_costs_the_picture_and_not_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = load_suite(write_suite(tmp_path / "small.yaml", entry(seeds=1)))
    first = Benchmark(suite, folder=tmp_path / "out").run(console=False)
    log = tmp_path / "out" / "dqn-cartpole" / "seed-0" / "metrics.jsonl"
    log.write_text("no JSON\n" + log.read_text())
    capsys.readouterr()
    again = Benchmark(suite, folder=tmp_path / "out").run(console=False)
    assert again.entries == first.entries
    assert "no curve.png: " in capsys.readouterr().err


def test_five_seeds_have_an_interval(tmp_path: Path) -> None:
    suite = load_suite(write_suite(tmp_path / "small.yaml", entry(seeds=5)))
    (result,) = Benchmark(suite, folder=tmp_path / "out").run(console=False).entries
    assert result.interval == bootstrap_interval(result.scores)
    assert "{:.1f} to {:.1f}".format(*result.interval) in (tmp_path / "out" / "card.md").read_text()


def test_code_that_changes_while_a_suite_runs_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = load_suite(write_suite(tmp_path / "small.yaml", entry(seeds=1)))
    digests = iter(["before", "after"])
    monkeypatch.setattr("rl_training.experiment.machine.source_digest", lambda: next(digests))
    with pytest.raises(ConfigError, match="was changed while this ran"):
        Benchmark(suite, folder=tmp_path / "out").run(console=False)
    assert not (tmp_path / "out" / "results.json").exists()


def test_the_source_is_known_by_every_file_of_code(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    files = [tmp_path / "a.py", tmp_path / "deep" / "b.c", tmp_path / "deep" / "c.h"]
    for file in files:
        file.write_text("1")
    seen = {source_digest(tmp_path)}
    for file in files:
        file.write_text("2")
        seen.add(source_digest(tmp_path))
    files[0].rename(tmp_path / "d.py")
    assert len(seen | {source_digest(tmp_path)}) == 5
    assert source_digest() == machine_facts()["source"]
    (tmp_path / "notes.txt").write_text("no code")
    assert source_digest(tmp_path) not in seen


def test_as_many_runs_at_a_time_as_there_are_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.experiment.benchmark.cores", lambda: 6)
    one = load_suite(write_suite(tmp_path / "one.yaml", entry()))
    two = load_suite(write_suite(tmp_path / "two.yaml", entry(overrides={"threads": 2})))
    assert (Benchmark(one).at_once, Benchmark(two).at_once, Benchmark(one, at_once=2).at_once) == (6, 3, 2)


def read_all(terminal: int) -> str:
    """Return what was written to a terminal, which hands it out in portions."""
    portions = []
    while select.select([terminal], [], [], 0.2)[0]:
        portions.append(os.read(terminal, 65_536))
    return b"".join(portions).decode()


def test_a_terminal_shows_how_far_each_entry_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {"a": [tmp_path / "a0", tmp_path / "a1"], "b": [tmp_path / "b0"]}
    for folder in (tmp_path / "a0", tmp_path / "a1"):
        folder.mkdir()
    master, slave = os.openpty()
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with SuiteProgress(paths, {"a": 200, "b": 400}, held=0, console=True) as progress:
            (tmp_path / "a0" / "metrics.jsonl").write_text('{"step": 200}\n')
            (tmp_path / "a1" / "metrics.jsonl").write_text('{"step": 100}\n')
            progress.tick()
        terminal.flush()
        shown = read_all(master)
    os.close(master)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).replace("\r", "\n").splitlines()
    a, b = ([line for line in lines if line.startswith(f"{name} ")][-1] for name in "ab")
    assert "75%" in a
    assert "1/2 seeds" in a
    assert "0%" in b
    assert "0/1 seeds" in b


def test_without_a_terminal_lines_show_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "_PLAIN_INTERVAL", 0.0)
    for seed, step in ((0, 200), (1, 50)):
        (tmp_path / f"seed-{seed}").mkdir()
        (tmp_path / f"seed-{seed}" / "metrics.jsonl").write_text(f'{{"step": {step}}}\n')
    paths = {"dqn": [tmp_path / "seed-0", tmp_path / "seed-1"]}
    with SuiteProgress(paths, {"dqn": 400}, held=1, console=True) as progress:
        progress.tick()
    said = capsys.readouterr().err.splitlines()
    assert said == ["2 runs, 1 of them there already", "250 of 800 steps, 1 of 2 runs done"]


def test_a_folder_of_something_else_is_refused(cli: Callable[..., Any], tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "small.yaml", entry(seeds=1))
    run = tmp_path / "run"
    registry.train(load_config("dqn/cartpole", TINY), run_dir=run, console=False)
    assert "run: holds something else" in cli("benchmark", suite, "--run-dir", run).err
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "facts.json").write_text("{}")
    done = cli("train", "--config", "dqn/cartpole", "--run-dir", tmp_path / "bench")
    assert (done.code, "bench: holds several runs" in done.err) == (2, True)
    assert [path.name for path in (tmp_path / "bench").iterdir()] == ["facts.json"]  # nothing is left behind


def test_a_mistake_that_no_seed_was_begun_with_can_be_mended(cli: Callable[..., Any], tmp_path: Path) -> None:
    source, out = tmp_path / "small.yaml", tmp_path / "out"
    write_suite(source, entry(seeds=1, overrides={"env.id": "CartPole-v99"}))
    failed = cli("benchmark", source, "--run-dir", out)
    assert failed.code == 1
    assert "[1/1] FAILED dqn/cartpole, seed 0: " in failed.err  # said when it happens
    write_suite(source, entry(seeds=1))
    refused = cli("benchmark", source, "--run-dir", out)
    assert refused.code == 2
    assert "delete its config.yaml, with which no seed was begun" in refused.err
    (out / "dqn-cartpole" / "config.yaml").unlink()
    assert cli("benchmark", source, "--run-dir", out).code == 0


def test_the_worst_seed_of_a_bar_that_must_not_be_reached_is_the_highest(tmp_path: Path) -> None:
    suite = load_suite(
        write_suite(tmp_path / "s.yaml", entry(below=50, score="worst"), entry(name="x", bar=1))
    )
    assert [suite.entries[0].below_score((10.0, 60.0, 30.0)), suite.entries[0].score((10.0, 60.0))] == [
        60.0,
        10.0,
    ]
    assert suite.entries[1].below_score((10.0, 60.0, 30.0)) == pytest.approx(100 / 3)


def test_a_config_may_lie_beside_its_suite(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(dump_yaml(load_config("dqn/cartpole", {**TINY, "seed": 7})))
    suite = load_suite(write_suite(tmp_path / "suite.yaml", {"config": "mine.yaml"}))
    assert (suite.entries[0].name, suite.entries[0].experiment.seed) == ("mine", 7)


def test_steps_take_the_place_of_the_configs(tmp_path: Path) -> None:
    suite = load_suite(write_suite(tmp_path / "suite.yaml", {"config": "dqn/cartpole", "steps": "2k"}))
    assert suite.entries[0].experiment.total_timesteps == 2_000


def test_two_benchmarks_do_not_share_a_folder(tmp_path: Path) -> None:
    suite = load_suite(write_suite(tmp_path / "small.yaml", entry(seeds=1)))
    benchmark = Benchmark(suite, folder=tmp_path / "out")
    with (
        locked_by_another(tmp_path / "out"),
        pytest.raises(RunLockedError, match="another benchmark is running"),
    ):
        benchmark.run(console=False)


@contextmanager
def locked_by_another(folder: Path) -> Iterator[None]:
    """Hold the lock as another process would."""
    folder.mkdir()
    with (folder / "benchmark.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize(("below", "reached"), [(1.0, False), (10_000.0, True)])
def test_a_run_that_should_fail_can_fail_to(tmp_path: Path, below: float, reached: bool) -> None:
    suite = load_suite(write_suite(tmp_path / "small.yaml", entry(seeds=1, below=below)))
    (result,) = Benchmark(suite, folder=tmp_path / "out").run(console=False).entries
    assert result.reached is reached
    assert f"bar below {below:g} {'held' if reached else 'EXCEEDED'}" in result.line
    assert "1 seed, too few for an interval" in result.line


@pytest.mark.parametrize(("bar", "code"), [(1.0, 0), (10_000.0, 1), (None, 0)])
def test_the_exit_code_is_about_the_bar(
    cli: Callable[..., Any], tmp_path: Path, bar: float | None, code: int
) -> None:
    source = write_suite(tmp_path / "small.yaml", entry(seeds=1, bar=bar))
    done = cli("benchmark", source, "--run-dir", tmp_path / "out", "--quiet", "--json")
    assert done.code == code
    assert json.loads(done.out)["reached"] is (code == 0)
    assert done.err == ""


def test_a_suite_that_is_stopped_goes_on_and_comes_to_the_same(tmp_path: Path) -> None:
    steps = {"total_timesteps": 8_000, "logging.frequency": 100, "checkpoint.frequency": 200}
    source = write_suite(tmp_path / "small.yaml", entry(seeds=1, overrides=steps))
    run = tmp_path / "out" / "dqn-cartpole" / "seed-0"

    def begin_until(step: int, number: signal.Signals) -> Any:
        parent = command(tmp_path, "benchmark", source, "--quiet", "--run-dir", tmp_path / "out")
        wait_for(lambda: last_step(run / "metrics.jsonl") >= step, 60.0)
        pid = int((run / "run.lock").read_text().split()[1])
        parent.send(number)
        assert parent.wait() == (143 if number == signal.SIGTERM else -9)
        wait_for(lambda: not _runs(pid))
        assert not (tmp_path / "out" / "results.json").exists()
        return parent

    assert begin_until(500, signal.SIGTERM).err == "SIGTERM: stopped; the same command completes it\n"
    begin_until(2_000, signal.SIGKILL)
    (result,) = Benchmark(load_suite(source), folder=tmp_path / "out").run(console=False).entries
    segments = json.loads((run / "metadata.json").read_text())["segments"]
    assert len(segments) == 3, "it was cut twice"
    whole = registry.train(
        load_config("dqn/cartpole", {**TINY, **steps}), run_dir=tmp_path / "whole", console=False
    )
    assert whole.evaluation is not None
    assert result.scores == (whole.evaluation.mean,)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("summary: x\nentries: []\n", "should not be empty"),
        ("entries:\n  - config: dqn/cartpole\n", "summary: required key is missing"),
        ("summary: x\nentries:\n  - config: dqn/cartpol\n", "entries.0: config: 'dqn/cartpol' is neither"),
        (
            "summary: x\nentries:\n  - config: dqn/cartpole\n    sedes: 3\n",
            "entries.0.sedes: unknown key; did you mean 'seeds'?\n",
        ),
        ("summary: x\nentries:\n  - config: dqn/cartpole\n    seeds: 0\n", "entries.0.seeds: 0"),
        ("summary: x\nentries:\n  - config: dqn/cartpole\n    bar: high\n", "entries.0.bar: 'high'"),
        (
            "summary: x\nentries:\n  - config: dqn/cartpole\n    overrides: {algo_kwargs.gama: 1}\n",
            "entries.0: algo_kwargs.gama: unknown key",
        ),
        (
            "summary: x\nentries:\n  - config: dqn/cartpole\n    overrides: {evaluation.final_episodes: 0}\n",
            "entries.0: evaluation.final_episodes: 0",
        ),
        ("summary: x\nentries:\n  - config: dqn/cartpole\n    name: ../../x\n", "entries.0.name: '../../x'"),
        ("summary: x\nentries:\n  - config: dqn/cartpole\n    name: card.md\n", "a file of the benchmark"),
        ("summary: x\nentries: {a: 1}\n", "should be a list"),
        (
            "summary: x\nentries:\n  - config: dqn/cartpole\n  - config: dqn/cartpole\n",
            "entries: 'dqn/cartpole' stands twice",
        ),
        (
            "summary: x\nentries:\n  - {config: dqn/cartpole, bar: 10, below: 5}\n",
            "entries.0: bar: 10 is not under below: 5",
        ),
        (
            "summary: x\nentries:\n  - {config: dqn/cartpole, steps: 5, overrides: {total_timesteps: 9}}\n",
            "entries.0: steps: stands beside an override",
        ),
        ("algo: dqn\nenv: {id: CartPole-v1}\n", "this is a config, not a suite"),
        ("- a\n", "should be a mapping"),
        ("summary: [\n", "not valid YAML"),
    ],
)
def test_a_suite_with_a_mistake_is_one_line(
    cli: Callable[..., Any], tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    done = cli("benchmark", path, "--run-dir", tmp_path / "out")
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_unknown_suite_is_named(cli: Callable[..., Any]) -> None:
    done = cli("benchmark", "cartpol")
    assert (done.code, done.err) == (
        2,
        "error: suite: 'cartpol' is neither a file nor a packaged suite; did you mean 'cartpole'?\n",
    )


def test_every_packaged_suite_loads_and_is_listed(cli: Callable[..., Any]) -> None:
    listed = json.loads(cli("list", "--json").out)["suites"]
    assert listed == list(packaged_suites())
    assert {"quick", "cartpole", "pixels"} <= set(listed)
    for name in listed:
        suite = load_suite(name)
        assert suite.summary
        assert all(one.experiment.evaluation.final_episodes == 100 for one in suite.entries)


def test_the_digest_is_of_what_is_computed() -> None:
    plain = load_config("dqn/cartpole").model_dump(mode="json")
    assert config_digest(plain) == config_digest({**plain, "seed": 9})
    assert config_digest(plain) != config_digest({**plain, "threads": 2})
    assert config_digest(dict(reversed(plain.items()))) == config_digest(plain)


def test_the_last_step_is_that_of_the_last_whole_row(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    assert last_step(log) == 0
    log.write_text("")
    assert last_step(log) == 0
    log.write_text('{"step": 5}\n{"step": 7, "x": 1}\n{"step": 9')
    assert last_step(log) == 7
    log.write_text("".join(f'{{"step": {n}, "filler": "{"x" * 50}"}}\n' for n in range(1_000)))
    assert last_step(log) == 999
