"""Helpers for tests, shipped so that users can test their own pipelines.

:mod:`~airflow_provider_kafka_s3.testing.invariants` checks a real bucket, on any store. ``kafka`` and ``stores``
simulate a cluster, and faults between a process and its bucket. The rest of the package does not import this package.
"""
