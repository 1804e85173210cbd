"""The two encoders: how they are built, read texts, start from weights."""
