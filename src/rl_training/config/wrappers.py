"""Wrappers of Gymnasium that would make evaluation say something else than it seems to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_STATISTICS = {
    "NormalizeObservation": "network.normalize_obs=true",
    "NormalizeReward": "algo_kwargs.normalize_reward=true",
}
"""Wrappers with statistics that evaluation would begin anew, and that no checkpoint holds; what to set instead."""
_REWARDS = ("ClipReward",)


def check_wrappers(
    wrappers: Sequence[Any], of_evaluation: Sequence[Any] | None, options: Any, algo: str
) -> None:
    """Raise ``ValueError("dotted.key: reason")`` for wrappers around environments that do not belong there.

    ``of_evaluation`` are those of evaluation if they are others, ``options`` the hyper-parameters.
    """
    for place, given in (("env", wrappers), ("evaluation.env", of_evaluation or ())):
        for index, wrapper in enumerate(given):
            name = _gymnasium_name(wrapper.id)
            if name in _STATISTICS:
                raise ValueError(f"{place}.wrappers.{index}: {_with_statistics(name, options, algo)}")
            if name in _REWARDS and of_evaluation is None:
                others = [other.id for other in given if other is not wrapper]
                raise ValueError(
                    f"{place}.wrappers.{index}: {name} would change the scores of evaluation, too; say what evaluation "
                    f"has instead: evaluation.env.wrappers=[{', '.join(others)}]"
                )


def _with_statistics(name: str, options: Any, algo: str) -> str:
    instead = _STATISTICS[name]
    why = (
        f"the statistics of {name} would differ between training and evaluation, and no checkpoint holds them"
    )
    key = instead.rpartition(".")[2].partition("=")[0]
    if instead.startswith("algo_kwargs.") and key not in type(options).model_fields:
        return (
            f"{why}; {algo} has no such option, but ClipReward and evaluation.env.wrappers can bound rewards"
        )
    return f"{why}; use {instead}"


def _gymnasium_name(given: str) -> str:
    """Return the name of one of Gymnasium's wrappers, however it is written; any other as it is."""
    module, colon, name = given.partition(":")
    return name if colon and module.partition(".")[0] == "gymnasium" else given
