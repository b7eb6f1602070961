"""Programs that run an exported file without mhpatchcore, to copy from."""
