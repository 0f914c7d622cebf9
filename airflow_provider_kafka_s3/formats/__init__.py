"""Bytes: how the records of an object are encoded; deterministic, whatever the batches that bring them."""
