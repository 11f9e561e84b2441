"""Nothing in the package can run code that a file brings along."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rl_training

SOURCES = sorted(Path(rl_training.__file__).parent.rglob("*.py"))
MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {
    *(f"torch.{name}" for name in ("load", "save", "jit.load", "hub.load", "package.PackageImporter")),
    *(
        f"{numpy}.{name}"
        for numpy in ("np", "numpy")
        for name in ("load", "save", "savez", "savez_compressed")
    ),
    *(f"yaml.{name}" for name in ("load", "load_all", "full_load", "unsafe_load", "Loader", "UnsafeLoader")),
    *(f"builtins.{name}" for name in BUILTINS),
}


def forbidden(tree: ast.AST) -> Iterator[str]:
    """Yield whatever is imported or named in ``tree`` that must not be."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Name) and node.id in BUILTINS:
            names = [f"builtins.{node.id}"]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in MODULES or name in CALLS)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_call_runs_code_of_a_file(source: Path) -> None:
    assert not list(forbidden(ast.parse(source.read_text())))


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "import marshal, json",
        "from cloudpickle.cloudpickle import dumps",
        "import shelve",
        "torch.load(path)",
        "from torch import load",
        "loader = torch.load",
        "np.load(path, allow_pickle=True)",
        "from numpy import load as read",
        "numpy.save(path, array)",
        "yaml.load(text, Loader=SafeLoader)",
        "from yaml import load",
        "eval(text)",
        "run = exec",
        "builtins.eval(text)",
    ],
)
def test_the_check_sees_every_form(code: str) -> None:
    assert list(forbidden(ast.parse(code)))


def test_the_check_lets_the_rest_pass() -> None:
    code = "yaml.safe_load(t); model.eval(); load_file(p); re.compile(x)\nfrom safetensors.torch import save"
    assert not list(forbidden(ast.parse(code)))
