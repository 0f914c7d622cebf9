"""Kafka: offsets of topics, records between two offsets, and the options of Spark's Kafka source."""
