"""Use an agent that was exported to ONNX, with onnxruntime and NumPy alone: neither torch nor rl_training is needed.

First: rl-training export RUN --to policy.onnx
Run:   echo '[0.0, 0.0, 0.1, 0.0]' | python examples/onnx_inference.py policy.onnx

Each line of the input is one observation, in order. The action for each is printed. A line can also be an object:
{"obs": [0.0, 0.0, 0.1, 0.0], "reward": 1.0, "episode_start": true, "action_mask": [true, false]}
Only the observation is needed; of a Dict, each part is an input of its own, such as "obs.camera".
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import onnxruntime

DTYPES = {"float": "float32", "double": "float64"}  # the others are called alike


class OnnxPolicy:
    """An agent in one environment; what it remembers is kept from call to call."""

    def __init__(self, path: str) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = (
            3  # errors only: it warns of inputs that may be left out, such as the mask
        )
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.outputs = [output.name for output in self.session.get_outputs()]
        self.inputs = [*self.session.get_inputs(), *self.session.get_overridable_initializers()]
        self.memory: dict[str, Any] = {}

    def act(self, **given: Any) -> Any:
        """Return the action for one observation; ``episode_start=True`` forgets what was before."""
        told = {"episode_start": not self.memory, "reward": 0.0, **given}
        known = {}
        for field in self.inputs:
            kind = field.type.removeprefix("tensor(").removesuffix(")")
            dtype = DTYPES.get(kind, kind)
            if field.name.startswith("memory."):  # what came out as new_memory., at first zeros
                known[field.name] = self.memory.get(field.name, np.zeros((1, *field.shape[1:]), dtype))
            elif field.name in told:
                # One row for each environment: here, one.
                known[field.name] = np.asarray([told[field.name]], dtype)
        found = dict(zip(self.outputs, self.session.run(None, known), strict=True))
        self.memory = {
            name.removeprefix("new_"): found[name] for name in found if name.startswith("new_memory.")
        }
        return found["action"][0]


def main() -> None:
    policy = OnnxPolicy(sys.argv[1])
    for line in sys.stdin:
        told = json.loads(line)
        action = policy.act(**(told if isinstance(told, dict) else {"obs": told}))
        print(json.dumps(action.tolist()))


if __name__ == "__main__":
    main()
