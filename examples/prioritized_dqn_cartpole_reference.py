"""Train DQN with prioritized replay on CartPole-v1, and see what its replay would rather draw.

Run: python examples/prioritized_dqn_cartpole_reference.py [--total-timesteps N] [--seed N] [--run-dir DIR]
"""

import argparse
from pathlib import Path

import numpy as np

from rl_training import Callback, PrioritizedDQN
from rl_training.data import PrioritizedExperience
from rl_training.runtime.session import Session


class WhatIsReplayed(Callback):
    """At the end of training, looks at the tenth of the transitions that are drawn most often."""

    def on_end(self, training: Session) -> None:
        experience = training.run.experience
        assert isinstance(experience, PrioritizedExperience)
        buffer = experience.buffer
        slots = np.arange(len(buffer))
        transitions = buffer.gather(slots)
        assert transitions.indices is not None
        chance = buffer.probabilities(transitions.indices)
        ended = transitions.discount.numpy() == 0.0  # nothing follows its steps: the pole has fallen
        often = slots[np.argsort(chance)[-max(len(buffer) // 10, 1) :]]
        print(
            f"a tenth of the {len(buffer)} transitions makes up {chance[often].sum():.0%} of what is replayed"
        )
        print(
            f"ending in a fall: {ended.mean():.1%} of all transitions, {ended[often].mean():.1%} of that tenth"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-timesteps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    args = parser.parse_args()

    # alpha is how strongly errors decide what is drawn; beta, which ends at 1, how far weights make up for it.
    agent = PrioritizedDQN(config="prioritized_dqn/cartpole", seed=args.seed, run_dir=args.run_dir)
    agent.learn(args.total_timesteps, callback=WhatIsReplayed())

    result = agent.evaluate(args.episodes)
    print(f"return {result.mean:.1f} ± {result.std:.1f} over {len(result.returns)} episodes")

    # The priorities are part of the saved agent, so that resuming it goes on with the same draws.
    assert agent.run_dir is not None
    path = agent.save(agent.run_dir / "exported")
    action, _ = PrioritizedDQN.load(path).predict([0.0, 0.0, 0.1, 0.0])
    print(f"action {action} for a pole that leans to the right; agent saved in {path}")


if __name__ == "__main__":
    main()
