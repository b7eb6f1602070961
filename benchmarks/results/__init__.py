"""The paper's experiments on real images, from running them to the page about them (docs/results.md)."""
