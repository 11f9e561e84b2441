"""The training loop and everything around it: collecting, evaluating, logging, saving, resuming."""
