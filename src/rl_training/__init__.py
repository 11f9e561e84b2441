"""Deep reinforcement learning: train, evaluate, resume and use agents from Python or from the command line."""

import sys


def _run_by_name() -> bool:
    """Say whether Python was called as ``python -m rl_training``."""
    words = iter(sys.orig_argv[1:] if sys.argv[:1] == ["-m"] else [])
    for word in words:
        if word.startswith("-") and not word.startswith(("--", "-X", "-W")) and "m" in word:
            return (word.partition("m")[2] or next(words, "")).partition(".")[0] == __name__
    return False


# Python has put the current folder first then, where its files would be imported instead of any package's. Before
# anything else is imported; rl_training.current_folder gives it back where it is wanted.
if _run_by_name() and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]

from typing import TYPE_CHECKING  # noqa: E402

from rl_training.version import __version__ as __version__  # noqa: E402

if TYPE_CHECKING:
    from rl_training.api.algorithms import *  # noqa: F403
    from rl_training.api.algorithms import load as load
    from rl_training.api.evaluation import evaluate_policy as evaluate_policy
    from rl_training.experiment.configs import load_config as load_config
    from rl_training.experiment.manager import ExperimentManager as ExperimentManager
    from rl_training.runtime.callbacks import Callback as Callback
else:

    def __getattr__(name):
        from rl_training.importing import collector_paused
        from rl_training.lazy import export

        if name == "__all__":
            return __dir__()
        if name in _PLACES:
            with collector_paused():
                return export(__name__, name, _PLACES)
        from rl_training.algorithms.catalogue import by_class_name

        if name.startswith("_") or by_class_name(name) is None:
            from rl_training.runtime.callbacks import INSTEAD

            if name in INSTEAD:  # an AttributeError would not be shown by "from rl_training import"
                raise ImportError(f"{name}: is not here; {INSTEAD[name]}")
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        with collector_paused():
            from rl_training.api import algorithms

        return getattr(algorithms, name)


_PLACES = {
    "Callback": "rl_training.runtime.callbacks",
    "ExperimentManager": "rl_training.experiment.manager",
    "evaluate_policy": "rl_training.api.evaluation",
    "load": "rl_training.api.algorithms",
    "load_config": "rl_training.experiment.configs",
}


def __dir__() -> list[str]:
    from rl_training.algorithms.catalogue import algorithms

    return sorted({*_PLACES, *(spec.class_name for spec in algorithms().values())})
