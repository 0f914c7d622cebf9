"""Schemas of a registry with Confluent's API."""
