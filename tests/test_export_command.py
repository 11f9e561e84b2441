"""``rl-training export``: what it writes, what it refuses, and that the files run without torch and this package."""

from __future__ import annotations

import errno
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from helpers.attacks import put, with_config
from helpers.contracts import small_config
from helpers.observation_envs import SPACES, drawn
from rl_training import DQN, IQN
from rl_training.algorithms.learner import Learner
from rl_training.errors import StorageError
from rl_training.experiment import registry
from rl_training.experiment.export import onnx_file, writing
from rl_training.models.features import split
from rl_training.plain_files import replacing

EXAMPLES = Path(__file__).parent.parent / "examples"
FORBIDDEN = """
import runpy, sys
class Nobody:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "rl_training", "gymnasium", "safetensors", "onnx"):
            raise ImportError(f"{name} must not be needed")
sys.meta_path.insert(0, Nobody())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of an agent that remembers, and is told its last action and reward."""
    folder = tmp_path_factory.mktemp("run") / "r2d2"
    registry.train(small_config("r2d2"), run_dir=folder, console=False)
    return folder


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("files") / "policy.onnx"
    registry.export(run, target)
    registry.export(run, target.with_suffix(".safetensors"))
    return target


def test_a_card_says_what_there_is_to_know(exported: Path) -> None:
    card = json.loads(exported.with_name("policy.onnx.json").read_text())
    assert card["sha256"] == hashlib.sha256(exported.read_bytes()).hexdigest()
    assert (card["algorithm"]["name"], card["environment"]["id"]) == ("r2d2", "CartPole-v1")
    assert card["versions"]["torch"] == torch.__version__
    inputs = {field["name"]: field for field in card["inputs"]}
    assert list(inputs)[:2] == ["obs", "episode_start"]
    assert (inputs["obs"]["dtype"], inputs["obs"]["shape"]) == ("float32", ["batch", 4])
    assert inputs["obs"]["seen"][0] < 0.0 < inputs["obs"]["seen"][1]
    assert {"memory.hidden", "memory.cell", "memory.action", "reward", "action_mask"} < inputs.keys()
    action = card["outputs"][0]
    assert (action["name"], action["low"], action["high"]) == ("action", 0, 1)
    assert card["memory"]["memory.cell"] == "new_memory.cell"
    assert card["parity"]["observations"] == 1_000
    assert card["parity"]["memory_carried_over_steps"] == 200
    assert 0 < max(card["parity"]["largest_difference"].values()) < card["parity"]["tolerance"]
    names = ["policy.onnx", "policy.onnx.json", "policy.safetensors", "policy.safetensors.json"]
    assert sorted(path.name for path in exported.parent.iterdir()) == names


def test_a_file_is_only_replaced_if_asked_for(run: Path, tmp_path: Path, cli: Cli) -> None:
    target = tmp_path / "policy.onnx"
    target.write_bytes(b"mine")
    refused = cli("export", run, "--to", target)
    assert refused.code == 2
    assert (
        refused.err
        == f"error: --to: {target}: exists already; --overwrite (in Python overwrite=True) replaces it\n"
    )
    assert target.read_bytes() == b"mine"
    done = cli("export", run, "--to", target, "--overwrite")
    assert (done.code, done.err) == (0, "")
    assert "equal actions on 1,000 observations, memory carried over 200 steps" in done.out
    assert f"{len(target.read_bytes()):,} bytes" in done.out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("policy.pt", "should end in .onnx or .safetensors"),
        ("missing/policy.onnx", "there is no folder"),
        ("folder.onnx", "is a folder"),
    ],
)
def test_a_bad_target_is_refused(name: str, said: str, run: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "folder.onnx").mkdir()
    refused = cli("export", run, "--to", tmp_path / name)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert said in refused.err


def test_a_missing_extra_is_named(
    run: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "_NEEDED", ("onnx", "no_such_package"))
    refused = cli("export", run, "--to", tmp_path / "policy.onnx")
    assert refused.code == 2
    assert refused.err == "error: --to: 'policy.onnx' needs ONNX: pip install \"rl_training[onnx]\"\n"


def test_what_differs_from_predict_is_not_written(
    run: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner: Any = type(registry.policy(run).algorithm)
    scorer = learner.scorer

    def other(self: Learner[Any, Any]) -> Any:
        made = scorer(self)
        step = made._step
        made._step = lambda obs, memory: step(obs * 1.001, memory)
        return made

    monkeypatch.setattr(learner, "scorer", other)
    (tmp_path / "policy.onnx").write_bytes(b"an older one")
    refused = cli("export", run, "--to", tmp_path / "policy.onnx", "--overwrite")
    assert refused.code == 1
    assert refused.err.startswith(f"error: {tmp_path / 'policy.onnx'}: not written: ")
    assert "differs by" in refused.err
    assert refused.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"policy.onnx": b"an older one"}


