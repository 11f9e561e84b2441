"""Experiments: which algorithms and configs there are, and runs over several seeds."""
