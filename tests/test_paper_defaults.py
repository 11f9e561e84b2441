"""The defaults of every algorithm beside those of its paper: the same, or different for a reason that the docs give.

Steps are those of the agent itself, not frames. Where a paper counts updates, they are told in steps, with as many
steps between updates as by default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rl_training.algorithms import catalogue
from rl_training.config.schema import NetworkConfig

ROADMAP = Path(__file__).parent.parent / "docs" / "roadmap.md"
SMALL = "for small problems on a CPU"
LEARNS = "CartPole is learned without any setting"


class Difference(NamedTuple):
    """Options that differ for one reason: what they are here, and in the paper."""

    reason: str
    options: dict[str, tuple[Any, Any]]


PLAIN = {"dueling": False, "noisy": False, "prioritized": False}
ATARI = {"gamma": 0.99, "gradient_steps": 1, "exploration_initial_eps": 1.0}
HARD = {"train_freq": 4, "n_step_return": 1, "tau": 1.0}
ENTROPY = {"ent_coef": "auto", "target_entropy": "auto"}
REPLAY = {"gamma": 0.99, "buffer_size": 1_000_000, "train_freq": 1, "gradient_steps": 1, "n_step_return": 1}
TWO_LAYERS = {"network.hidden_sizes": (256, 256), "network.activation": "relu"}
CONTINUOUS = {**REPLAY, "batch_size": 256, "tau": 0.005, "n_critics": 2}
CLIPPED = {
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "n_epochs": 10,
    "clip_range": 0.2,
    "ent_coef": 0.0,
}

PAPERS: dict[str, dict[str, Any]] = {
    # Mnih et al. 2015, extended data table 1.
    "dqn": {**PLAIN, **ATARI, "loss": "huber", "learning_rate": 2.5e-4},
    # Schaul et al. 2016, the proportional variant on tuned Double DQN.
    "prioritized_dqn": {
        **{**PLAIN, "prioritized": True},
        **ATARI,
        "double": True,
        "loss": "huber",
        "alpha": 0.6,
        "beta": 0.4,
        "beta_final": 1.0,
    },
    # Bellemare et al. 2017.
    "c51": {
        **PLAIN,
        **ATARI,
        "double": False,
        "adam_eps": 0.01 / 32,
    },
    # Dabney et al. 2018, Distributional reinforcement learning with quantile regression.
    "qr_dqn": {**PLAIN, **ATARI, "double": False, "adam_eps": 0.01 / 32, "kappa": 1.0},
    # Dabney et al. 2018, Implicit quantile networks.
    "iqn": {
        **PLAIN,
        **ATARI,
        "double": False,
        "adam_eps": 0.01 / 32,
        "num_policy_quantiles": 32,
        "num_cosines": 64,
        "kappa": 1.0,
    },
    # Hessel et al. 2018, table 1.
    "rainbow": {
        "adam_eps": 1.5e-4,
        "gamma": 0.99,
        "gradient_steps": 1,
        "n_step_return": 3,
        "double": True,
        "dueling": True,
        "noisy": True,
        "noisy_sigma": 0.5,
        "prioritized": True,
        "alpha": 0.5,
        "beta": 0.4,
        "beta_final": 1.0,
    },
    # Hausknecht & Stone 2015.
    "drqn": {
        **{key: value for key, value in PLAIN.items() if key != "noisy"},
        **ATARI,
        **HARD,
        "max_grad_norm": 10.0,
        "core": "lstm",
        "core_layers": 1,
        "prev_action": False,
        "prev_reward": False,
        "burn_in": 0,
        "value_rescaling": False,
    },
    # Kapturowski et al. 2019, section 2.3 and table 2: 80 steps are learned from, with 40 before them as burn-in.
    "r2d2": {
        "adam_eps": 1e-3,
        "gamma": 0.997,
        "batch_size": 64,
        "n_step_return": 5,
        "tau": 1.0,
        "target_update_interval": 2_500 * 4,
        "double": True,
        "dueling": True,
        "prioritized": True,
        "alpha": 0.9,
        "beta": 0.6,
        "beta_final": 0.6,
        "priority_eta": 0.9,
        "core": "lstm",
        "core_layers": 1,
        "prev_action": True,
        "prev_reward": True,
        "sequence_length": 40 + 80,
        "burn_in": 40,
        "sequence_period": 40,
        "value_rescaling": True,
    },
    # Yarats et al. 2021, and its code: tasks of medium difficulty have a longer schedule.
    "drqv2": {
        "learning_rate": 1e-4,
        "gamma": 0.99,
        "buffer_size": 1_000_000,
        "learning_starts": 2_000,
        "batch_size": 256,
        "n_step_return": 3,
        "train_freq": 2,
        "gradient_steps": 1,
        "tau": 0.01,
        "policy_delay": 1,
        "adam_eps": 1e-8,
        "adam_betas": (0.9, 0.999),
        "max_grad_norm": None,
        "std_initial": 1.0,
        "std_final": 0.1,
        "std_duration": 100_000,
        "std_clip": 0.3,
        "reward_scale": 1.0,
        "shift_pad": 4,
        "feature_dim": 50,
        "network.hidden_sizes": (1024, 1024),
    },
    # Schulman et al. 2017, table 3.
    "ppo": {
        **CLIPPED,
        "n_steps": 2_048,
        "batch_size": 64,
        "shared_trunk": False,
        "network.hidden_sizes": (64, 64),
        "network.activation": "tanh",
    },
    # Mnih et al. 2016: rewards of up to five steps, then the value.
    "a2c": {"n_steps": 5, "gamma": 0.99, "gae_lambda": 1.0, "n_epochs": 1, "normalize_advantage": False},
    # Those of PPO; the paper that is named compares memories, and sets no defaults.
    "recurrent_ppo": {**CLIPPED, "shared_trunk": False},
    # Schulman et al. 2015; the damping is that of its code.
    "trpo": {"target_kl": 0.01, "gamma": 0.99, "cg_damping": 0.1},
    # Lillicrap et al. 2016, section 7.
    "ddpg": {**REPLAY, "n_critics": 1, "policy_delay": 1, "ou_theta": 0.15},
    # Fujimoto et al. 2018, section 6.1 and the supplement.
    "td3": {
        **{key: value for key, value in CONTINUOUS.items() if key != "batch_size"},
        "learning_starts": 1_000,
        "policy_delay": 2,
        "action_noise": "normal",
        "action_noise_std": 0.1,
        "target_policy_noise": 0.2,
        "target_noise_clip": 0.5,
    },
    # Haarnoja et al. 2018, Algorithms and applications, table 1.
    "sac": {**CONTINUOUS, **TWO_LAYERS, **ENTROPY, "learning_rate": 3e-4, "policy_delay": 1},
    # Kuznetsov et al. 2020, table 4.
    "tqc": {
        **{key: value for key, value in CONTINUOUS.items() if key != "n_critics"},
        **TWO_LAYERS,
        **ENTROPY,
        "learning_rate": 3e-4,
        "policy_delay": 1,
        "num_quantiles": 25,
        "drop_quantiles": 2,
    },
    # Christodoulou 2019.
    "discrete_sac": {
        "gamma": 0.99,
        "buffer_size": 1_000_000,
        "batch_size": 64,
        "n_critics": 2,
        "ent_coef": "auto",
        "target": "min",
    },
    # Bhatt et al. 2024.
    "crossq": {
        **{key: value for key, value in CONTINUOUS.items() if key != "tau"},
        **TWO_LAYERS,
        **ENTROPY,
        "learning_rate": 1e-3,
        "adam_betas": (0.5, 0.999),
        "policy_delay": 3,
        "batch_norm_momentum": 0.01,
        "renorm_warm_up": 100_000,
    },
}

SIZES = Difference(
    SMALL,
    {
        "buffer_size": (100_000, 1_000_000),
        "learning_starts": (1_000, 50_000),
        "exploration_fraction": (0.2, 0.02),
    },
)
DOUBLE = Difference("values are overestimated less, at no cost", {"double": (True, False)})
GRADIENT = Difference(
    "one bad batch does less harm; as in Stable-Baselines3", {"max_grad_norm": (10.0, None)}
)
SUPPORT = {"num_atoms": (101, 51), "v_min": (-100.0, -10.0), "v_max": (100.0, 10.0)}


def quick(rate: float, target: int, batch_size: int = 64, **more: Any) -> Difference:
    """Return what differs from a paper's rate, steps between target updates, single updates and single rewards."""
    return Difference(
        LEARNS,
        {
            "learning_rate": (5e-4, rate),
            "batch_size": (batch_size, 32),
            "n_step_return": (3, 1),
            "train_freq": (1, 4),
            "tau": (0.01, 1.0),
            "target_update_interval": (1, target),
            "network.hidden_sizes": ((128, 128), "convolutions and 512"),
            **more,
        },
    )


