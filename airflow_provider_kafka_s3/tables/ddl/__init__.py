"""Statements that make a table of a topic in other engines: one model of the table, and a module for each dialect."""

from __future__ import annotations

from airflow_provider_kafka_s3.tables.ddl.dead_letters import dead_letters_table
from airflow_provider_kafka_s3.tables.ddl.landing import landed_table
from airflow_provider_kafka_s3.tables.ddl.model import LandedTable, Script, TableName
from airflow_provider_kafka_s3.tables.ddl.registry import DIALECTS

__all__ = ["DIALECTS", "LandedTable", "Script", "TableName", "dead_letters_table", "landed_table"]
