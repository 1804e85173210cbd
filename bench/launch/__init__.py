"""Execution of planned runs under claims: in turn or side by side, on several ranks, on a cluster."""
