"""The parts of a report's HTML page."""
