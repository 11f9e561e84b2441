"""Jobs as configs of rl_training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from images import GREY_STACK, STACK
from job_kinds import ActorCriticJob, AnyJob, AtariJob, Job, OnPolicyJob


def experiment(job: AnyJob, total: int, seed: int) -> dict[str, Any]:
    """Return the config of a job."""
    if isinstance(job, ActorCriticJob):
        return _actor_critic(job, total, seed)
    return _on_policy(job, total, seed) if isinstance(job, OnPolicyJob) else _dqn(job, total, seed)


def image_experiment(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config that fills a replay with random images, and updates a few times."""
    observations, dqn = request["observations"], request["algo"] == "dqn"
    stack = {"stack_size": GREY_STACK if dqn else STACK}
    return {
        "algo": request["algo"],
        "env": {
            "id": "images:RandomImages",
            "kwargs": {"grey": dqn},
            "wrappers": [{"id": "FrameStackObservation", "kwargs": stack}],
        },
        "total_timesteps": observations + request["updates"],
        "network": {"hidden_sizes": [512] if dqn else [256, 256]},
        "algo_kwargs": {
            "buffer_size": observations,
            "learning_starts": observations,
            "batch_size": request["batch_size"],
            "n_step_return": 1,
            "train_freq": 1,
        },
    }


def _dqn(job: Job, total: int, seed: int) -> dict[str, Any]:
    return {
        "algo": job.algo,
        "env": {
            "id": job.env,
            "num_envs": job.num_envs,
            **(_atari_options(job) if isinstance(job, AtariJob) else {}),
        },
        "seed": seed,
        "total_timesteps": total,
        "network": {"hidden_sizes": list(job.hidden)},
        "algo_kwargs": {
            "learning_rate": job.learning_rate,
            "adam_eps": job.adam_eps,
            "max_grad_norm": job.max_grad_norm,
            "buffer_size": job.buffer_size,
            "learning_starts": job.learning_starts,
            "batch_size": job.batch_size,
            "gamma": job.gamma,
            "train_freq": job.train_freq,
            "gradient_steps": job.gradient_steps,
            "n_step_return": 1,
            "target_update_interval": job.target_update_interval,
            "tau": 1.0,
            "exploration_fraction": job.exploration_fraction,
            "exploration_initial_eps": job.exploration_initial_eps,
            "exploration_final_eps": job.exploration_final_eps,
            "double": False,
            **_dqn_options(job),
        },
    }


def _atari_options(job: AtariJob) -> dict[str, Any]:
    return {
        "vectorization": "native",
        "kwargs": {
            "frameskip": job.frame_skip,
            "maxpool": True,
            "grayscale": True,
            "img_height": job.image_size,
            "img_width": job.image_size,
            "stack_num": job.frame_stack,
            "noop_max": job.noop_max,
            "use_fire_reset": True,
            "episodic_life": True,
            "reward_clipping": True,
            "repeat_action_probability": 0.0,
            "num_threads": 1,
        },
    }


def _dqn_options(job: Job) -> dict[str, Any]:
    if job.algo == "qr_dqn":
        return {"num_quantiles": job.num_quantiles}
    if job.algo == "prioritized_dqn":
        return {"loss": job.loss, "alpha": job.alpha, "beta": job.beta, "beta_final": job.beta}
    return {"loss": job.loss}


def _on_policy(job: OnPolicyJob, total: int, seed: int) -> dict[str, Any]:
    recurrent = job.algo == "recurrent_ppo"
    return {
        "algo": job.algo,
        "env": {
            "id": job.env,
            "num_envs": job.num_envs,
            "vectorization": "native" if job.native else "sync",
        },
        "seed": seed,
        "total_timesteps": total,
        "network": {"hidden_sizes": [] if recurrent else list(job.hidden), "activation": "tanh"},
        "algo_kwargs": {
            "n_steps": job.n_steps,
            "batch_size": job.batch_size,
            "learning_rate": job.learning_rate,
            "learning_rate_final": 0.0 if job.anneal else None,
            "adam_eps": job.adam_eps,
            "max_grad_norm": job.max_grad_norm,
            "gamma": job.gamma,
            "gae_lambda": job.gae_lambda,
            **(_trpo_options(job) if job.algo == "trpo" else _ppo_options(job)),
            **(_memory_options(job) if recurrent else {}),
        },
    }


def _ppo_options(job: OnPolicyJob) -> dict[str, Any]:
    return {
        "n_epochs": job.n_epochs,
        "clip_range": job.clip_range,
        "clip_range_final": 0.0 if job.anneal else None,
        "ent_coef": job.ent_coef,
        "vf_coef": job.vf_coef,
    }


def _memory_options(job: OnPolicyJob) -> dict[str, Any]:
    return {"core": "lstm", "core_size": job.lstm, "shared_trunk": True, "head_sizes": list(job.hidden)}


def _trpo_options(job: OnPolicyJob) -> dict[str, Any]:
    return {
        "n_critic_updates": job.n_epochs,
        "target_kl": job.target_kl,
        "cg_max_steps": job.cg_max_steps,
        "cg_damping": job.cg_damping,
    }


def _actor_critic(job: ActorCriticJob, total: int, seed: int) -> dict[str, Any]:
    names = (
        "batch_size",
        "train_freq",
        "gradient_steps",
        "learning_rate",
        "buffer_size",
        "learning_starts",
        "gamma",
    )
    own: dict[str, Any] = {"policy_delay": job.policy_delay}
    if job.algo != "crossq":
        own["tau"] = job.tau
    if job.algo == "discrete_sac":
        own["ent_coef"] = "auto" if job.ent_coef is None else job.ent_coef
    return {
        "algo": job.algo,
        "env": {"id": job.env, "num_envs": job.num_envs},
        "seed": seed,
        "total_timesteps": total,
        "threads": job.threads,
        "network": {"hidden_sizes": list(job.hidden)},
        "algo_kwargs": {**{name: getattr(job, name) for name in names}, **own},
    }
