"""What a suite will do: steps and costs, trials, what is missing, the plan that reports read."""