def final(theirs: float) -> Difference:
    """Return the last epsilon of a paper."""
    return Difference(SMALL, {"exploration_final_eps": (0.05, theirs)})


def but(difference: Difference, option: str) -> Difference:
    """Return a difference without one option."""
    return difference._replace(options={k: pair for k, pair in difference.options.items() if k != option})


DIFFERENT: dict[str, list[Difference]] = {
    "dqn": [SIZES, but(quick(0.0, 40_000, 128), "learning_rate"), final(0.1), GRADIENT, DOUBLE],
    "prioritized_dqn": [
        SIZES,
        quick(6.25e-5, 30_000, 128, learning_rate=(2.5e-4, 6.25e-5)),
        final(0.01),
        GRADIENT,
    ],
    "c51": [SIZES, quick(2.5e-4, 40_000, 64, **SUPPORT), GRADIENT],
    "qr_dqn": [SIZES, quick(5e-5, 40_000, num_quantiles=(50, 200)), final(0.01), GRADIENT],
    "iqn": [
        SIZES,
        quick(5e-5, 40_000, num_quantiles=(16, 64), num_target_quantiles=(16, 64)),
        final(0.01),
        GRADIENT,
    ],
    "rainbow": [
        Difference(SMALL, {"buffer_size": (100_000, 1_000_000), "learning_starts": (1_000, 20_000)}),
        but(quick(6.25e-5, 8_000, 64, **SUPPORT), "n_step_return"),
        GRADIENT,
    ],
    "drqn": [
        Difference(
            SMALL,
            {
                "learning_rate": (2.5e-4, "0.1 of Adadelta"),
                "core_size": (64, 512),
                "sequence_length": (20, 10),
            },
        ),
        DOUBLE,
    ],
    "r2d2": [
        Difference(
            SMALL,
            {"learning_rate": (2.5e-4, 1e-4), "buffer_size": (100_000, 4_000_000), "core_size": (64, 512)},
        ),
        Difference(
            "one process, so no ladder of epsilons over actors",
            {"exploration_final_eps": (0.05, "0.4 to 0.0007 over 256 actors")},
        ),
    ],
    "drqv2": [],
    "ppo": [],
    "a2c": [
        Difference("as in OpenAI's baselines", {"learning_rate": (7e-4, "drawn between 1e-4 and 1e-2")}),
        Difference("entropy beyond the bounds of actions is free", {"ent_coef": (0.0, 0.01)}),
    ],
    "recurrent_ppo": [
        Difference(
            "minibatches are made of whole sequences; as in sb3-contrib",
            {"n_steps": (128, 2_048), "batch_size": (128, 64)},
        )
    ],
    "trpo": [
        Difference("as in sb3-contrib", {"cg_max_steps": (15, 10)}),
        Difference("the rollouts of PPO", {"n_steps": (2_048, 50_000)}),
    ],
    "ddpg": [
        Difference(
            "those of `td3`, with which it is compared",
            {
                "learning_rate": (3e-4, 1e-3),
                "actor_learning_rate": (None, 1e-4),
                "batch_size": (256, 64),
                "tau": (0.005, 0.001),
                "action_noise": ("normal", "ou"),
                "action_noise_std": (0.1, 0.2),
                "network.hidden_sizes": ((256, 256), (400, 300)),
            },
        )
    ],
    "td3": [
        Difference(
            "as in the authors' later code",
            {
                "learning_rate": (3e-4, 1e-3),
                "batch_size": (256, 100),
                "network.hidden_sizes": ((256, 256), (400, 300)),
            },
        )
    ],
    "sac": [],
    "tqc": [
        Difference(
            "less work on a CPU; the number of critics as in sb3-contrib",
            {"n_critics": (2, 5), "network.critic_hidden_sizes": (None, (512, 512, 512))},
        )
    ],
    "discrete_sac": [
        Difference(
            "with few actions, the temperature of the paper's grows without end",
            {"target_entropy_ratio": (0.7, 0.98)},
        ),
        Difference(LEARNS, {"learning_rate": (1e-3, 3e-4), "critic_entropy": (False, True)}),
    ],
    "crossq": [
        Difference(
            SMALL, {"learning_starts": (1_000, 5_000), "network.critic_hidden_sizes": (None, (2048, 2048))}
        )
    ],
}

