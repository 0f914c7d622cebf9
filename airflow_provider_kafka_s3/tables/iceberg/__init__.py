"""Iceberg tables that have each committed object of a topic once."""
