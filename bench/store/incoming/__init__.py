"""What comes from another store: archives are unpacked within bounds, and everything is checked before it is taken."""
