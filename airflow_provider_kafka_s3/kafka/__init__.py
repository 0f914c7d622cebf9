"""Kafka: which offsets there are, the records between two of them, and what Spark must be told to read them itself."""
