"""Environments: how they are made, seeded, journaled, checked and stepped together."""

from rl_training.envs.factory import EnvFactory, make_env, make_vector_env, rendering, resolve
from rl_training.envs.journal import JournaledEnv
from rl_training.envs.partial import register
from rl_training.envs.spaces import describe_spaces

register()

__all__ = [
    "EnvFactory",
    "JournaledEnv",
    "describe_spaces",
    "make_env",
    "make_vector_env",
    "rendering",
    "resolve",
]
