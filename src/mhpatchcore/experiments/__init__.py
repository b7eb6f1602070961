"""The paper's experiments: a grid of data sets × configurations, each cell in its own process, and its tables."""
