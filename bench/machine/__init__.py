"""The machine: its hardware, its packages, and the lock on its device."""
