"""Measurements that need embeddings with variances."""
