"""Ranks that a launcher such as torchrun starts on one or several machines; all run the same command."""
