"""Which settings find defects best: variants compared over categories on descriptors that are computed once."""
