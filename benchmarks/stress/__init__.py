"""Hostile and damaged files by the ten thousand, and faults at every write: `make stress`."""