def test_a_disk_that_is_full_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "policy.onnx"
    target.write_bytes(b"an older one")
    opened = replacing

    def full(path: Path) -> Any:
        if path.name == ".policy.onnx.partial":
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(path)

    monkeypatch.setattr(writing, "replacing", full)
    with pytest.raises(StorageError, match=r"policy\.onnx: not written: No space left on device"):
        writing._write({writing.card_of(target): b"{}", target: b"new"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"policy.onnx": b"an older one"}


def test_an_environment_that_needs_trust_is_not_played(run: Path, tmp_path: Path, cli: Cli) -> None:
    foreign = with_config(run, tmp_path / "run", lambda config: put(config, "env.id", "somebody:Env"))
    done = cli("export", foreign, "--to", tmp_path / "policy.onnx", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert said["bytes"] == len((tmp_path / "policy.onnx").read_bytes())
    assert said["source"].startswith("random numbers, as env.id: 'somebody:Env' would import 'somebody'")


def test_a_network_that_needs_trust_is_refused(run: Path, tmp_path: Path, cli: Cli) -> None:
    foreign = with_config(
        run, tmp_path / "run", lambda config: put(config, "network.factory", "somebody:make")
    )
    refused = cli("export", foreign, "--to", tmp_path / "policy.onnx")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "add --trust" in refused.err
    assert not (tmp_path / "policy.onnx").exists()


@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_the_examples_run_the_files_alone(run: Path, exported: Path, suffix: str) -> None:
    """An agent with a memory, in a process that can import neither torch nor this package."""
    script = {".onnx": "onnx_inference.py", ".safetensors": "numpy_inference.py"}[suffix]
    rng, policy, state = np.random.default_rng(0), registry.policy(run), None
    lines: list[str] = []
    expected: list[int] = []
    for step in range(60):
        obs, reward, begins = rng.normal(0.0, 2.0, 4).astype(np.float32), float(step % 3), step % 20 == 0
        mask = [step % 3 != 0, True]
        action, state = policy.predict(obs, state, begins, action_mask=mask, reward=reward)
        expected.append(int(action))
        told = {"obs": obs.tolist(), "reward": reward, "episode_start": begins, "action_mask": mask}
        lines.append(json.dumps(told))
    command = [sys.executable, "-c", FORBIDDEN, str(EXAMPLES / script), str(exported.with_suffix(suffix))]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == expected
    assert len(set(expected)) == 2


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


class Exotic(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.special.bessel_j0(x)
        return found


class Counts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(len(x), -1)


class Throws(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


class Pools(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool1d(x[:, None], 3, 1, 1)[:, 0]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (Branches, r"network: 1\.0 \(Branches\) cannot be traced: .*data-dependent"),
        (Exotic, r"network: 1\.0 \(Exotic\) does prims\.bessel_j0, which ONNX does not know"),
        (
            Counts,
            r"network: .*fixes how many observations it takes; write x\.shape\[0\] where it says len\(x\)",
        ),
        (Throws, r"not written: .* differs by"),
        (Pools, r"network: does AveragePool, which the NumPy runner does not know; \.onnx does"),
    ],
)
def test_a_network_that_cannot_be_exported_is_named_by_its_part(part: Any, said: str, tmp_path: Path) -> None:
    def network(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], 8), nn.Sequential(part()), nn.Linear(8, outputs))

    agent = DQN("CartPole-v1", network=network, seed=0, run_dir=tmp_path / "run", learning_starts=20)
    agent.learn(40, progress_bar=False)
    target = tmp_path / ("policy.safetensors" if part is Pools else "policy.onnx")
    with pytest.raises(Exception, match=said) as caught:
        agent.export(target)
    assert getattr(caught.value, "exit_code", None) == 1
    assert "\n" not in str(caught.value)
    assert list(tmp_path.glob("*policy*")) == []


class OfParts(nn.Module):
    """A custom network for a ``Dict``, as the documentation has it."""

    def __init__(self, spec: Any, outputs: int) -> None:
        super().__init__()
        self.spec = spec
        self.decide = nn.Linear(10 * 10 * 3 + 2 + 3, outputs)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        parts = {part.name: split(self.spec, obs, part) for part in self.spec.parts}
        image = parts["camera"].flatten(1).float() / 255
        gear = nn.functional.one_hot(parts["gear"][:, 0], 3).float()
        return self.decide(torch.cat([image, parts["speed"], gear], 1))


def test_python_exports_an_agent_with_a_custom_network_of_a_dict(tmp_path: Path) -> None:
    agent = DQN(
        env={"id": "helpers.observation_envs:Shown", "kwargs": {"kind": "dict"}},
        network=OfParts,
        run_dir=tmp_path / "run",
        learning_starts=20,
    )
    agent.learn(40, progress_bar=False)
    done = agent.export(tmp_path / "policy.onnx")
    assert done.parity.source == "evaluation episodes of helpers.observation_envs:Shown"
    session = onnx_file.OnnxRunner(done.path.read_bytes())
    obs = drawn(SPACES["dict"], np.random.default_rng(0), 4)
    given = {f"obs.{name}": np.asarray(value)[None] for name, value in obs.items()}
    assert session(given)["action"][0] == agent.predict(obs)[0]


def test_an_agent_that_has_learned_nothing_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="has not learned anything yet"):
        IQN("CartPole-v1").export(tmp_path / "policy.onnx")
