"""Schemas of keys and values. Whatever declares one, it is kept as an Avro schema."""
