"""Preparation of training rows for the towers: batches in their order, decoded ahead of time by worker processes."""
