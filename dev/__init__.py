"""Starters of the real parts for development: Kafka, S3, and the demo. Not part of the installed package."""
