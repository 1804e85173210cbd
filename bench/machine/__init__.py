"""The machine: its hardware and packages, and who has the device."""
