"""Other implementations of PatchCore beside this one, on the same images and weights, each in processes of its own."""
