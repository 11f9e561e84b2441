"""The classes users start with, one for each algorithm; everything they do is in ``ManagedAlgorithm``.

They follow from the declarations, those of other distributions included: ``from rl_training import DQN``. The stub
beside this file tells type checkers their names; ``make generated`` writes it.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from rl_training.algorithms import catalogue
from rl_training.algorithms.spec import AlgorithmSpec
from rl_training.api.managed import ManagedAlgorithm
from rl_training.runtime.workflows import checkpoint_config, load_checkpoint


@functools.cache
def _managed(spec: AlgorithmSpec) -> type[ManagedAlgorithm]:
    defaults = [
        f"{name}={field.default!r}"
        for name, field in spec.config.model_fields.items()
        if not field.is_required()
    ]
    learns = ""
    if spec.classic is not None:
        learns = f"    Without any setting it learns {spec.classic.env} in {spec.classic.steps:,} steps.\n\n"
    about = f"{spec.title}: {spec.summary} ({spec.paper}).\n\n{learns}    Hyper-parameters: {', '.join(defaults)}."
    content = {"__doc__": about, "__module__": __name__, "algo_name": spec.name}
    return type(spec.class_name, (ManagedAlgorithm,), content)


def managed_class(algo: str | AlgorithmSpec) -> type[ManagedAlgorithm]:
    """Return the managed class of an algorithm, whoever has declared it."""
    return _managed(catalogue.find(algo))


def load(path: str | Path, **options: Any) -> ManagedAlgorithm:
    """Load an agent of any algorithm from a run folder, a checkpoint or what ``save`` wrote.

    :param path: The folder or file.
    :param options: As in ``ManagedAlgorithm.load``.
    """
    return managed_class(checkpoint_config(load_checkpoint(Path(path))).algo).load(path, **options)


def __getattr__(name: str) -> Any:
    spec = None if name.startswith("_") else catalogue.by_class_name(name)
    if spec is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return _managed(spec)


def __dir__() -> list[str]:
    return sorted({"load", "managed_class", *(spec.class_name for spec in catalogue.algorithms().values())})
