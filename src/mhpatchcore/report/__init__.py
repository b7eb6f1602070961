"""Results for people: figures in one style, and a page about an evaluation that needs nothing but a browser."""
