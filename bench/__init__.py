"""How methods are run: suites, data, noise, training, evaluation, store."""
