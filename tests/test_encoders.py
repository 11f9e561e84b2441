"""From observations of every kind to vectors: against encodings written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from helpers.observation_envs import SPACES, drawn
from rl_training.envs.spaces import describe_observations
from rl_training.errors import ConfigError
from rl_training.models.encoders import Convolutions, ImageEncoder, encoder_of
from rl_training.models.features import Features, split_all
from rl_training.observations import ObsSpec


def packed(space: spaces.Space[Any], count: int = 5) -> tuple[ObsSpec, list[Any], torch.Tensor]:
    spec = describe_observations(space)
    rng = np.random.default_rng(0)
    raw = [drawn(space, rng, place) for place in range(count)]
    return spec, raw, torch.from_numpy(np.stack([spec.pack(one) for one in raw]))


def one_hot(number: int, count: int) -> list[float]:
    return [float(number == i) for i in range(count)]


def by_hand(space: spaces.Space[Any], obs: Any) -> list[float]:
    """Return the features of everything but images, vectors first."""
    vectors, others = [], []

    def walk(space: spaces.Space[Any], obs: Any) -> None:
        if isinstance(space, spaces.Dict):
            for key, inner in space.spaces.items():
                walk(inner, obs[key])
        elif isinstance(space, spaces.Tuple):
            for inner, one in zip(space.spaces, obs, strict=True):
                walk(inner, one)
        elif isinstance(space, spaces.Discrete):
            others.extend(one_hot(int(obs) - int(space.start), int(space.n)))
        elif isinstance(space, spaces.MultiDiscrete):
            for number, first, count in zip(obs, space.start, space.nvec, strict=True):
                others.extend(one_hot(int(number - first), int(count)))
        elif isinstance(space, spaces.MultiBinary):
            others.extend(float(bit) for bit in obs)
        elif np.asarray(obs).ndim < 3:
            scale = 255.0 if space.dtype == np.uint8 else 1.0
            vectors.extend((np.asarray(obs, np.float64).ravel() / scale).tolist())

    walk(space, obs)
    return vectors + others


WITHOUT_IMAGES = [
    *(
        "vector",
        "double",
        "scalar",
        "matrix",
        "bytes",
        "discrete",
        "multi_discrete",
        "one_of_many",
        "multi_binary",
    ),
    *("dict_of_vectors", "nested"),
]


@pytest.mark.parametrize("kind", WITHOUT_IMAGES)
def test_features_are_what_one_would_write_by_hand(kind: str) -> None:
    spec, raw, rows = packed(SPACES[kind])
    features = encoder_of(spec)
    assert isinstance(features, Features)
    found = features(rows)
    assert found.dtype == torch.float32
    assert found.shape == (5, features.size)
    np.testing.assert_allclose(found.numpy(), [by_hand(SPACES[kind], obs) for obs in raw], rtol=1e-6)


def test_normalising_standardises_the_vectors_of_a_dict_and_nothing_else() -> None:
    space = spaces.Dict(
        {
            "gear": spaces.Discrete(3),
            "speed": spaces.Box(-10.0, 10.0, (2,), np.float64),
            "bytes": spaces.Box(0, 255, (2,), np.uint8),
        }
    )
    spec, rng = describe_observations(space), np.random.default_rng(0)
    raw: list[dict[str, Any]] = [
        {"gear": i % 3, "speed": rng.normal(5.0, 3.0, 2), "bytes": rng.integers(0, 99, 2).astype(np.uint8)}
        for i in range(200)
    ]
    rows = np.stack([spec.pack(one) for one in raw])
    features = encoder_of(spec, normalize=True)
    assert isinstance(features, Features)
    assert features.normalizer is not None
    features.normalizer.observe(rows)
    found = features(torch.from_numpy(rows)).numpy()
    # In the order of the space, which sorts its keys.
    vectors = np.array([[*one["bytes"], *one["speed"]] for one in raw], np.float64)
    expected = (vectors - vectors.mean(0)) / vectors.std(0)
    np.testing.assert_allclose(found[:, :4], expected, atol=1e-2)
    np.testing.assert_array_equal(found[:, 4:], [one_hot(one["gear"], 3) for one in raw])


@pytest.mark.parametrize("kind", ["image_last", "image_first", "grey_image", "small_bool_image"])
def test_an_image_is_the_same_to_the_network_whatever_its_layout(kind: str) -> None:
    """One with its channels last, and the same one with its channels first, by the same weights."""
    spec, raw, rows = packed(SPACES[kind])
    (part,) = spec.parts
    channels, height, width = part.frame
    given = np.stack(raw)
    first = given[:, None] if given.ndim == 3 else np.moveaxis(given, -1, 1) if part.channels_last else given
    assert first.shape[1:] == (channels, height, width)
    convolutions = Convolutions(part)
    scaled = torch.from_numpy(np.ascontiguousarray(first)).float() / (
        255.0 if given.dtype == np.uint8 else 1.0
    )
    expected = convolutions.convs(scaled).permute(0, 2, 3, 1).flatten(1)
    torch.testing.assert_close(convolutions(rows), expected)
    assert expected.abs().max() > 0


def test_stacked_frames_of_several_channels_are_channels() -> None:
    space = spaces.Box(0, 255, (2, 12, 14, 3), np.uint8)  # two frames, each with its channels last
    spec = describe_observations(space)
    (part,) = spec.parts
    assert part.frame == (6, 12, 14)
    stacks = np.random.default_rng(0).integers(0, 256, (4, *space.shape), np.uint8)
    convolutions = Convolutions(part)
    channels = np.concatenate([np.moveaxis(stacks[:, k], -1, 1) for k in range(2)], 1)
    expected = convolutions.convs(torch.from_numpy(channels).float() / 255.0).permute(0, 2, 3, 1).flatten(1)
    torch.testing.assert_close(convolutions(torch.from_numpy(stacks)), expected)


@pytest.mark.parametrize(
    ("pixels", "cnn"), [(10, "auto"), (35, "auto"), (36, "auto"), (36, "impala"), (84, "small")]
)
def test_any_size_from_ten_pixels_on(pixels: int, cnn: Any) -> None:
    spec = describe_observations(spaces.Box(0, 255, (pixels, pixels, 3), np.uint8))
    encoder = encoder_of(spec, cnn=cnn)
    assert isinstance(encoder, ImageEncoder)
    (convolutions,) = encoder.images
    assert isinstance(convolutions, Convolutions)
    found = encoder(torch.randint(0, 256, (2, pixels, pixels, 3), dtype=torch.uint8))
    assert found.shape == (2, encoder.size)
    kernels = [module.kernel_size[0] for module in convolutions.modules() if isinstance(module, nn.Conv2d)]
    nature = cnn == "auto" and pixels >= 36
    assert (kernels == [8, 4, 3]) == nature
    assert (len(kernels) == 15) == (cnn == "impala")


@pytest.mark.parametrize(
    ("pixels", "cnn", "said"), [(35, "nature", "at least 36 x 36"), (7, "impala", "at least 8 x 8")]
)
def test_images_too_small_for_a_network_are_refused(pixels: int, cnn: Any, said: str) -> None:
    spec = describe_observations(spaces.Box(0, 255, (pixels, pixels, 3), np.uint8))
    with pytest.raises(ConfigError, match=said):
        encoder_of(spec, cnn=cnn)


class OfParts(nn.Module):
    """An encoder as an export would have it: its parts come as arguments."""

    def __init__(self, encoder: Features | ImageEncoder, spec: ObsSpec) -> None:
        super().__init__()
        self.encoder, self._paths = encoder, [part.path for part in spec.parts]

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        return self.encoder.encode(dict(zip(self._paths, parts, strict=True)))


@pytest.mark.parametrize("kind", ["dict", "nested", "discrete", "nature_image", "small_bool_image"])
def test_encoders_can_be_exported(kind: str) -> None:
    """As a graph of usual operations on tensors: no bytes are looked at as other numbers."""
    spec, _, rows = packed(SPACES[kind])
    encoder = encoder_of(spec).eval()
    parts = tuple(split_all(spec, rows).values())
    program = torch.export.export(OfParts(encoder, spec), parts)
    torch.testing.assert_close(program.module()(*parts), encoder(rows))
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not [name for name in names if "view.dtype" in name or "numpy" in name]
