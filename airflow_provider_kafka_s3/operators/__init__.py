"""The operator of this package."""
