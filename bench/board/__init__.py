"""Bundles for the board: their checks, and the retraining of a run."""
