"""Measurements that need known corrupted rows: detection, memorisation, success of poison."""
