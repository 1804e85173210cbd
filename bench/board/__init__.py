"""Bundles for the board: what is checked of one before it is taken, and a run trained once more."""
