"""The object store: the port, and what implements it."""
