"""Builds the two encoders, gives them tokenizers and loads their weights."""
