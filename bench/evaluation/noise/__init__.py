"""Measurements that need noise whose rows are known: finding them, and whether poison works."""
