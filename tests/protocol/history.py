"""The documents and objects of many batches, created directly instead of by landing each batch."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, NONCE_METADATA
from airflow_provider_kafka_s3.config import Layout, RawBytes
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.codec import Document, encode
from airflow_provider_kafka_s3.documents.log_index import INDEX_SIZES, IndexedBatch, LogIndex, indexed_batch
from airflow_provider_kafka_s3.documents.manifest import ContentHash, Manifest, ObjectEntry, SliceResult
from airflow_provider_kafka_s3.documents.marker import Marker, PartitionState
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.owner import Owner
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.topic_summary import Activity, LastBatch, TopicSummary
from airflow_provider_kafka_s3.layout import keys
from tests.plans import data_plan, slices_of

__all__ = ["RECORD", "batch_of", "checksum_of", "documents_of", "indexes_of", "marker_of", "summary_of"]

RECORD = b"x"
"""Value of every record."""


def checksum_of(document: Document) -> str:
    """The checksum under which a document without a stamp is stored."""
    return str(json.loads(encode(document, {}))["sha256"])


def batch_of(
    number: int,
    claim: Offsets,
    *,
    topic: str,
    topic_id: str,
    layout: Layout | None = None,
    objects: int = 1,
    times: tuple[int, int] = (-1, -1),
) -> tuple[Plan, Manifest, list[tuple[str, bytes, dict[str, str]]]]:
    """A committed batch: its plan, its decision, and its objects as (key, body, metadata).

    Args:
        number: of the batch.
        claim: offsets of one partition, one slice; each has a record.
        topic: name of the topic.
        topic_id: incarnation of the topic.
        layout: None: raw bytes below ``topics``.
        objects: number of objects, with equal numbers of records.
        times: lowest and highest timestamp of each object; -1: unknown.
    """
    layout = layout or Layout(format=RawBytes())
    ((partition, ((start, end),)),) = claim.items()
    plan = data_plan(
        layout, slices_of((partition, start, end)), batch=number, topic=topic, topic_id=topic_id, run=f"run {number}"
    )
    entries, bodies = [], []
    for i in range(objects):
        first, last = start + (end - start) * i // objects, start + (end - start) * (i + 1) // objects - 1
        body = (RECORD + b"\n") * (last - first + 1)
        content = ContentHash(topic_id, partition)
        content.update(range(first, last + 1))
        entry = ObjectEntry(
            key=keys.data_key(
                layout,
                topic=topic,
                encoded_partition=f"parity={i % 2}",
                partition=partition,
                first_offset=first,
                generation=0,
            ),
            slices=(0,),
            nonce=f"{number}-{i}",
            upload_id=f"{number}-{i}-gone",
            parts=(('"d41d8cd98f00b204e9800998ecf8427e"', "AAAAAA=="),),
            checksum_algorithm="CRC32",
            size=len(body),
            crc32=f"{zlib.crc32(body):08x}",
            content=content.hexdigest(),
            records=last - first + 1,
            min_offset=first,
            max_offset=last,
            min_timestamp=times[0],
            max_timestamp=times[1],
        )
        entries.append(entry)
        bodies.append((entry.key, body, {BATCH_METADATA: str(number), NONCE_METADATA: entry.nonce}))
    decision = Manifest(
        batch=number,
        plan_sha256=checksum_of(plan),
        status="commit",
        run=plan.run,
        slices=(SliceResult(id=0, records=end - start, ignored=0, next_offset=end),),
        objects=tuple(entries),
    )
    return plan, decision, bodies


def documents_of(
    batches: int,
    *,
    prefix: str,
    topics_dir: str,
    pipeline: str,
    topic: str,
    topic_id: str,
    indexed: bool = False,
    **options: Any,
) -> list[tuple[str, bytes, dict[str, str]]]:
    """The content of a bucket after a number of batches of two records each: (key, body, metadata).

    Args:
        batches: number of batches.
        prefix: of the control documents.
        topics_dir: of the pipeline.
        pipeline: its name.
        topic: name of the topic.
        topic_id: incarnation of the topic.
        indexed: whether the log has its indexes.
        options: further arguments of :func:`batch_of`.
    """
    stored: list[tuple[str, bytes, dict[str, str]]] = []
    found: list[IndexedBatch] = []
    for n in range(1, batches + 1):
        claim = Offsets({0: [(2 * n - 2, 2 * n)]})
        plan, decision, objects = batch_of(n, claim, topic=topic, topic_id=topic_id, **options)
        stored += [
            *objects,
            (addresses.plan_key(prefix, n), encode(plan, {}), {}),
            (addresses.manifest_key(prefix, n), encode(decision, {}), {}),
        ]
        sums = decision.plan_sha256, checksum_of(decision) if indexed else decision.plan_sha256
        found.append(indexed_batch(plan, sums[0], decision, sums[1], same_layout_as=n))
    stored += [
        (addresses.index_key(prefix, i.first, len(i.batches)), encode(i, {}), {})
        for i in indexes_of(topic, found if indexed else [])
    ]
    marker = marker_of(batches, topic=topic, topic_id=topic_id)
    address = TopicAddress(topics_dir=topics_dir, pipeline=pipeline, topic=topic)
    summary = summary_of(address, marker, found)
    return [
        *stored,
        (addresses.owner_key(topics_dir, topic), encode(Owner(pipeline=pipeline, topic=topic), {}), {}),
        (addresses.marker_key(prefix), encode(marker, {}), {}),
        (addresses.summary_key(address), encode(summary, {}), {}),
    ]


def summary_of(address: TopicAddress, marker: Marker, batches: Sequence[IndexedBatch]) -> TopicSummary:
    """The summary of a topic with some of its batches, whose plans have no stamp."""
    last = None
    if batches:
        last = LastBatch(
            batch=batches[-1].batch,
            plan_sha256=batches[-1].plan_sha256,
            claimed=batches[-1].claimed.count,
            objects=batches[-1].objects,
            size=batches[-1].size,
            planned_by="unknown at unknown",
            dag_id="",
        )
    return TopicSummary(
        pipeline=address.pipeline,
        topic=address.topic,
        marker=marker,
        activity=Activity().plus(batches),
        last=last,
        amended=(),
    )


def indexes_of(topic: str, batches: Sequence[IndexedBatch]) -> list[LogIndex]:
    """The indexes of these batches, from the first one on, which all have the same layout."""
    return [
        LogIndex(
            topic=topic,
            first=at + 1,
            batches=tuple(msgspec.structs.replace(b, same_layout_as=at + 1) for b in batches[at : at + size]),
        )
        for size in INDEX_SIZES
        for at in range(0, len(batches) - size + 1, size)
    ]


def marker_of(batches: int, *, topic: str, topic_id: str, every: int = 1) -> Marker:
    """The marker after a number of batches of two records each.

    Args:
        batches: number of batches.
        topic: name of the topic.
        topic_id: incarnation of the topic.
        every: only each n-th window of two records was landed; 1: without gaps.
    """
    covered = [(2 * every * n, 2 * every * n + 2) for n in range(batches)] if every > 1 else [(0, 2 * batches)]
    return Marker(
        topic=topic,
        cluster_id="simulated",
        topic_id=topic_id,
        start={0: 0},
        revision=batches,
        resolved=((1, batches + 1),) if batches else (),
        partitions={0: PartitionState(covered=Offsets({0: covered})[0])} if batches else {},
    )
