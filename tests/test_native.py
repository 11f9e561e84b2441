"""The compiled library: built at installation, loaded if it is of these sources, and never needed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import types

import pytest

from helpers import actor_critic
from helpers.q_learning import make_learner, random_batch
from rl_training import native
from rl_training.native.build import compile_library, main
from rl_training.runtime.folder import environment_facts


@pytest.fixture(autouse=True)
def forgotten():
    """Whatever a test loaded, the next ones find the package's own library."""
    yield
    native._load.cache_clear()


def test_the_library_is_built_and_loaded_here():
    """The tests of what it computes are skipped without it; where there is a compiler, there is to be a library."""
    assert shutil.which("cc") is None or native.library() is not None


@pytest.mark.skipif(native.library() is None, reason="there is none")
def test_a_library_of_other_sources_is_left_alone(tmp_path, monkeypatch):
    for path in native.LIBRARY.parent.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    monkeypatch.setattr(native, "LIBRARY", tmp_path / native.LIBRARY.name)
    native._load.cache_clear()
    assert native.library() is not None
    (tmp_path / "dispatch.c").write_text("/* changed */")
    native._load.cache_clear()
    assert native.library() is None
    assert "kernels.so is not of these sources; python -m" in (native.problem() or "")
    # Another name: what is loaded is not read again.
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "broken.so")
    native.LIBRARY.write_bytes(b"no library")
    native._load.cache_clear()
    assert native.library() is None
    assert "broken.so cannot be loaded" in (native.problem() or "")


def test_without_the_library_learning_goes_through_torch_and_says_so(monkeypatch):
    assert native.library() is None or make_learner().warnings({}) == {}
    monkeypatch.setattr(native, "LIBRARY", native.LIBRARY.with_name("none.so"))
    native._load.cache_clear()
    learner = make_learner()
    assert learner._compiled is None
    learner.update(random_batch())
    assert learner.updates == 1
    assert "none.so was not built" in learner.warnings({})["native"]
    assert make_learner(activation="tanh").warnings({}) == {}  # nothing is lost by its absence


@pytest.mark.parametrize("algo", ["ddpg", "sac", "crossq", "discrete_sac"])
def test_the_actor_critics_say_so_too(algo, monkeypatch):
    assert native.library() is None or actor_critic.make_learner(algo).warnings({}) == {}
    monkeypatch.setattr(native, "LIBRARY", native.LIBRARY.with_name("none.so"))
    native._load.cache_clear()
    learner = actor_critic.make_learner(algo)
    learner.update(actor_critic.random_batch(algo))
    assert "none.so was not built" in learner.warnings({})["native"]
    assert actor_critic.make_learner(algo, network={"activation": "silu"}).warnings({}) == {}


@pytest.mark.skipif(native.library() is None, reason="there is none")
def test_a_library_with_one_thread_says_so_where_more_are_wanted(monkeypatch):
    assert native.warning(threads=2) == {}
    loaded = types.SimpleNamespace(has_threads=lambda: 0)
    monkeypatch.setattr(native, "_load", functools.cache(lambda: (loaded, None)))
    assert native.warning() == {}
    assert "has no OpenMP" in native.warning(threads=2)["native"]


@pytest.mark.skipif(native.library() is None, reason="there is none")
def test_loading_leaves_the_environment_as_it_was(monkeypatch):
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    for given in ({}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "passive"}):
        for name in names:
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        native._load.cache_clear()
        assert native.library() is not None
        assert {name: os.environ[name] for name in names if name in os.environ} == given


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_library_can_be_compiled_anew(tmp_path, monkeypatch):
    for path in native.LIBRARY.parent.glob("*.[ch]"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "kernels.so")
    native._load.cache_clear()
    assert native.library() is None
    compile_library(tmp_path / "kernels.so")
    native._load.cache_clear()
    library = native.library()
    assert library is not None
    assert library.dqn_gradient is not None


def test_a_compiler_that_fails_leaves_the_old_library_in_place(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "false")
    (tmp_path / "kernels.so").write_bytes(b"old")
    with pytest.raises(subprocess.CalledProcessError):
        compile_library(tmp_path / "kernels.so")
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(OSError, match="no-such-compiler"):
        compile_library(tmp_path / "kernels.so")
    assert (tmp_path / "kernels.so").read_bytes() == b"old"


def test_runs_know_what_they_computed_with(monkeypatch):
    assert environment_facts(1, "cpu")["kernels"] == native.fingerprint()
    monkeypatch.setattr(native, "LIBRARY", native.LIBRARY.with_name("none.so"))
    native._load.cache_clear()
    assert environment_facts(1, "cpu")["kernels"] == native.fingerprint() == "none"


@pytest.mark.parametrize("compiler", ["false", "no-such-compiler", ""])
def test_building_by_hand_fails_in_a_line(compiler, monkeypatch, capsys):
    before = native.fingerprint()
    monkeypatch.setenv("CC", compiler)
    assert main() == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert native.fingerprint() == before


def test_what_the_compiler_says_is_shown(tmp_path, monkeypatch, capsys):
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\necho 'file.c:7: wrong' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    assert main() == 1
    assert capsys.readouterr().err == "error: the compiler failed\nfile.c:7: wrong\n"
