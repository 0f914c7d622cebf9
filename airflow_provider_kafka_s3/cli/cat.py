"""The command ``kafka-s3 cat``."""

from __future__ import annotations

import argparse
import json
import logging
from typing import Final

from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.output import Answer
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.messages import count

__all__ = ["COMMANDS", "cat"]

log = logging.getLogger(__name__)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partition", type=int, required=True, help="Kafka partition of the records")
    parser.add_argument("--offset", type=int, required=True, help="offset of the first record")
    parser.add_argument(
        "--records", type=int, default=1, metavar="N", help="print N records at most (default: %(default)s)"
    )
    parser.add_argument(
        "--generation", type=int, metavar="N", help="records landed after N resets of the topic (default: the latest)"
    )
    parser.add_argument(
        "--whole-block",
        action="store_true",
        help="if it is not known which record has the offset, print all of the block or the object that has it",
    )
    parser.add_argument(
        "--raw", action="store_true", help="print the bytes of each record in its object, and a newline behind them"
    )


def cat(access: Access) -> Answer:
    """Print landed records from an offset on."""
    from airflow_provider_kafka_s3.reading.seek import seek

    arguments = access.arguments
    if arguments.records < 1:
        raise ConfigurationError(f"--records {arguments.records} must be a positive number")
    if arguments.raw and arguments.json:
        raise ConfigurationError("--raw and --json are given; use one of them")
    topic = access.landed_topic()
    records = seek(
        topic.log,
        arguments.partition,
        arguments.offset,
        records=arguments.records,
        whole_block=arguments.whole_block,
        generation=arguments.generation,
    )
    where = f"topic {topic.log.topic}, partition {arguments.partition}"
    if not records:
        log.warning("%s: no record is landed from offset %d on", where, arguments.offset)
    elif records[0].offset not in (arguments.offset, None):
        log.warning("%s: there is no record at offset %d; the next one is below", where, arguments.offset)
    for part in sorted({part for record in records for part in record.lost}):
        number = sum(part in record.lost for record in records)
        log.warning("%s: the object with the %s of %s below was accepted as lost", where, part, count(number, "record"))
    lines = [record.line() for record in records]
    raw = b"".join(record.raw + b"\n" for record in records) if arguments.raw else None
    return Answer({"records": [json.loads(line) for line in lines]}, lines, raw=raw)


COMMANDS: Final = (
    Command(
        name="cat",
        run=cat,
        summary="Print landed records from an offset on.",
        examples=(
            "--bucket lake --pipeline orders --topic orders --partition 0 --offset 2",
            "--bucket lake --pipeline orders --topic orders --partition 0 --offset 2 --records 3 --raw",
        ),
        has_dry_run=False,
        add_options=_add_options,
    ),
)
