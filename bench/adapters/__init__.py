"""Finds, describes and hashes adapters, and reads their hyper-parameters and the values that they bring."""
