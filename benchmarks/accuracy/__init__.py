"""The accuracy study: variants of the recipe on labelled categories, with several seeds."""
