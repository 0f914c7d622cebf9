"""Formats: the encoding of an object's records, which does not depend on the batches in which they are read."""
