"""MinAtar's games (Young and Tian 2019), as ``MinAtar/Breakout-v1`` and the like.

The rules are those of the package MinAtar. Three things differ from the environments that it has for Gymnasium: a
seeded reset forgets everything before it, including the last action, which might be repeated; the time limit of
Freeway truncates; and pictures need neither seaborn nor a window.
"""

from __future__ import annotations

import colorsys
import importlib
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.spaces import Array

GAMES = {
    "Asterix": "asterix",
    "Breakout": "breakout",
    "Freeway": "freeway",
    "Seaquest": "seaquest",
    "SpaceInvaders": "space_invaders",
}
_TIMED = ("freeway",)  # games that end by the clock, and only by it
_CELL = 16  # pixels of a picture for each cell


class MinAtarEnv(gym.Env[Array, np.int64]):
    """A game on a board of 10 by 10 cells; observations are bools [10, 10, C], one channel for each kind of object.

    With a probability of ``sticky_action_prob`` the last action is done again instead of the one chosen. With
    ``difficulty_ramping`` games get faster as they go on. ``use_minimal_action_set`` leaves out actions that
    change nothing.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        use_minimal_action_set: bool = False,
        sticky_action_prob: float = 0.1,
        difficulty_ramping: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if game not in GAMES.values():
            raise ValueError(f"game: expected one of {', '.join(GAMES.values())}, got {game!r}")
        if isinstance(sticky_action_prob, bool) or not 0.0 <= sticky_action_prob <= 1.0:
            raise ValueError(f"sticky_action_prob: expected a probability, got {sticky_action_prob!r}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode: expected rgb_array, got {render_mode!r}")
        self.render_mode = render_mode
        self._timed = game in _TIMED
        self._environment = importlib.import_module("minatar").Environment
        self._options = {
            "env_name": game,
            "sticky_action_prob": float(sticky_action_prob),
            "difficulty_ramping": bool(difficulty_ramping),
        }
        self._game = self._environment(**self._options)
        minimal = self._game.minimal_action_set()
        self._actions: list[int] = (
            minimal if use_minimal_action_set else list(range(self._game.num_actions()))
        )
        self.action_space = gym.spaces.Discrete(len(self._actions))
        self.observation_space = gym.spaces.Box(0, 1, tuple(self._game.state_shape()), np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin a game that depends on nothing but its seed."""
        super().reset(seed=seed)
        # A new one, because a reset of MinAtar's keeps the last action.
        self._game = self._environment(**self._options)
        self._game.seed(int(self.np_random.integers(2**31)))
        self._game.reset()
        return self._state(), {}

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Do an action, or now and then the last one again."""
        reward, over = self._game.act(self._actions[int(action)])
        return self._state(), float(reward), over and not self._timed, over and self._timed, {}

    def render(self) -> Any:
        """Return a picture of the board, each kind of object in a colour of its own."""
        if self.render_mode is None:
            return None
        state = self._state()
        channels = state.shape[-1]
        colours = [colorsys.hsv_to_rgb(kind / channels, 0.65, 1.0) for kind in range(channels)]
        palette = np.array([(0.0, 0.0, 0.0), *colours])
        kinds = (state * np.arange(1, channels + 1)).max(-1)  # of several in one cell, the last
        small = np.rint(palette[kinds] * 255.0).astype(np.uint8)
        return small.repeat(_CELL, 0).repeat(_CELL, 1)

    def _state(self) -> Array:
        return np.asarray(self._game.state(), np.bool_)


def register() -> None:
    """Make the games known to Gymnasium: ``-v0`` with all six actions, ``-v1`` with those that do something."""
    for name, game in GAMES.items():
        for version, minimal in (("v0", False), ("v1", True)):
            if (env_id := f"MinAtar/{name}-{version}") not in gym.registry:
                gym.register(
                    env_id,
                    "rl_training.envs.minatar:MinAtarEnv",
                    kwargs={"game": game, "use_minimal_action_set": minimal},
                )
