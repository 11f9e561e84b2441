"""Bugs of wiring, made from the source: a keyword that is not handed on, a default that takes an option's place."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from mutations.bug import ROOT, SOURCE, Bug

WIRING, SECTIONS = "test_wiring.py", "test_wiring_of_sections.py"
Function = ast.FunctionDef
HOLDERS = ("options", "shape", "context.options", "c", "config", "self.config")
"""What options are read from."""


def handed_on(file: str, tests: str, **survives: str) -> list[Bug]:
    """Return a bug for every keyword, and every entry of a mapping, that the functions of a file hand on."""
    return _bugs(file, tests, _keywords, survives)


def read_from(file: str, tests: str, **survives: str) -> list[Bug]:
    """Return a bug for every option that the functions of a file read: its default instead."""
    return _bugs(file, tests, _options, survives)


def _bugs(file: str, tests: str, find: Any, survives: dict[str, str]) -> list[Bug]:
    text = (ROOT / SOURCE / file).read_text()
    bugs = []
    for function in _functions(ast.parse(text)):
        whole = _segment(text, function)
        begin = text.index(whole)
        for start, end, new, name in find(text, function):
            changed = text[begin:start] + new + text[end : begin + len(whole)]
            what = f"{function.name}: {name} is not handed on"
            bugs.append(Bug(file, whole, changed, what, tests, survives.get(name, "")))
    return bugs


def _functions(tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name != "check":
            yield node


def _segment(text: str, node: ast.AST) -> str:
    found = ast.get_source_segment(text, node)
    assert found is not None
    return found


def _place(text: str, node: Any) -> tuple[int, int]:
    """Return where a node begins and ends in the text."""
    lines = text.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line.encode()))
    data = text.encode()
    start, end = begins[node.lineno - 1] + node.col_offset, begins[node.end_lineno - 1] + node.end_col_offset
    return len(data[:start].decode()), len(data[:end].decode())


def _own(function: Function) -> Iterator[ast.AST]:
    """Walk through a function, but not through errors that it raises or functions inside of it."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Assert, ast.FunctionDef)):
            continue
        yield node
        todo.extend(ast.iter_child_nodes(node))


def _keywords(text: str, function: Function) -> Iterator[tuple[int, int, str, str]]:
    for node in _own(function):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg is not None or isinstance(keyword.value, (ast.Name, ast.Call)):
                    yield (
                        *_with_comma(text, *_place(text, keyword)),
                        "",
                        keyword.arg or _segment(text, keyword.value),
                    )
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    start, end = _place(text, key)[0], _place(text, value)[1]
                    yield (*_with_comma(text, start, end), "", key.value)


def _with_comma(text: str, start: int, end: int) -> tuple[int, int]:
    rest = text[end:]
    blank = len(rest) - len(rest.lstrip())
    if rest[blank : blank + 1] == ",":
        return start, end + blank + 1
    before = text[:start].rstrip()
    return (len(before) - 1, end) if before.endswith(",") else (start, end)


@functools.cache
def _known_options() -> frozenset[str]:
    """Return the names of all options, asked of another process: the package must not be imported in this one."""
    code = (
        "from rl_training.algorithms.catalogue import algorithms\n"
        "print(*{name for spec in algorithms().values() for name in spec.config.model_fields})"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    return frozenset(told.stdout.split())


def _options(text: str, function: Function) -> Iterator[tuple[int, int, str, str]]:
    known = _known_options()
    for node in _own(function):
        if not isinstance(node, ast.Attribute) or node.attr not in known or isinstance(node.ctx, ast.Store):
            continue
        holder = _segment(text, node.value)
        if holder in HOLDERS and holder != "shape":
            default = f'type({holder}).model_fields["{node.attr}"].default'
            yield (*_place(text, node), default, node.attr)
