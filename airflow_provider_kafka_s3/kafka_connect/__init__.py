"""Configurations of Kafka Connect's S3 sink as parameters of the operator."""
