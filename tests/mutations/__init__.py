"""Bugs that people make, put into the package one at a time, to see which tests notice.

``make bugs`` runs them all. Pytest's default run collects none of this.
"""
