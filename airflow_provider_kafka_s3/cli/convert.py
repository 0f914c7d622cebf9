"""``kafka-s3 convert``: the DAG with the operator that replaces a connector of Kafka Connect, as a Python file."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.output import Answer
from airflow_provider_kafka_s3.kafka_connect.call import dag_file, python_call
from airflow_provider_kafka_s3.kafka_connect.convert import Converted
from airflow_provider_kafka_s3.kafka_connect.convert import convert as convert_connector
from airflow_provider_kafka_s3.kafka_connect.settings import Use

__all__ = ["COMMANDS", "add_options", "connector_of", "convert"]

_WIDTH: Final = 110
_HEADINGS: Final[dict[Use, str]] = {
    "warning": "WARNING: settings that are not converted:",
    "parameter": "Settings that are parameters:",
    "connection": "Settings that belong into Airflow connections:",
    "none": "Settings without a meaning here:",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the files of the connector and its worker."""
    parser.add_argument(
        "connector", metavar="FILE", help="configuration of the connector, JSON or properties; - is the standard input"
    )
    parser.add_argument(
        "--worker-config",
        metavar="FILE",
        help="configuration of the worker: its converters apply to a connector without its own",
    )


def convert(access: Access) -> Answer:
    """The file of a DAG, with what became of each setting as comments."""
    arguments = access.arguments
    worker = None if arguments.worker_config is None else Path(arguments.worker_config)
    converted = convert_connector(connector_of(arguments), worker=worker)
    pipeline = converted.parameters["pipeline"]
    file = dag_file(converted.parameters, f"It replaces the connector {pipeline!r} of Kafka Connect.")
    return Answer(
        {
            "dag_file": file,
            "call": python_call(converted.parameters),
            "connections": converted.connections,
            "settings": [asdict(note) for note in converted.notes],
        },
        [*file.splitlines(), *_comments(converted)],
    )


def connector_of(arguments: argparse.Namespace) -> str | Path:
    """The configuration of the connector: the standard input, or the path of a file."""
    return sys.stdin.read() if arguments.connector == "-" else Path(arguments.connector)


def _comments(converted: Converted) -> Iterator[str]:
    yield from ("", "# What is known of the connections, without secrets:")
    for parameter, connection in converted.connections.items():
        yield from _wrapped(f"{parameter}: {json.dumps(connection)}")
    for use, heading in _HEADINGS.items():
        notes = [note for note in converted.notes if note.use == use]
        if notes:
            yield from ("#", f"# {heading}")
        for note in notes:
            yield from _wrapped(f"{note.name}: {note.text}")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="#   ", subsequent_indent="#     ", break_on_hyphens=False)


COMMANDS: Final = (
    Command(
        name="convert",
        run=convert,
        summary="Print the DAG that replaces a connector: Confluent's or DeviantArt's S3 sink of Kafka Connect.",
        examples=(
            "connector.json",
            "connector.json --worker-config worker.properties",
        ),
        topics=None,
        has_store=False,
        add_options=add_options,
    ),
)
