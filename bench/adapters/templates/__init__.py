"""What `bench new-method` writes, as files that are linted and typed like all others."""
