"""Nothing that a folder holds is run: neither what a run names, nor what lies in the current folder."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rl_training
from helpers.attacks import put, with_config
from rl_training import installed, load_config
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.experiment import registry
from rl_training.runtime.trust import check_names, needs_trust

TINY = {
    "total_timesteps": 200,
    "algo_kwargs.learning_starts": 100,
    "algo_kwargs.train_freq": 50,
    "algo_kwargs.buffer_size": 1_000,
    "network.hidden_sizes": [4],
    "evaluation.frequency": 0,
    "evaluation.final_episodes": 2,
    "evaluation.num_envs": 1,
    "logging.tensorboard": False,
}
WORDS = [f"{key}={value}" for key, value in TINY.items()]
OBS = "[0, 0, 0, 0]"
MARKER = "ran"
"""The file that a payload would leave in the current folder."""

EVIL = f"""
open({MARKER!r}, "a").write(__name__ + " ")
import gymnasium, torch
class Env(gymnasium.Env): pass
class Wrapper(gymnasium.Wrapper): pass
class Net(torch.nn.Module):
    def __init__(self, *shape): super().__init__()
def make(*args, **kwargs): return gymnasium.make("CartPole-v1")
"""
TOUCH, UNSAFE = f"touch {MARKER}", f"!!python/object/apply:os.system ['touch {MARKER}']"

ENVS: dict[str, dict[str, Any]] = {
    "os:system": {"command": TOUCH},
    "posix:system": {"command": TOUCH},
    "subprocess:Popen": {"args": ["touch", MARKER]},
    "builtins:exec": {"source": f"open({MARKER!r}, 'w')"},
    "torch:os.system": {"command": TOUCH},
    "torch:sys.modules": {},
    "torch:_sys.modules": {},
    "numpy:os.system": {"command": TOUCH},
    "yaml:unsafe_load": {"stream": UNSAFE},
    "yaml:load": {"stream": UNSAFE, "Loader": "yaml.UnsafeLoader"},
    "yaml:unsafe_load_all": {"stream": UNSAFE},
    "yaml.loader:UnsafeLoader": {"stream": UNSAFE},
    "torch:load": {"f": "RUN/payload.pt", "weights_only": False},
    "torch.serialization:load": {"f": "RUN/payload.pt", "weights_only": False},
    "torch.hub:load": {"repo_or_dir": "RUN", "model": "evil", "source": "local"},
    "torch.jit:load": {"f": "RUN/payload.pt"},
    "torch.utils.cpp_extension:load": {"name": "evil", "sources": ["RUN/evil.cpp"]},
    "numpy:load": {"file": "RUN/payload.npy", "allow_pickle": True},
    "numpy.lib.npyio:load": {"file": "RUN/payload.npy", "allow_pickle": True},
    "gymnasium:make": {"id": "evil:Env"},
    "gymnasium.envs.registration:make": {"id": "evil:Env"},
    "gymnasium.envs.registration:load_env_creator": {"name": "evil:make"},
    "gymnasium.envs.registration:importlib.import_module": {"name": "evil"},
    "gymnasium:make_vec": {"id": "evil:Env", "num_envs": 1},
    "rl_training.envs.factory:resolve": {"path": "evil:make", "key": "x"},
    "rl_training.envs.factory:importlib.import_module": {"name": "evil"},
    "rl_training.lazy:export": {"package": "x", "name": "make", "places": {"make": "evil"}},
    "rl_training.lazy:importlib.import_module": {"name": "evil"},
    "rl_training.__main__:main": {},
    "rl_training.experiment.processes:subprocess.Popen": {"args": ["touch", MARKER]},
    "RUN.evil:make": {},
    "RUN.evil:Env": {},
    "evil:make": {},
    "evil:Env": {},
    "evil:CartPole-v1": {},
    "evil.sub:make": {},
    "package.evil:make": {},
    ".evil:make": {},
    "..evil:make": {},
    "RUN/evil:make": {},
    "__main__:make": {},
    "conftest:make": {},
    ":make": {},
    "evil:": {},
    "evil:make:make": {},
    "GymV21Environment-v0": {"env_id": "evil:Env"},
    "GymV26Environment-v0": {"env_id": "evil:Env"},
}
"""Names for ``env.id`` and what they would be called with."""
WRAPPERS: dict[str, dict[str, Any]] = {
    **{name: kwargs for name, kwargs in ENVS.items() if ":" in name},
    "evil:Wrapper": {},
    "RUN.evil:Wrapper": {},
    "gymnasium.wrappers:RecordVideo": {"video_folder": MARKER},
    "gymnasium.wrappers.rendering:RecordVideo": {"video_folder": MARKER},
    "RecordVideo": {"video_folder": MARKER},
    "__getattr__": {},
    "importlib": {},
    "vector": {},
}
NETWORKS = ["evil:Net", "RUN.evil:Net", *(name for name in ENVS if ":" in name)]


def commands(run: str) -> dict[str, tuple[object, ...]]:
    return {
        "eval": ("eval", run, "--episodes", 1),
        "video": ("eval", run, "--episodes", 1, "--video", "film.mp4"),
        "best": ("eval", run, "--episodes", 1, "--best"),
        "predict": ("predict", run, "--obs", OBS),
        "resume": ("resume", run, "total_timesteps=300", "--quiet"),
        "train": ("train", "--config", run, "--run-dir", "new", "--quiet"),
        "seeds": ("train", "--config", run, "--run-dir", "new", "--seeds", 2, "--quiet"),
        "show": ("show", run),
        "compare": ("compare", f"a={run}", f"b={run}"),
        "report": ("report", run),
        "watch": ("watch", run, "--text"),
    }


SHORT = ("eval", "predict", "resume", "train")


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("security") / "run"
    return registry.train(load_config("dqn/cartpole", TINY), run_dir=path, console=False).run_dir


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with modules that leave a marker, on the path as in an interactive Python."""
    for name in ("evil.py", "evil/sub.py", "package/__init__.py", "package/evil.py", "conftest.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"evil", "RUN", "package"}:
            del sys.modules[name]


def payloads() -> list[Any]:
    listed = [
        *((f"env {name}", {"env.id": name, "env.kwargs": kwargs}) for name, kwargs in ENVS.items()),
        *(
            (f"{section}.wrappers {name}", {f"{section}.wrappers": [{"id": name, "kwargs": kwargs}]})
            for section in ("env", "evaluation.env")
            for name, kwargs in WRAPPERS.items()
        ),
        *((f"network {name}", {"network.factory": name}) for name in NETWORKS),
    ]
    return [pytest.param(settings, id=title) for title, settings in listed]


def arm(run: Path) -> None:
    """Put into the run folder what the payloads name there."""
    (run / "evil.py").write_text(EVIL)
    (run / "hubconf.py").write_text(EVIL)
    (run / "evil.cpp").write_text("int main() {}")
    # What torch.load and numpy.load would run: a pickle that calls os.system.
    pickled = f"cposix\nsystem\n(S'{TOUCH}'\ntR.".encode()
    (run / "payload.pt").write_bytes(pickled)
    (run / "payload.npy").write_bytes(pickled)


@pytest.mark.parametrize("settings", payloads())
def test_what_a_run_names_is_not_run(
    plain_run: Path, hostile: Path, cli: Callable[..., Any], settings: dict[str, Any], slow: bool
) -> None:
    def change(config: dict[str, Any]) -> None:
        for key, value in settings.items():
            put(config, key, value)

    with_config(plain_run, hostile / "RUN", change)
    arm(hostile / "RUN")
    network = "network.factory" in settings
    tried = commands("RUN")
    for command, words in tried.items() if slow else [(name, tried[name]) for name in SHORT]:
        done = cli(*words)
        where = f"{command}: {done.err}"
        assert not (hostile / MARKER).exists(), where
        assert "Traceback" not in done.err, where
        harmless = {"show", "compare", "report", "watch"} | (set() if network else {"predict"})
        assert (done.code == 0) == (command in harmless), where
    for use in (
        lambda: rl_training.load("RUN").evaluate(1),
        lambda: rl_training.load("RUN").resume(300, progress_bar=False),
        lambda: rl_training.load("RUN").record("film.mp4"),
        lambda: rl_training.DQN(config="RUN", run_dir="new").learn(200, progress_bar=False),
        lambda: registry.evaluate("RUN", 1),
        lambda: registry.resume("RUN", overrides=["total_timesteps=300"], console=False),
    )[: 6 if slow else 1]:
        with pytest.raises(RLTrainingError):
            use()
        assert not (hostile / MARKER).exists()


@pytest.mark.parametrize("command", ["resume", "train", "seeds"])
@pytest.mark.parametrize("name", ["evil:make", "yaml:unsafe_load", "torch:os.system", "RUN.evil:make"])
def test_a_config_alone_is_not_run_either(
    plain_run: Path, hostile: Path, cli: Callable[..., Any], name: str, command: str
) -> None:
    def change(config: dict[str, Any]) -> None:
        config["env"].update(id=name, kwargs=ENVS[name])

    with_config(plain_run, hostile / "RUN", change, yaml_only=True)
    arm(hostile / "RUN")
    assert cli(*commands("RUN")[command]).code
    for checkpoint in (hostile / "RUN" / "checkpoints").iterdir():
        checkpoint.rename(hostile / checkpoint.name)  # without one, the run would start again
    assert cli(*commands("RUN")[command]).code
    assert not (hostile / MARKER).exists()


def test_the_line_says_what_would_be_imported_and_what_allows_it(
    plain_run: Path, hostile: Path, cli: Callable[..., Any]
) -> None:
    run = with_config(plain_run, hostile / "RUN", lambda config: config["env"].update(id="evil:make"))
    done = cli("eval", run)
    assert (done.code, done.err) == (
        2,
        "error: env.id: 'evil:make' would import 'evil', which is not an installed package; add --trust "
        "(in Python trust=True) if you trust this run\n",
    )
    done = cli("eval", run, "--trust", "--episodes", 1)
    assert done.code == 0, done.err
    assert (hostile / MARKER).exists()  # so these tests would see a payload that runs


def test_trust_walks_through_no_module_either(
    plain_run: Path, hostile: Path, cli: Callable[..., Any]
) -> None:
    for number, name in enumerate(("os:system", "torch:os.system", "numpy:os.system", "builtins:exec")):

        def change(config: dict[str, Any], name: str = name) -> None:
            config["env"].update(id=name, kwargs=ENVS[name])

        run = with_config(plain_run, hostile / f"run{number}", change)
        assert cli("eval", run, "--trust", "--episodes", 1).code == 2
        assert not (hostile / MARKER).exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"env.id": "Pendulum-v1"},
        {"env.id": "MiniGrid-Empty-5x5-v0"},
        {"env.id": "minigrid:MiniGrid-Empty-5x5-v0"},
        {"env.id": "rl_training/TMaze-v0"},
        {"env.id": "rl_training.envs.partial:TMaze"},
        {"env.id": "gymnasium.envs.classic_control.cartpole:CartPoleEnv"},
        {"env.wrappers": [{"id": "TimeLimit"}]},
        {"env.wrappers": [{"id": "minigrid.wrappers:ImgObsWrapper"}]},
        {"evaluation.env.wrappers": [{"id": "rl_training.envs.pixels:PixelObservation"}]},
        {"network.factory": "torch.nn.modules.linear:Linear"},
    ],
    ids=str,
)
def test_registered_ids_and_installed_classes_need_no_trust(settings: dict[str, Any]) -> None:
    config = load_config("dqn/cartpole", settings)
    check_names(config, False)
    assert not needs_trust(config)


