"""Read-only views of a topic: status, lag, and verification of landed objects."""
