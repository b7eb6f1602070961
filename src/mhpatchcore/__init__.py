"""Mahalanobis PatchCore."""