UNSET = {
    # Additions of this package, or of later papers.
    *("learning_rate_final", "actor_learning_rate", "critic_layer_norm", "critic_dropout", "target_critics"),
    *("use_sde", "sde_sample_freq", "sde_log_std_init", "ent_coef_init", "encoder_dim", "priority_eps"),
    *("clip_range_final", "target_kl_final", "clip_range_vf", "value_clipping", "recompute_advantages"),
    *("action_distribution", "log_std_init", "orthogonal_init", "normalize_reward", "head_sizes"),
    "restart_memory",
    # Details of implementations.
    *("adam_betas", "adam_eps", "max_grad_norm", "vf_coef", "normalize_advantage"),
}
EXPONENTS = {"alpha", "beta", "beta_final"}
PRIORITIES = EXPONENTS | {"prioritized"}
UNSET_BY: dict[str, set[str]] = {
    "dqn": EXPONENTS | {"noisy_sigma"},
    "prioritized_dqn": {"noisy_sigma"},
    "c51": EXPONENTS | {"noisy_sigma", "exploration_final_eps"},  # the paper names several
    "qr_dqn": EXPONENTS | {"noisy_sigma"},
    "iqn": EXPONENTS | {"noisy_sigma"},
    "rainbow": {"exploration_initial_eps", "exploration_final_eps", "exploration_fraction"},
    "drqn": {
        *(
            EXPONENTS
            | {"priority_eta", "loss", "sequence_period", "batch_size", "buffer_size", "learning_starts"}
        ),
        *("target_update_interval", "exploration_final_eps", "exploration_fraction"),
    },
    # Actors and learner run side by side.
    "r2d2": {
        *("loss", "learning_starts", "train_freq", "gradient_steps"),
        *("exploration_initial_eps", "exploration_fraction"),
    },
    "a2c": {"clip_range", "target_kl", "shared_trunk", "batch_size"},
    "ppo": {"target_kl"},
    "recurrent_ppo": {
        *("target_kl", "core", "core_size", "core_layers", "prev_action", "prev_reward", "sequence_length"),
    },
    "trpo": {
        *("learning_rate", "batch_size", "n_critic_updates", "gae_lambda", "shared_trunk"),
        *("line_search_shrinking", "line_search_steps"),
    },
    "ddpg": PRIORITIES | {"learning_starts", "ou_dt"},
    "td3": PRIORITIES | {"ou_theta", "ou_dt"},
    "sac": PRIORITIES | {"learning_starts"},
    "tqc": PRIORITIES | {"learning_starts"},
    # Not found in the paper with certainty.
    "discrete_sac": PRIORITIES
    | {"learning_starts", "train_freq", "gradient_steps", "tau", "policy_delay", "n_step_return"},
    "crossq": PRIORITIES | {"tau"},
}


