"""Every live value of a run, so that what a checkpoint forgets is found."""

from __future__ import annotations

from collections import deque
from types import FunctionType
from typing import Any

import numpy as np
import torch

RESTORED_DIFFERENTLY = {
    ".timer": "wall-clock time",
    "._timer": "the same",
    "_space._np_random": "nothing samples from a space; gymnasium seeds it from the system",
    ".last_td_errors": "a report of the last update that nothing reads while training",
    ".algorithm.fractions": "drawn before every use, or constant",
    ".grad": "written before every use",
    "._places": "views of it",
    "._compiled": "addresses of the learner's vectors, and room to work in",
    ".algorithm._surrogate": "the same",
    "._torch_stream._outside": "torch's own generator, which is none of the run's",
    ".collector._told": "whether this process has said something once",
    ".collector._cast_from": "what it says",
    ".metrics._kept": "folded into the sums by a save",
    # Of a rollout's block only the rows written so far are kept; the others are written before they are read.
    **{
        f".experience._{name}": "rows of the rollout before"
        for name in ("obs", "action", "reward", "terminated", "truncated", "valid", "starts", "carry", "mask")
    },
}


def survey(root: Any) -> dict[str, Any]:
    """Return every plain value, array, tensor and generator that can be reached from an object, by path."""
    found: dict[str, Any] = {}
    seen: dict[int, str] = {}
    queue = deque([("", root)])
    while queue:
        path, node = queue.popleft()
        if any(path.endswith(ending) for ending in RESTORED_DIFFERENTLY):
            continue
        value, parts = take_apart(node)
        if value is None and parts and id(node) in seen:
            found[path] = f"is {seen[id(node)]}"
            continue
        seen[id(node)] = path
        if not parts:
            found[path] = value
        queue.extend((path + name, part) for name, part in parts)
    return found


def take_apart(node: Any) -> tuple[Any, list[tuple[str, Any]]]:
    """Return the value of a leaf, or the named parts of anything larger."""
    if node is None or isinstance(node, bool | int | float | str | bytes | type | np.dtype | torch.device):
        return repr(node), []
    if isinstance(node, torch.Tensor):
        parts = [(".grad", node.grad)] if node.is_leaf and node.grad is not None else []
        return None, [("", (str(node.dtype), node.detach().numpy())), *parts]
    if isinstance(node, np.ndarray | np.generic):
        return (str(node.dtype), node.shape, node.tobytes()), []
    if isinstance(node, np.random.Generator):
        return repr(node.bit_generator.state), []
    if isinstance(node, np.random.SeedSequence):
        return repr(node.state), []
    if isinstance(node, dict):
        return repr(sorted(map(str, node))), [(f"[{key!r}]", value) for key, value in node.items()]
    if isinstance(node, list | tuple | deque):
        return len(node), [(f"[{i}]", value) for i, value in enumerate(node)]
    if isinstance(node, FunctionType):
        return node.__qualname__, [
            (f"<{i}>", cell.cell_contents) for i, cell in enumerate(node.__closure__ or ())
        ]
    if type(node).__module__.split(".")[0] in ("rl_training", "rl_training_toys", "gymnasium", "torch"):
        return None, [(f".{name}", value) for name, value in sorted(vars_of(node).items())]
    return type(node).__qualname__, []


def vars_of(node: Any) -> dict[str, Any]:
    slots = [name for cls in type(node).__mro__ for name in getattr(cls, "__slots__", ())]
    return {name: getattr(node, name) for name in slots if hasattr(node, name)} | getattr(
        node, "__dict__", {}
    )
