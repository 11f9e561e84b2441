"""Which builders hand options on, and which tests read them back."""

from __future__ import annotations

from mutations.bug import Bug
from mutations.dropped import handed_on, read_from


def _only(*algos: str) -> str:
    """Return the tests of wiring that are of these algorithms."""
    named = " or ".join(f"[{algo}-" for algo in algos)
    del named
    return f"test_wiring.py test_wiring_of_sections.py -k '{' or '.join(algos)}'"


_OF: dict[str, tuple[str, ...]] = {
    "actor_critic": ("td3", "sac", "ddpg"),
    "c51": ("c51",),
    "crossq": ("crossq",),
    "ddpg": ("ddpg",),
    "discrete_sac": ("discrete_sac",),
    "dqn": ("dqn",),
    "drqn": ("drqn", "r2d2"),
    "drqv2": ("drqv2",),
    "iqn": ("iqn",),
    "on_policy": ("ppo", "trpo"),
    "ppo": ("ppo",),
    "qr_dqn": ("qr_dqn",),
    "recurrent_ppo": ("recurrent_ppo",),
    "sac": ("sac",),
    "td3": ("td3",),
    "tqc": ("tqc",),
    "trpo": ("trpo",),
    "value_based": ("c51", "rainbow"),
}
WIRING: list[Bug] = [
    bug
    for name, algos in _OF.items()
    for bug in (
        *handed_on(f"algorithms/declared/{name}.py", _only(*algos)),
        *read_from(f"algorithms/declared/{name}.py", _only(*algos)),
    )
]
WIRING += handed_on("algorithms/building.py", _only("prioritized_dqn", "discrete_sac", "drqv2", "c51", "dqn"))
WIRING += read_from("algorithms/building.py", _only("prioritized_dqn", "discrete_sac", "drqv2", "c51", "dqn"))
WIRING += handed_on("algorithms/options.py", _only("dqn", "recurrent_ppo"))
WIRING += handed_on("algorithms/learner.py", _only("dqn", "sac"))
WIRING += read_from("algorithms/learner.py", _only("dqn", "sac"))
for learner, algos in {
    "value_learner": ("dqn",),
    "q_learning": ("dqn",),
    "dqn": ("dqn",),
    "c51": ("c51",),
    "qr_dqn": ("qr_dqn",),
    "iqn": ("iqn",),
    "drqn": ("drqn", "r2d2"),
    "actor_critic": ("td3", "sac"),
    "ddpg": ("ddpg",),
    "td3": ("td3",),
    "sac": ("sac",),
    "tqc": ("tqc",),
    "discrete_sac": ("discrete_sac",),
    "crossq": ("crossq",),
    "drqv2": ("drqv2",),
    "on_policy": ("ppo", "trpo"),
    "ppo": ("ppo",),
    "recurrent_ppo": ("recurrent_ppo",),
    "trpo": ("trpo",),
    "compiled_ppo": ("ppo",),
}.items():
    WIRING += read_from(f"algorithms/{learner}.py", _only(*algos))
for model, algos in {
    "continuous": ("sac", "td3"),
    "mlp_sac": ("sac",),
    "mlp_crossq": ("crossq",),
    "mlp_discrete_sac": ("discrete_sac",),
    "mlp_actor_critic": ("ppo",),
    "mlp_q_network": ("dqn",),
    "mlp_iqn_q_network": ("iqn",),
    "cnn/drqv2": ("drqv2",),
    "recurrent/body": ("drqn", "recurrent_ppo"),
    "recurrent/lstm_actor_critic": ("recurrent_ppo",),
    "recurrent/lstm_q_network": ("drqn", "r2d2"),
}.items():
    WIRING += handed_on(f"models/{model}.py", _only(*algos))
