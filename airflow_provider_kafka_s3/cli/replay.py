"""The command ``kafka-s3 replay``."""

from __future__ import annotations

import argparse
import base64
from typing import Final, get_args

from airflow_provider_kafka_s3.batch.location import TopicLocation
from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.output import Answer
from airflow_provider_kafka_s3.documents.notation import parse_offsets
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.times import parse_time

__all__ = ["COMMANDS", "replay"]

_MISSING = ("key", "headers", "timestamp", "order", "bytes", "nulls", "lost", "gaps")
_WRITERS = ("confluent", "deviantart")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", required=True, metavar="TOPIC", help="topic of the named Kafka cluster, which exists")
    parser.add_argument(
        "--id", required=True, help="id of the replay; with the id of one that was interrupted, it continues"
    )
    parser.add_argument("--at", type=int, metavar="BATCH", help="what was landed up to this batch (default: all)")
    parser.add_argument("--since", metavar="TIME", help="records at or after this time, such as 2026-01-01T00:00:00Z")
    parser.add_argument("--until", metavar="TIME", help="records before this time")
    parser.add_argument("--offsets", help="only these offsets, as PARTITION:START-END[,…], the end excluded")
    parser.add_argument("--partition", type=int, action="append", help="only this Kafka partition; repeatable")
    parser.add_argument("--key", help="only records with this key, a text in UTF-8")
    parser.add_argument(
        "--key-base64", metavar="TEXT", help="only records with this key, bytes in base64, as `cat` prints them"
    )
    parser.add_argument("--generation", type=int, metavar="N", help="records landed after N resets of the topic")
    parser.add_argument(
        "--without",
        action="append",
        choices=_MISSING,
        default=[],
        help="send records although this is not kept; repeatable. Without it, the command ends before anything is sent",
    )
    parser.add_argument("--same-topic", action="store_true", help="allow the topic that was landed as target")
    parser.add_argument(
        "--by-key-hash", action="store_true", help="the hash of the key chooses the partition, as producers do"
    )
    parser.add_argument(
        "--written-by",
        choices=_WRITERS,
        help="the objects below --topics-dir are those of this S3 sink, which has stopped; --pipeline is where the "
        "documents of the replay are",
    )
    parser.add_argument(
        "--folder",
        action="append",
        default=[],
        help="with --written-by: only objects in this folder, such as year=2026/month=01; repeatable",
    )
    parser.add_argument("--rate", type=float, metavar="N", help="send N records per second at most")


def replay(access: Access) -> Answer:
    """Send landed records to a topic, each once."""
    from airflow_provider_kafka_s3.replay.request import Missing, ReplayRequest, Writer
    from airflow_provider_kafka_s3.replay.run import replay as run

    assert (get_args(Missing), get_args(Writer)) == (_MISSING, _WRITERS), "the options are those of the request"
    arguments = access.arguments
    topic = access.topic_pipeline(arguments.topic)
    if arguments.written_by is None:
        topic.require_landed()
    settings, credentials = access.s3_access
    place = TopicLocation(access.bucket, topic.log.address, settings, credentials, access.options)
    request = ReplayRequest(
        replay=arguments.id,
        target=arguments.to,
        at=arguments.at,
        since=None if arguments.since is None else parse_time("--since ", arguments.since),
        until=None if arguments.until is None else parse_time("--until ", arguments.until),
        offsets=_offsets(arguments.offsets),
        partitions=None if arguments.partition is None else tuple(arguments.partition),
        key=_key(arguments.key, arguments.key_base64),
        generation=arguments.generation,
        without=tuple(arguments.without),
        same_topic=arguments.same_topic,
        keeps_partitions=not arguments.by_key_hash,
        records_per_second=arguments.rate,
        written_by=arguments.written_by,
        folders=tuple(arguments.folder),
    )
    done = run(place, access.kafka_config, request, dry_run=arguments.dry_run)
    until = f", up to batch {done.batch}," if arguments.written_by is None else ""
    label = f"replay {done.replay} of topic {topic.log.topic}{until} to topic {done.target}"
    if arguments.dry_run:
        known = [n for n in done.planned.values() if n is not None]
        total = count(sum(known), "record") if len(known) == len(done.planned) else "an unknown number of records"
        lines = [f"{label}: {total} in its objects would be read; nothing was sent"]
        lines += [f"  partition {p}: {'not known' if n is None else f'{n:,}'}" for p, n in done.planned.items()]
    else:
        lines = [f"{label}: {count(sum(done.sent.values()), 'record')} sent"]
        lines += [f"  partition {p}: {n:,}" for p, n in sorted(done.sent.items())]
    lines += [f"  of some records, {note}" for note in done.notes]
    lines += [
        f"  partition {p} of the target has an open transaction: consumers of committed records read nothing from "
        f"offset {o} on"
        for p, o in sorted(done.last_stable_offsets.items())
    ]
    return Answer(
        {
            "replay": done.replay,
            "target": done.target,
            "batch": done.batch,
            "planned": {str(p): n for p, n in done.planned.items()},
            "sent": {str(p): n for p, n in sorted(done.sent.items())},
            "notes": [*done.notes],
            "last_stable_offsets": {str(p): offset for p, offset in sorted(done.last_stable_offsets.items())},
        },
        lines,
    )


def _offsets(given: str | None) -> dict[int, tuple[int, int]] | None:
    if given is None:
        return None
    offsets = parse_offsets(given)
    if several := [p for p, ranges in offsets.items() if len(ranges) > 1]:
        raise ConfigurationError(f"--offsets {given}: partition {several[0]} has several ranges; use a replay for each")
    return {partition: ranges[0] for partition, ranges in offsets.items()}


def _key(text: str | None, base64_text: str | None) -> bytes | None:
    if base64_text is None:
        return None if text is None else text.encode()
    if text is not None:
        raise ConfigurationError("--key and --key-base64 are given; use one of them")
    try:
        return base64.b64decode(base64_text, validate=True)
    except ValueError as e:
        raise ConfigurationError(f"--key-base64 {base64_text!r} is no base64 ({e})") from e


COMMANDS: Final = (
    Command(
        name="replay",
        run=replay,
        summary="Send landed records to a topic of Kafka, each once.",
        examples=(
            "--bucket lake --pipeline orders --topic orders --to again --id monday --dry-run",
            "--bucket lake --pipeline orders --topic orders --to again --id monday --since 2026-01-05T00:00Z",
        ),
        add_options=_add_options,
    ),
)
