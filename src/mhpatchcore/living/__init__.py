"""A model after its fit: new thresholds, new images, other models, and a record of all that."""
