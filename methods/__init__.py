"""What is compared: one file a method."""
