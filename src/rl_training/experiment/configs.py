"""Finding configs: by path or packaged name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rl_training.algorithms.catalogue import experiment, others
from rl_training.config import ExperimentConfig
from rl_training.config.loading import apply_overrides, put, read_mapping
from rl_training.errors import ConfigError, did_you_mean

_ASSETS = Path(__file__).parent.parent / "assets"


def packaged_configs() -> dict[str, Path]:
    """Return the configs that ship with the package, or with another one's algorithms, by name: ``dqn/cartpole``."""
    of_others = {
        f"{spec.name}/{path.stem}": path
        for spec in others().values()
        if spec.configs is not None
        for path in spec.configs.glob("*.yaml")
    }
    return dict(sorted({**of_others, **_own_configs()}.items()))


def _own_configs() -> dict[str, Path]:
    return {f"{path.parent.name}/{path.stem}": path for path in (_ASSETS / "configs").glob("*/*.yaml")}


def packaged_suites() -> dict[str, Path]:
    """Return the benchmark suites that ship with the package by name, such as ``cartpole``."""
    return {path.stem: path for path in sorted((_ASSETS / "suites").glob("*.yaml"))}


def find_config(source: str | Path) -> Path:
    """Return the file that a path, a run folder or a packaged name means."""
    own, name = _own_configs(), str(source)
    # Those of other packages only if need be: looking for them imports their algorithms.
    known = own if name.removesuffix(".yaml") in own else packaged_configs()
    if name not in known and is_run_folder(source):
        return Path(source, "config.yaml")
    return find_packaged(source, known, "config")


def is_run_folder(source: object) -> bool:
    """Say whether a config is named by the folder that it lies in."""
    with contextlib.suppress(OSError, ValueError):
        return isinstance(source, str | Path) and Path(source, "config.yaml").is_file()
    return False


def check_source(source: object, config: ExperimentConfig[Any], *, trust: bool = False) -> None:
    """Refuse the config of a run folder that names code of which only its user knows whether to trust it.

    A file that is passed as a config is its user's own.
    """
    if is_run_folder(source):
        from rl_training.runtime.trust import check_names

        check_names(config, trust)


def find_packaged(source: str | Path, known: Mapping[str, Path], kind: str) -> Path:
    """Return the file of that path, or the known one of that name; ``kind`` says what it should be."""
    path, name = Path(source), str(source).removesuffix(".yaml")
    if str(source) in known:  # whatever the current folder holds
        return known[name]
    with contextlib.suppress(OSError):  # a name too long to be one
        if path.is_file():
            return path
    if name in known:
        return known[name]
    if path.suffix in {".yaml", ".yml"}:
        raise ConfigError(f"{kind}: '{source}': no such file" + did_you_mean(name, known))
    hint = did_you_mean(name, known) or f"; packaged are {', '.join(known)}"
    raise ConfigError(f"{kind}: '{source}' is neither a file nor a packaged {kind}{hint}")


Source = str | Path | Mapping[str, Any] | ExperimentConfig[Any]
"""Where a config comes from: a packaged name, a file, a run folder, a mapping, or a config that is one already."""


def load_config(source: Source, overrides: Iterable[str] | Mapping[str, Any] = ()) -> ExperimentConfig[Any]:
    """Return a validated config.

    :param source: A packaged config such as ``"dqn/cartpole"``, the path of a YAML file, a run folder, a mapping, or a
        config.
    :param overrides: Settings to change: ``key.sub=value`` texts, or a mapping of dotted keys to values. A mapping as a
        value changes only the keys of the section that it names.
    """
    return experiment(read_source(source, overrides))


def read_source(source: Source, overrides: Iterable[str] | Mapping[str, Any] = ()) -> dict[str, Any]:
    """Return the same as ``load_config``, but plain and unchecked."""
    if isinstance(source, ExperimentConfig):
        data = source.model_dump(mode="json")
    elif isinstance(source, Mapping):
        data = dict(source)
    elif isinstance(source, str | Path):
        data = read_mapping(find_config(source), follow=not is_run_folder(source))
    else:
        raise ConfigError(f"config: should be a name, a path, a mapping or a config, not {source!r}")
    if not isinstance(overrides, Mapping):
        return apply_overrides(data, overrides)
    for key, value in overrides.items():
        data = put(data, key, value)
    return data
