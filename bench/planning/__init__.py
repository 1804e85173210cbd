"""Plans a suite: its steps and costs, its trials, missing data, and the plan file that reports read."""
