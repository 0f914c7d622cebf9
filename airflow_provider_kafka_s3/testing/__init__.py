"""Helpers for tests, shipped so that a pipeline can be proven where it runs.

:mod:`~airflow_provider_kafka_s3.testing.invariants` checks a real bucket, on any store; ``kafka`` and ``stores`` stand
in for a cluster and for everything that can go wrong between a process and its bucket. Nothing of the package imports
this room.
"""
