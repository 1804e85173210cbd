"""Output for a person at a terminal: progress of runs, aligned columns."""
