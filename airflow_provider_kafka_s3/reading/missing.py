"""The error for an object of a snapshot that is gone: where its rows are, or how it comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_kafka_s3.batch.expiry import expired_objects
from airflow_provider_kafka_s3.batch.given_away import GivenAway, rows_in_table
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.remedies import RESTORE_RUN
from airflow_provider_kafka_s3.documents.addresses import TopicAddress, owner_key
from airflow_provider_kafka_s3.documents.owner import read_owner
from airflow_provider_kafka_s3.exceptions import MissingObjectError

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.reading.snapshot_objects import SnapshotObject
    from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["missing_object"]


def missing_object(store: DurableStore, one: SnapshotObject) -> MissingObjectError:
    """The error for an object that is gone.

    Args:
        store: its bucket.
        one: the object.
    """
    where = f"object {one.url} of topic {one.topic!r}, batch {one.batch}, is gone"
    topics_dir = one.layout.topics_dir
    owner = read_owner(store, owner_key(topics_dir, one.topic), topics_dir=topics_dir)
    if owner is not None:
        address = TopicAddress(topics_dir=topics_dir, pipeline=owner[0].pipeline, topic=one.topic)
        log = TopicLog(store, address)
        if expired_objects(log).has(one.batch, one.entry):
            return MissingObjectError(
                f"{where}: it was deleted on purpose (docs/expiry.md) since this snapshot was opened. Open "
                f"another one, or read the pipeline that has its records"
            )
        if (table := GivenAway(log).table(log.require_plan(one.batch)[0], one.key)) is not None:
            return MissingObjectError(f"{where}. {rows_in_table(table)}")
    return MissingObjectError(
        f"{where}. Write it again by {RESTORE_RUN}, or accept that it is gone, by the command that a run "
        f"with action='verify' prints"
    )
