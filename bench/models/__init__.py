"""Trained models: read back, evaluated from elsewhere, exported."""
