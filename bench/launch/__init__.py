"""How planned runs are made: claimed, executed, side by side, on several ranks, here or on a cluster."""
