"""Toy algorithms: small enough to read in a minute, complete enough for every test of the packaged ones."""
