"""Execute a plan without Spark: this process reads the records with librdkafka, a few slices at a time.

It encodes the slices with the same function as the Spark job, so names and bytes are the same. It may run at the same
time as a job: one of them decides.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.dead_letter_limit import DeadLetterLimit
from airflow_provider_kafka_s3.batch.encode import too_many_objects, write_slices
from airflow_provider_kafka_s3.batch.incarnation import require_topic_id, topic_id_of
from airflow_provider_kafka_s3.batch.source import source_of_plan
from airflow_provider_kafka_s3.documents.manifest import MAX_OBJECTS, Manifest, SliceRows
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ConfigurationError, DataLossError, RecordError
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.progress import progress
from airflow_provider_kafka_s3.storage.uploads import UploadPool

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["execute_plan"]

log = logging.getLogger(__name__)

_THREADS: Final = 4
"""Slices read at the same time."""


def execute_plan(
    committer: Committer,
    plan: Plan,
    *,
    run: str,
    on_data_loss: Literal["fail", "skip"] = "fail",
    max_dead_letters: DeadLetterLimit | None = None,
) -> Manifest:
    """Read a plan's slices, upload their objects, decide, and apply the stored decision.

    Args:
        committer: decides and completes the batches of the topic.
        plan: that is not decided yet.
        run: key of the run that executes.
        on_data_loss: policy for offsets that are gone: ``skip`` abandons the batch, and the rest is planned again.
        max_dead_letters: limit of the batch; None: no limit.

    Raises:
        DataLossError: offsets are gone and ``on_data_loss`` is ``fail``; nothing was decided.
        RecordError: a record cannot be written as planned; nothing was decided.
    """
    if plan.layout is None:
        raise ConfigurationError(f"batch {plan.batch} of topic {plan.topic!r} is a {plan.type}: it has no records")
    layout, store, source = plan.layout, committer.store, source_of_plan(committer.source, plan)
    done: list[SliceRows] = []

    def records(s: Slice) -> Iterator[pa.RecordBatch]:
        for batch in source.read(plan.topic, s.partition, s.start, s.end, plan.isolation, whole=layout.whole_records):
            yield batch
            advance(batch.num_rows)

    def read(slices: Sequence[Slice]) -> None:
        with UploadPool(store, part_size=layout.part_size, tags=layout.tags.own_tags) as pool:
            try:
                done.extend(
                    write_slices(
                        plan,
                        slices,
                        records,
                        pool.open,
                        max_dead_letters=max_dead_letters,
                        schemas=committer.schemas,
                    )
                )
            except BaseException:
                pool.abort_all()
                raise
        log.info(
            "topic %s: batch %d: %d of %s read", plan.topic, plan.batch, len(done), count(len(plan.slices), "slice")
        )

    try:
        require_topic_id(committer.source, committer.log, topic_id_of(committer.log, plan))
        operation = f"topic {plan.topic}: batch {plan.batch}"
        with progress(operation, total=plan.read.count, unit="record") as advance:
            in_threads(read, plan.grouped, threads=_THREADS)
        if (number := sum(len(rows.objects) for rows in done)) > MAX_OBJECTS:
            raise too_many_objects(plan, f"{number:,}")
    except BaseException as e:
        # Nothing was decided, and no other process has the ids of these uploads.
        store.abort_uploads([(entry.key, entry.upload_id) for rows in done for entry in rows.objects])
        if isinstance(e, RecordError | ConfigurationError) and not isinstance(e, AccessDeniedError):
            e.add_note(committer.log.remedies.abandon_or_leave_out(plan.batch))
        if not isinstance(e, DataLossError):
            raise
        if on_data_loss == "fail":
            e.add_note(committer.log.remedies.skip_gap(plan.batch))
            raise
        log.warning("%s; the batch is abandoned, and its remaining offsets are planned again", e)
        decision = committer.abandon(plan, release="debt", reason=str(e), operator="on_data_loss=skip", run=run)
    else:
        decision = committer.decide(plan, done, run=run, max_dead_letters=max_dead_letters)
    committer.carry_out(plan, decision)
    return decision
