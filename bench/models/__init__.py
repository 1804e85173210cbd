"""Trained models are read back, evaluated, and exported here."""
