"""Every option of every algorithm reaches what it is about: set to an odd value, built, read back from the live run."""

from __future__ import annotations

import functools
import hashlib
import typing
from typing import Any

import pytest

from helpers.wiring import MEANINGLESS, READERS, by_effect, config, driven, odd_values, settings
from rl_training.algorithms.catalogue import algorithms
from rl_training.runtime.run import Run

CASES = [(algo, option) for algo, spec in algorithms().items() for option in spec.config.model_fields]
"""Of algorithms to come, too: what they declare is asked for here."""
REFUSED = {("crossq", option) for option in ("tau", "critic_layer_norm", "critic_dropout")}
"""Options from the family that an algorithm refuses by name."""


def odd(*, effect: bool) -> list[Any]:
    """Every odd value of the options that are read back, or of those that are seen by their effect."""
    return [
        pytest.param(algo, option, value, id=f"{algo}-{option}-{value}")
        for algo, option in CASES
        if by_effect(algo, option) == effect and (algo, option) not in MEANINGLESS
        for value in odd_values(algo, option)
    ]


def test_every_option_can_be_read_back() -> None:
    """An algorithm with an option of its own says in ``helpers/wiring.py`` how it is read."""
    unknown = [f"{algo}: {option}" for algo, option in CASES if option not in READERS | MEANINGLESS]
    assert not [one for one in unknown if not by_effect(*one.split(": "))]


def test_every_option_that_is_not_fixed_has_an_odd_value() -> None:
    nothing = {(algo, option) for algo, option in CASES if not odd_values(algo, option)}
    fixed = {(algo, option) for algo, option in CASES if _is_fixed(algo, option)}
    assert nothing == fixed | REFUSED


def _is_fixed(algo: str, option: str) -> bool:
    annotation = algorithms()[algo].config.model_fields[option].annotation
    of_one = typing.get_origin(annotation) is typing.Literal and len(typing.get_args(annotation)) == 1
    return of_one or annotation in (None, type(None))


@pytest.mark.parametrize(("algo", "option", "value"), odd(effect=False))
def test_an_odd_value_is_read_back(algo: str, option: str, value: Any) -> None:
    run = Run(config(algo, settings(algo, option, value)))
    try:
        found = READERS[option](run)
    finally:
        run.close()
    if isinstance(found, set):
        assert len(found) == 1, f"places disagree: {found}"
        found = found.pop()
    if isinstance(value, bool | str | list):
        assert type(found) is type(value)
        assert found == value
    else:
        assert found == pytest.approx(value, rel=1e-4)


@functools.cache
def learned(algo: str, option: str, value: Any) -> str:
    """Return a digest of all weights after some updates with this value, or with that of the smallest settings."""
    run = driven(Run(config(algo, settings(algo, option, value))), 12)
    run.close()
    live: Any = run.algorithm
    digest = hashlib.sha256()
    for network in live.networks.values():
        for tensor in network.state_dict().values():
            digest.update(tensor.detach().contiguous().numpy())
    return digest.hexdigest()


@pytest.mark.parametrize(("algo", "option", "value"), odd(effect=True))
def test_with_an_odd_value_something_else_is_learned(algo: str, option: str, value: Any) -> None:
    assert learned(algo, option, value) != learned(algo, option, None)
