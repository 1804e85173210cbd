"""What developers run by hand, and the part of the documentation site that is made from the code."""
