"""Training rows made ready for the towers: batches in their order, decoded ahead of time by worker processes."""
