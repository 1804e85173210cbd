"""Planned runs are claimed and executed here: in turn or side by side, on several ranks, on a cluster."""
