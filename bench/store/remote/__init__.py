"""Runs in object storage: whose they are, how far they are, and what they gave."""
