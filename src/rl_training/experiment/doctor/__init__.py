"""The doctor: what may keep an agent from learning, before a run and after one, with evidence and a remedy."""