def default(algo: str, key: str) -> Any:
    """Return the default of an option, or of a key of the network for that algorithm."""
    spec = catalogue.find(algo)
    section, _, name = key.rpartition(".")
    options: Any = NetworkConfig(**spec.config.network_defaults) if section else spec.config()
    return getattr(options, name)


def differing(algo: str) -> dict[str, tuple[Any, Any]]:
    return {key: values for difference in DIFFERENT[algo] for key, values in difference.options.items()}


@pytest.mark.parametrize(("algo", "key"), [(algo, key) for algo, papers in PAPERS.items() for key in papers])
def test_a_default_is_that_of_the_paper(algo: str, key: str) -> None:
    assert default(algo, key) == PAPERS[algo][key]


@pytest.mark.parametrize(("algo", "key"), [(algo, key) for algo in DIFFERENT for key in differing(algo)])
def test_a_default_differs_as_it_is_said(algo: str, key: str) -> None:
    ours, theirs = differing(algo)[key]
    assert default(algo, key) == ours != theirs
    assert key not in PAPERS[algo]


@pytest.mark.parametrize("algo", catalogue.PACKAGED)
def test_every_option_is_looked_at(algo: str) -> None:
    known = PAPERS[algo].keys() | differing(algo).keys()
    left = catalogue.find(algo).config.model_fields.keys() - known
    assert left <= UNSET | UNSET_BY.get(algo, set()), (
        "compare it with the paper, or say that the paper does not set it"
    )
    assert not UNSET_BY.get(algo, set()) & known


def test_a_sequence_of_r2d2_has_80_steps_to_learn_from_after_its_burn_in() -> None:
    from rl_training.algorithms.declared.r2d2 import R2D2Config

    options = R2D2Config()
    assert (options.sequence_length - options.burn_in, options.burn_in, options.period) == (80, 40, 40)
    short = R2D2Config(sequence_length=20, burn_in=5)
    assert (short.period, R2D2Config(sequence_length=20, burn_in=5, sequence_period=7).period) == (15, 7)
    assert R2D2Config(sequence_period=None).period == 80


# The docs


def told(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    )


def rows() -> list[str]:
    """Return the table of what differs, in Markdown."""
    algos: dict[tuple[str, str], list[str]] = {}
    for algo, differences in DIFFERENT.items():
        for reason, options in differences:
            values = ", ".join(
                f"`{key}` {told(ours)} ({told(theirs)})" for key, (ours, theirs) in options.items()
            )
            algos.setdefault((values, reason), []).append(f"`{algo}`")
    head = ["| algorithm | defaults here (in the paper) | why |", "|---|---|---|"]
    return head + [
        f"| {', '.join(names)} | {values} | {reason} |" for (values, reason), names in algos.items()
    ]


def test_the_roadmap_says_what_differs_and_why() -> None:
    assert "\n".join(rows()) in ROADMAP.read_text(encoding="utf-8")
