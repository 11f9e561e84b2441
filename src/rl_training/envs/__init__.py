"""Environments: how they are made, seeded, journaled, checked and stepped together."""

from rl_training.envs import minatar, partial
from rl_training.envs.factory import EnvFactory, make_env, make_vector_env, rendering, resolve
from rl_training.envs.journal import JournaledEnv
from rl_training.envs.spaces import describe_spaces

minatar.register()
partial.register()

__all__ = [
    "EnvFactory",
    "JournaledEnv",
    "describe_spaces",
    "make_env",
    "make_vector_env",
    "rendering",
    "resolve",
]
