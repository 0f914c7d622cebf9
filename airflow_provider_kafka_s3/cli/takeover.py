"""``kafka-s3 takeover``: let a pipeline go on where a stopped sink of Kafka Connect has ended."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from airflow_provider_kafka_s3.cli import convert
from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command
from airflow_provider_kafka_s3.cli.output import FINDINGS, OK, Answer, Table, count
from airflow_provider_kafka_s3.config import Upload
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka.offsets import KafkaCluster
from airflow_provider_kafka_s3.kafka_connect.convert import Converted, layout_of
from airflow_provider_kafka_s3.kafka_connect.convert import convert as convert_connector
from airflow_provider_kafka_s3.maintenance.takeover import Takeover, ToMove

__all__ = ["COMMANDS", "takeover"]


def _add_options(parser: argparse.ArgumentParser) -> None:
    convert.add_options(parser)
    which = parser.add_argument_group("pipeline and topics")
    which.add_argument("--pipeline", help="name of the pipeline (default: that of the connector)")
    which.add_argument(
        "--topic", action="append", help="name of a topic; repeatable; default: the topics of the connector"
    )
    which.add_argument("--group", help="consumer group of the connector (default: connect-NAME)")
    parser.add_argument(
        "--without-offset",
        choices=("fail", "earliest"),
        default="fail",
        help="partitions with records and without a committed offset: fail, or begin at the first offset in Kafka "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--without-transforms",
        action="store_true",
        help="the connector has transforms: land its records without them from there on",
    )
    parser.add_argument(
        "--apply", action="store_true", help="record the offsets; without it nothing is written (a dry run)"
    )


def takeover(access: Access) -> Answer:
    """Print per partition where the pipeline goes on, and why; with ``--apply``, record it."""
    arguments = access.arguments
    converted = _converted(arguments)
    parameters, layout = converted.parameters, layout_of(converted.parameters)
    pipeline, topics = str(parameters["pipeline"]), [str(topic) for topic in parameters["topics"]]
    access = Access(
        argparse.Namespace(
            **vars(arguments)
            | {
                "topics_dir": layout.topics_dir,
                "pipeline": pipeline,
                "bucket": arguments.bucket or parameters["bucket"],
                "upload": arguments.upload or _upload(parameters.get("upload")),
            }
        )
    )
    name = arguments.group or converted.consumer_group
    group = KafkaCluster(access.kafka_config, retrier=access.retrier).consumer_group(name)
    of_topics = [access.topic_pipeline(topic) for topic in topics]
    # All are decided before the first one is recorded.
    isolation = cast("Any", parameters.get("isolation"))
    decided = []
    for of_topic in of_topics:
        if converted.has_markers:
            decided.append(
                of_topic.plan_takeover_by_chunks(
                    group,
                    layout,
                    isolation=isolation or "read_committed",
                    consumed=isolation or "read_uncommitted",
                    without_offset=arguments.without_offset,
                )
            )
        else:
            decided.append(
                of_topic.plan_takeover(
                    group,
                    layout,
                    isolation=isolation or "read_committed",
                    without_offset=arguments.without_offset,
                )
            )
    blocked = [move for decision in decided for move in decision.in_the_way]
    if arguments.apply:
        # Objects in the way of any topic are an error before any offset is recorded.
        for of_topic, decision in sorted(zip(of_topics, decided, strict=True), key=lambda pair: not pair[1].in_the_way):
            of_topic.take_over(decision, layout)
    lines: list[str | Table] = [f"pipeline {pipeline}, consumer group {name}"]
    for decision in decided:
        lines += _lines(decision, applied=arguments.apply)
    duplicates = [move for decision in decided for move in decision.duplicates]
    lines += _moves(
        access,
        blocked,
        f"in the way: {count(len(blocked), 'object')} past the committed offsets. The records are still in Kafka and "
        f"are landed again. Nothing is deleted here: move all of these to names that readers skip, then repeat this",
    )
    lines += _moves(
        access,
        duplicates,
        f"twice: {count(len(duplicates), 'object')} of the sink from before, whose records readers find in another "
        f"object, too, unless the topic was created again in between. Nothing is deleted here, and the takeover does "
        f"not depend on it: compare them, then move these to names that readers skip",
    )
    data = {
        "pipeline": pipeline,
        "group": name,
        "applied": bool(arguments.apply),
        "topics": [_data(decision) for decision in decided],
        "move": [_move(access, move) for move in blocked],
        "duplicates": [_move(access, move) for move in duplicates],
    }
    return Answer(data, lines, FINDINGS if blocked else OK)


def _converted(arguments: argparse.Namespace) -> Converted:
    parameters: dict[str, Any] = {}
    if arguments.pipeline:
        parameters["pipeline"] = arguments.pipeline
    if arguments.topic:
        parameters["topics"] = arguments.topic
    if arguments.bucket:
        parameters["bucket"] = arguments.bucket
    worker = None if arguments.worker_config is None else Path(arguments.worker_config)
    converted = convert_connector(convert.connector_of(arguments), worker=worker, **parameters)
    transforms = [note for note in converted.notes if note.name == "transforms" and note.use == "warning"]
    if transforms and not arguments.without_transforms:
        raise ConfigurationError(
            f"transforms: {transforms[0].text}. Objects of the sink have other records than the pipeline would land. "
            f"Nothing was changed. If readers can do with both, go on where the sink has ended: --without-transforms. "
            f"Otherwise land into another folder (topics_dir) or bucket, as a new pipeline"
        )
    if transforms and converted.routers:
        raise ConfigurationError(
            f"{', '.join(converted.routers)}: objects of the sink are in folders of other topics, so objects past the "
            f"committed offset cannot be found. Nothing was changed. Land the topic as a new pipeline, whose "
            f"starting_offsets are the committed offsets of the group {converted.consumer_group}"
        )
    return converted


def _upload(upload: Upload | None) -> str | None:
    return None if upload is None else json.dumps(msgspec.to_builtins(upload))


def _lines(one: Takeover, *, applied: bool) -> Iterator[str | Table]:
    state = "begins here already" if one.done else "begins here now" if applied else "would begin here"
    yield f"topic {one.topic}: {state}"
    rows = [
        (p.partition, p.committed, len(p.held) + len(p.in_the_way), len(p.in_the_way), p.start, p.why)
        for p in one.partitions
    ]
    head = ("partition", "committed", "objects past it", "in the way", "begins at", "why")
    yield Table(head, rows, indent=2, styles={"in the way": "warning"})
    if one.first_batch is not None:
        yield (
            f"  the first batch would land {count(one.first_batch.count, 'offset')}: {one.first_batch}"
            if one.first_batch
            else "  the first batch would land nothing: there are no later records yet"
        )


def _moves(access: Access, found: Sequence[ToMove], what: str) -> Iterator[str]:
    """The commands that move objects, behind a line about all of them."""
    if not found:
        return
    yield what
    endpoint = access.s3_access[0].endpoint_url
    options = ("--endpoint-url", endpoint) if endpoint else ()
    for move in found:
        yield f"# {move.why}"
        yield shlex.join(("aws", *options, "s3", "mv", access.store.url(move.key), access.store.url(move.move_to)))


def _move(access: Access, found: ToMove) -> dict[str, str]:
    return {"from": access.store.url(found.key), "to": access.store.url(found.move_to), "why": found.why}


def _data(one: Takeover) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "done": one.done,
        "first_batch": None if one.first_batch is None else one.first_batch.to_json(),
        "partitions": [
            {
                "partition": p.partition,
                "committed": p.committed,
                "start": p.start,
                "why": p.why,
                "held": list(p.held),
                "in_the_way": [move.key for move in p.in_the_way],
            }
            for p in one.partitions
        ],
    }


COMMANDS: Final = (
    Command(
        name="takeover",
        run=takeover,
        summary="Let a pipeline go on where a stopped connector has ended; a dry run without --apply.",
        examples=(
            "connector.json --bootstrap-server broker:9092",
            "connector.json --bootstrap-server broker:9092 --apply",
        ),
        findings="objects are in the way",
        topics=None,
        add_options=_add_options,
    ),
)
