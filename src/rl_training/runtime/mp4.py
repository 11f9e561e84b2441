"""A file of moving pictures that is there when it is complete, and not before."""

from __future__ import annotations

import math
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from rl_training.errors import ConfigError, EnvError, StorageError
from rl_training.plain_files import replacing
from rl_training.spaces import Array

DEFAULT_FPS = 30.0
SLOWEST, FASTEST = 1.0, 120.0


def check_target(path: Path) -> None:
    """Refuse a file that could not be written, before anything is played."""
    if path.suffix.lower() != ".mp4":
        raise ConfigError(f"{path}: a video is an MP4 file, so its name has to end in .mp4")
    try:
        is_folder, has_place = path.is_dir(), path.parent.is_dir()
    except OSError as error:  # such as a name that is too long
        raise ConfigError(f"{path}: {error.strerror}") from None
    if is_folder:
        raise ConfigError(f"{path}: is a folder, not a file")
    if not has_place:
        raise ConfigError(f"{path}: there is no folder '{path.parent}'")


def frame_rate(given: Any) -> float:
    """Return an environment's ``render_fps`` as something that players can show."""
    if isinstance(given, bool) or not isinstance(given, int | float | np.number):
        return DEFAULT_FPS
    fps = float(given)
    return min(max(fps, SLOWEST), FASTEST) if math.isfinite(fps) and fps > 0.0 else DEFAULT_FPS


class Mp4Writer:
    """Writes frames as H.264 to a hidden file beside ``path``, which gets its name when the block ends well."""

    def __init__(self, path: Path) -> None:
        check_target(path)
        self._path = path
        self._partial = path.with_name(f".{path.name}.partial")
        self._ffmpeg: Generator[None, Array | None, None] | None = None
        self._shape: tuple[int, ...] = ()
        self._count = 0

    def __enter__(self) -> Mp4Writer:
        try:
            with replacing(self._partial):
                pass
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}") from None
        return self

    def add(self, frame: Array, fps: float) -> None:
        """Append an image, uint8 [H, W, 3]; the first one decides about size and speed."""
        if self._ffmpeg is None:
            self._shape = frame.shape
            self._ffmpeg = self._start(fps)
        if frame.shape != self._shape:
            raise EnvError(f"render(): frames of {self._shape} became {frame.shape}, which no video can hold")
        try:
            self._ffmpeg.send(_even(frame))
        except OSError as error:
            raise StorageError(f"{self._path}: not written: ffmpeg gave up: {_first_line(error)}") from error
        self._count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._ffmpeg is not None:
                self._ffmpeg.close()
            if kind is None:
                self._finish()
        finally:
            self._partial.unlink(missing_ok=True)

    def _start(self, fps: float) -> Generator[None, Array | None, None]:
        from imageio_ffmpeg import write_frames

        height, width = (n + n % 2 for n in self._shape[:2])
        ffmpeg: Generator[None, Array | None, None] = write_frames(
            str(self._partial.absolute()),
            (width, height),
            fps=fps,
            quality=8,
            macro_block_size=2,
            ffmpeg_log_level="quiet",
            output_params=["-f", "mp4", "-movflags", "+faststart"],
        )
        try:
            ffmpeg.send(None)
        except (OSError, RuntimeError) as error:  # none there, or none that starts
            raise StorageError(f"{self._path}: not written: no ffmpeg: {_first_line(error)}") from error
        return ffmpeg

    def _finish(self) -> None:
        """Name the file, after a look at whether all is in it: ffmpeg's end is not told otherwise."""
        from imageio_ffmpeg import count_frames_and_secs

        try:
            written = count_frames_and_secs(str(self._partial.absolute()))[0] if self._count else 0
        except RuntimeError:
            written = 0
        if written != self._count or not written:
            raise StorageError(f"{self._path}: not written: {written} of {self._count} frames arrived")
        try:
            self._partial.replace(self._path)
        except OSError as error:
            raise StorageError(f"{self._path}: not written: {error.strerror}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _even(frame: Array) -> Array:
    """Return a contiguous frame of even height and width, as H.264 wants it: an odd edge is repeated."""
    height, width = frame.shape[:2]
    if height % 2 or width % 2:
        return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return np.ascontiguousarray(frame)
