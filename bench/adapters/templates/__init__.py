"""Templates of `bench new-method`, linted and typed like all other files."""
