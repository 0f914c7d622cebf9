"""No upload of a complete batch is left, so a late request cannot bring an object back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, CONTENT_METADATA, CRC32_METADATA
from airflow_provider_kafka_s3.exceptions import UnknownOutcomeError
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import Part
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import TOPIC, Engine, check_landed


class Silent(FaultyStore):
    """A store that gives no usable answer to Complete, and completes nothing."""

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        raise UnknownOutcomeError("500")


@pytest.mark.parametrize("store", [FaultyStore, Silent], ids=["412", "5xx"])
def test_an_upload_beside_its_object_is_aborted_before_the_batch_is_complete(store: type[FaultyStore]) -> None:
    """A late Complete finds no upload, so an object that a user deleted stays deleted.

    One driver sent its Complete and died. Another wrote the object again from Kafka and died, so upload and object are
    there together. A third one ends the batch, whatever Complete answers it.
    """
    kafka, bucket = SimulatedKafka(), MemoryStore()
    kafka.create_topic(TOPIC)
    for i in range(3):
        kafka.append(TOPIC, 0, b"%d" % i, timestamp=0)
    first = FaultyStore(bucket)
    first.inject(Fault.LATE, operation="complete_upload")
    first.inject(Fault.CRASH_AFTER, operation="head", key="*.bin")
    with pytest.raises(SimulatedCrash):
        Engine(first, kafka).run("first")
    log = Engine(bucket, kafka).log
    decision = log.read_manifest(1)
    assert decision is not None
    entry = decision.objects[0]
    again = {BATCH_METADATA: "1", CONTENT_METADATA: entry.content, CRC32_METADATA: entry.crc32}
    bucket.put_new(entry.key, b"0\n1\n2\n", metadata=again)
    assert bucket.upload_exists(entry.key, entry.upload_id)

    Engine(store(bucket), kafka).committer.carry_out(log.require_plan(1)[0], decision)
    check_landed(bucket, kafka, recovered=True, complete=True)
    bucket.delete(entry.key)
    assert first.apply_late() == 0
    assert bucket.head(entry.key) is None
