"""``kafka-s3 infer-schema``: the schema of a topic whose values are JSON without one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Final

from airflow_provider_kafka_s3.cli.access import Access, add_kafka_options
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, Line, Table, count
from airflow_provider_kafka_s3.documents.codec import printable
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.inspect.infer_schema import InferredSchema, infer_schema
from airflow_provider_kafka_s3.inspect.json_shape import FieldEvidence

__all__ = ["COMMANDS", "infer"]

_SHOWN: Final = 60
"""Characters of a field's path in the table."""


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", required=True, help="name of the topic")
    parser.add_argument(
        "--records",
        type=int,
        default=10_000,
        metavar="N",
        help="read N records at most: half of them the oldest, half the newest of all partitions (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--logical-types",
        action="store_true",
        help="give fields whose texts all are times or decimals the logical type, in place of string",
    )
    parser.add_argument(
        "--schema-only", action="store_true", help="print the schema alone, for a file that the DAG reads"
    )
    add_kafka_options(parser)


def infer(access: Access) -> Answer:
    """Print the schema of a sample of records, and what was seen of each field."""
    arguments = access.arguments
    if arguments.records < 1:
        raise ConfigurationError(f"--records {arguments.records} must be a positive number")
    if arguments.schema_only and arguments.json:
        raise ConfigurationError("--schema-only and --json are given; use one of them")
    inferred = infer_schema(
        access.source, arguments.topic, records=arguments.records, logical_types=arguments.logical_types
    )
    text = json.dumps(inferred.schema, indent=2)
    code = FINDINGS if inferred.others else OK
    if arguments.schema_only:
        return Answer({}, code=code, raw=f"{text}\n".encode())
    return Answer(inferred.to_json(), [*text.splitlines(), "", *_evidence(inferred)], code)


def _evidence(inferred: InferredSchema) -> Iterator[str | Line | Table]:
    numbers = f"{count(inferred.documents, 'JSON object')} in {count(inferred.records, 'record')}"
    nulls = f", {count(inferred.null_values, 'null value')}" if inferred.null_values else ""
    yield f"topic {inferred.topic}: {numbers}{nulls}"
    for label, number in inferred.others.items():
        yield Line(f"  {label}: {number:,}; such records are invalid", "warning")
    head = ("field", "in", "nulls", "type", "seen")
    yield Table(head, [_row(field) for field in inferred.fields], indent=2)
    notes = [f"  {_path(field)}: {note}" for field in inferred.fields for note in _notes(field)]
    if inferred.more_fields:
        notes.append(f"  the schema has no more columns: {count(inferred.more_fields, 'value')} of others are left out")
    if notes:
        yield ""
        yield from notes


def _row(field: FieldEvidence) -> tuple[object, ...]:
    seen = ", ".join(f"{number:,} {kind}" for kind, number in field.seen.items())
    return (_path(field), _percent(field.share), field.nulls, _type(field.type), seen or None)


def _path(field: FieldEvidence) -> str:
    return printable(field.field, shown=_SHOWN)


def _percent(share: float) -> str:
    """A share that is rounded to neither all nor none."""
    if share == 1:
        return "100%"
    return f"{min(max(share * 100, 0.1), 99.9):.1f}%"


def _type(kind: object) -> str | None:
    if kind is None or isinstance(kind, str):
        return kind
    if isinstance(kind, dict) and "logicalType" in kind:
        digits = f"({kind['precision']}, {kind['scale']})" if "precision" in kind else ""
        return f"{kind['logicalType']}{digits}"
    if isinstance(kind, dict):
        return f"{kind['type']} of {_type(kind.get('items', kind.get('values')))}"
    assert isinstance(kind, list), "a union"
    return " | ".join(str(_type(branch)) for branch in kind)


def _notes(field: FieldEvidence) -> Iterator[str]:
    yield from field.notes
    if field.offer is not None:
        yield f"instead of string, the schema may have {json.dumps(['null', field.offer])}"


COMMANDS: Final = (
    Command(
        name="infer-schema",
        run=infer,
        summary="Print the schema of JSON values without one, from a sample of a topic's records.",
        examples=(
            "--topic orders --bootstrap-server broker:9092",
            "--topic orders --records 1000 --schema-only",
        ),
        findings="some values are no JSON objects",
        topics=None,
        has_store=False,
        add_options=_add_options,
    ),
)
