"""Checkpoints that verify and make no sense: one value, one tensor or one key is another, and every hash is right."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from helpers.attacks import rehash

Place = tuple[Any, ...]
VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 3, 10**9, 2**31, 2**53, -(2**63), 2**63, 2**64 - 1, 10**30, 10**300),
    *(
        -0.5,
        1e-300,
        1e308,
        -1e308,
        True,
        None,
        "",
        "x",
        "\x1b[31m",
        [],
        {},
        [1],
        {"x": 1},
        [[[0]]],
        "restarted",
    ),
)
FILLS = (0.0, 1.0, -1.0, 2.0**31, -(2.0**31), 1e30, float("nan"), float("inf"), -float("inf"))
SECTIONS = ("model", "optimizer", "replay", "rng", "envs", "loop", "spaces", "config", "time", "session")


def leaves(node: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the place of everything in a plain tree, containers included."""
    for key, value in (
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    ):
        yield (*place, key)
        yield from leaves(value, (*place, key))


class Mutant:
    """One change of one checkpoint, decided by its number."""

    def __init__(self, checkpoint: Path, number: int) -> None:
        self.checkpoint = checkpoint
        self.draw = np.random.default_rng(number)
        self.said = "?"

    def apply(self) -> str:
        """Change the checkpoint in place and say how."""
        ways = (self._value, self._value, self._value, self._tensor, self._tensor, self._key, self._manifest)
        while not ways[self.draw.integers(len(ways))]():
            pass
        return self.said

    def _pick(self, options: Any) -> Any:
        options = list(options)
        return options[int(self.draw.integers(len(options)))]

    def _value(self) -> bool:
        state = json.loads((self.checkpoint / "state.json").read_text())
        # A section first: the config has most of the leaves.
        section = self._pick(state)
        places = [(section, *place) for place in leaves(state[section])] or [(section,)]
        *parents, last = self._pick(places)
        node = state
        for key in parents:
            node = node[key]
        value = self._pick(VALUES)
        if isinstance(node[last], float) and self.draw.random() < 0.3:
            value = node[last] * self._pick((-1, 1e10, 1e-10))
        self.said = f"{(*parents, last)}: {str(node[last])[:40]} is {str(value)[:40]}"
        node[last] = copy.deepcopy(value)
        return self._write(state)

    def _key(self) -> bool:
        state = json.loads((self.checkpoint / "state.json").read_text())
        section = self._pick(state)
        places = [(), *((section, *place) for place in leaves(state[section]))]
        dicts = [place for place in places if isinstance(_at(state, place), dict)]
        place = self._pick(dicts)
        node = _at(state, place)
        if node and self.draw.random() < 0.6:
            key = self._pick(node)
            self.said = f"{(*place, key)} is missing"
            del node[key]
        else:
            node["junk"] = self._pick(VALUES) if place else {"x": 1}
            self.said = f"{(*place, 'junk')} is there"
        return self._write(state)

    def _write(self, state: Any) -> bool:
        path = self.checkpoint / "state.json"
        path.unlink()
        path.write_text(json.dumps(state))
        # Tensors of sections that are gone would be refused for that alone.
        for file in self.checkpoint.glob("*.safetensors"):
            if file.name.partition(".")[0] not in state:
                file.unlink()
        rehash(self.checkpoint)
        return True

    def _tensor(self) -> bool:
        file = self._pick(sorted(self.checkpoint.glob("*.safetensors")))
        tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
        name = self._pick(sorted(tensors))
        tensor = tensors[name]
        kind = self._pick(
            ("fill", "fill", "one", "one", "noise", "shape", "dtype", "drop", "junk", "grow", "cut")
        )
        try:
            if kind in ("fill", "one"):
                value = torch.tensor(self._pick(FILLS), dtype=torch.float64)
                value = (
                    value.to(tensor.dtype)
                    if tensor.dtype.is_floating_point
                    else _as_whole(value, tensor.dtype)
                )
                flat = tensor.reshape(-1).clone()
                if not len(flat):
                    return False
                where = slice(None) if kind == "fill" else int(self.draw.integers(len(flat)))
                flat[where] = value
                tensors[name], kind = flat.reshape(tensor.shape), f"{kind} {value}"
            elif kind == "noise":
                raw = self.draw.integers(0, 256, max(tensor.nbytes, 1), np.uint8)
                if not tensor.nbytes or tensor.dtype == torch.bool:
                    return False
                tensors[name] = torch.from_numpy(raw).view(tensor.dtype).reshape(tensor.shape)
            elif kind == "shape":
                tensors[name] = tensor.reshape(-1) if tensor.ndim != 1 else tensor.reshape(1, -1)
            elif kind == "dtype":
                tensors[name] = tensor.to(self._pick((torch.float64, torch.int8, torch.bool, torch.int64)))
            elif kind == "drop":
                del tensors[name]
            elif kind == "junk":
                *parents, _ = name.split("/")
                tensors["/".join([*parents, "junk"])] = torch.zeros(3)
            elif kind == "grow":
                tensors[name] = torch.cat([tensor] * 3) if tensor.ndim else tensor.repeat(4)
            else:
                tensors[name] = tensor[:-1] if tensor.ndim else tensor.reshape(1)
        except (RuntimeError, TypeError):
            return False
        self.said = f"{file.name}: {name}: {kind}"
        file.unlink()
        if tensors:
            save_file({key: value.contiguous() for key, value in tensors.items()}, file)
        rehash(self.checkpoint)
        return True

    def _manifest(self) -> bool:
        if self.draw.random() < 0.8:
            return False  # there is little in it
        step = self._pick((0, 1, 10**9, 2**53, 10**17))
        target = self.checkpoint.with_name(f"step-{step:09d}")
        rehash(self.checkpoint, lambda manifest: manifest.update(step=step))
        self.checkpoint.rename(target)
        self.said = f"the manifest's step is {step}"
        return True


def _at(node: Any, place: Place) -> Any:
    for key in place:
        node = node[key]
    return node


def _as_whole(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor(bool(value > 0))
    info = torch.iinfo(torch.int64 if dtype == torch.uint64 else dtype)
    number = 0 if not torch.isfinite(value) else int(max(min(float(value), info.max), info.min))
    return torch.tensor(min(max(number, info.min), info.max - 1), dtype=torch.int64).to(dtype)


def mutant_of(run: Path, target: Path, number: int) -> str:
    """Copy a run with its newest checkpoint only, changed; say how."""
    shutil.copytree(run, target, ignore=shutil.ignore_patterns("tensorboard", "*.png", "*.csv"))
    newest, *others = sorted((target / "checkpoints").glob("step-*"), reverse=True)
    for other in others:
        shutil.rmtree(other)
    return Mutant(newest, number).apply()