def test_what_is_installed_is_where_it_was_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gymnasium", "torch.nn.modules.linear", "yaml", "rl_training.envs.partial"):
        assert installed.is_installed(name)
    for name in (
        "os",
        "sys",
        "conftest",
        "no_such_module",
        "rl_training.no_such",
        "",
        ".",
        "a b",
        "_pytest.__main__",
    ):
        assert not installed.is_installed(name)
    # An editable installation has a note in site-packages of where it lies.
    site, project = tmp_path / "site-packages", tmp_path / "project"
    info = site / "my_project-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: My-Project\nVersion: 1\n")
    url = project.as_uri()
    (info / "direct_url.json").write_text(f'{{"url": "{url}", "dir_info": {{"editable": true}}}}')
    for name in ("my_project/envs.py", "my_project/__init__.py", "beside.py", "runs/evil.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    monkeypatch.setattr(installed, "site_folders", lambda: [str(site)])
    monkeypatch.syspath_prepend(str(project))
    assert installed.is_installed("my_project.envs")
    assert not installed.is_installed("beside")
    assert not installed.is_installed("runs.evil")


def test_plugins_are_those_of_installed_distributions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {point.name for point in installed.plugins("rl_training.algorithms")}
    plant_distribution(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert {point.name for point in installed.plugins("rl_training.algorithms")} == names
    assert names >= {"toy_policy_gradient"}


def plant_distribution(folder: Path) -> None:
    """Put a distribution there that announces plugins to everybody who asks."""
    info = folder / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    groups = ("rl_training.algorithms", "gymnasium.envs", "torch.backends", "pydantic", "numba_extensions")
    text = "".join(
        f"[{group}]\ninit = evil:make\n__root__ = evil:make\nevil = evil:make\n" for group in groups
    )
    (info / "entry_points.txt").write_text(text)


SHADOWS = [
    *("dill", "tqdm", "ale_py", "minigrid", "minatar", "dm_control", "shimmy", "evil", "pygame", "moviepy"),
    *(
        "torch",
        "numpy",
        "yaml",
        "gymnasium",
        "pydantic",
        "typer",
        "rich",
        "safetensors",
        "matplotlib",
        "numba",
    ),
    *("json", "signal", "ctypes", "typing", "dataclasses", "pathlib", "tempfile", "sitecustom", "random"),
    *("cloudpickle", "pandas", "scipy", "triton", "jax", "cv2", "IPython", "tensorboard", "expecttest"),
]
"""Modules that are there, or that something here looks for, as files of the current folder."""
EVERY_COMMAND: dict[str, tuple[str, ...]] = {
    "help": ("--help",),
    "version": ("--version",),
    "list": ("list",),
    "show": ("show", "dqn/cartpole"),
    "show run": ("show", "RUN"),
    "predict": ("predict", "RUN", "--obs", OBS),
    "eval": ("eval", "RUN", "--episodes", "1"),
    "resume": ("resume", "RUN", "--quiet", "total_timesteps=300"),
    "train": ("train", "-c", "dqn/cartpole", "--run-dir", "new", "--quiet", *WORDS),
    "workers": (
        "train",
        "-c",
        "dqn/cartpole",
        "--run-dir",
        "w",
        "--quiet",
        *WORDS,
        "env.vectorization=subprocess",
    ),
    "seeds": (
        "train",
        "-c",
        "dqn/cartpole",
        "--run-dir",
        "s",
        "--seeds",
        "2",
        "--jobs",
        "2",
        "--quiet",
        *WORDS,
    ),
    "benchmark": ("benchmark", "suite.yaml", "--run-dir", "b", "--quiet"),
    "compare": ("compare", "a=RUN", "b=RUN"),
    "atari": ("train", "-c", "dqn/cartpole", "--run-dir", "a", "--quiet", *WORDS, "env.id=ALE/Nothing-v5"),
}
QUICK = ("help", "list", "predict", "resume", "seeds")
CONSOLE_SCRIPT = "import sys; sys.path[0] = '/usr/bin'; from rl_training.cli import main; sys.exit(main())"
WAYS = {"module": ("-m", "rl_training"), "script": ("-c", CONSOLE_SCRIPT)}


@pytest.fixture(scope="module")
def shadowed(plain_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A current folder full of files that are called like modules."""
    folder = tmp_path_factory.mktemp("shadowed")
    with_config(plain_run, folder / "RUN", lambda config: None)
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(
            EVIL.replace("\nimport gymnasium, torch", "\nraise SystemExit(99)")
        )
    plant_distribution(folder)
    overrides = "".join(f"      {word.replace('=', ': ')}\n" for word in WORDS)
    entry = f"  - config: dqn/cartpole\n    seeds: 1\n    overrides:\n{overrides}"
    (folder / "suite.yaml").write_text(f"summary: one\nentries:\n{entry}")
    (folder / "dqn").mkdir()
    (folder / "dqn" / "cartpole").write_text("algo: dqn\nenv: {id: 'evil:make'}\ntotal_timesteps: 100\n")
    return folder


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("command", EVERY_COMMAND)
def test_files_of_the_current_folder_are_not_imported(
    shadowed: Path, slow: bool, command: str, way: str
) -> None:
    if not slow and command not in QUICK:
        pytest.skip("starts a process; run with --slow")
    done = started(shadowed, *WAYS[way], *EVERY_COMMAND[command])
    assert not (shadowed / MARKER).exists(), (shadowed / MARKER).read_text()
    assert done.returncode == (2 if command == "atari" else 0), done.stderr


def started(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, without anything of this process on its path but what was there at its start."""
    source = str(Path(rl_training.__file__).parent.parent)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(dict.fromkeys(entry for entry in [source, *known] if entry))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_name_that_was_typed_is_found_beside_the_user(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make(**kwargs):\n    import beside\n    return beside.env()\n")
    (tmp_path / "beside.py").write_text("import gymnasium\ndef env(): return gymnasium.make('CartPole-v1')\n")
    train = ("train", "-c", "dqn/cartpole", "--quiet", *WORDS, "env.id=mine:make")
    seeds = ("--seeds", "2", "--jobs", "2")
    for run, more in (("one", ("env.vectorization=subprocess",)), ("several", seeds)):
        done = started(tmp_path, "-m", "rl_training", *train, "--run-dir", run, *more)
        assert done.returncode == 0, done.stderr
        assert "resume one --trust" in done.stdout or run != "one"  # the commands to go on with
    for words, code in itertools.product((("eval", "one"), ("resume", "one", "total_timesteps=250")), (2, 0)):
        done = started(tmp_path, "-m", "rl_training", *words, *(() if code else ("--trust",)))
        assert done.returncode == code, done.stderr
    again = (*train, "--run-dir", "several", *seeds, "total_timesteps=300")
    done = started(tmp_path, "-m", "rl_training", *again)
    assert done.returncode == 0, done.stderr  # seeds of one's own are carried on


def test_a_suite_may_not_hide_a_run(plain_run: Path, hostile: Path, cli: Callable[..., Any]) -> None:
    with_config(plain_run, hostile / "RUN", lambda config: config["env"].update(id="evil:make"))
    (hostile / "suite.yaml").write_text("summary: one\nentries:\n  - config: RUN\n    seeds: 1\n")
    done = cli("benchmark", "suite.yaml", "--run-dir", "b", "--quiet")
    assert (done.code, "add --trust" in done.err) == (2, True)
    assert not (hostile / MARKER).exists()


def test_a_wrapper_that_is_none_is_refused_by_name() -> None:
    for name in ("importlib", "vector", "__getattr__", "RecordVideos"):
        config = load_config("dqn/cartpole", {"env.wrappers": [name]})
        with pytest.raises(ConfigError, match=r"gymnasium\.wrappers has no"):
            registry.train(config, run_dir=Path(os.devnull) / "never", console=False)
