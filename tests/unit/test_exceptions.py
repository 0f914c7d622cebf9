"""Errors keep their class, message, notes and attributes wherever they are sent."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from airflow_provider_kafka_s3 import exceptions
from airflow_provider_kafka_s3.exceptions import (
    KafkaS3Error,
    KafkaUnavailableError,
    SparkJobError,
    ThrottledError,
    TopicNotFoundError,
    error_of_kind,
    message_of,
)

KINDS = {
    "access_denied",
    "batch_loss",
    "bucket_not_found",
    "catalog_unavailable",
    "conditional_conflict",
    "configuration",
    "control",
    "corrupt_control",
    "data_loss",
    "foreign_object",
    "kafka_s3",
    "kafka_unavailable",
    "key_absent",
    "log_tampered",
    "marker_missing",
    "missing_object",
    "nothing_to_replay",
    "pipeline_conflict",
    "precondition_failed",
    "range_beyond_end",
    "record",
    "registry_unavailable",
    "replay_overtaken",
    "run_superseded",
    "schema_not_found",
    "spark_job",
    "spark_timestamp",
    "store_response",
    "table_not_found",
    "table_rolled_back",
    "terminal",
    "throttled",
    "topic_not_found",
    "topic_recreated",
    "transient",
    "unknown_outcome",
    "unsupported_format",
    "unsupported_store",
    "upload_gone",
    "upload_refused",
}
"""Stored in documents: a kind is never changed or removed, new ones are added."""


def classes(base: type[KafkaS3Error] = KafkaS3Error) -> Iterator[type[KafkaS3Error]]:
    """A class of errors and all that derive from it."""
    yield base
    for derived in base.__subclasses__():
        yield from classes(derived)


EVERY = pytest.mark.parametrize("cls", list(classes()), ids=lambda cls: cls.__name__)


def test_each_class_has_a_kind_of_its_own_that_stays() -> None:
    """A stored kind means the same class for ever."""
    assert sorted(cls.kind for cls in classes()) == sorted(KINDS)
    assert {cls.__name__ for cls in classes()} <= set(exceptions.__all__)


@EVERY
def test_an_error_is_made_again_from_its_kind(cls: type[KafkaS3Error]) -> None:
    """With its class, and with its notes in its message."""
    error = cls("offsets are gone")
    error.add_note("run `kafka-s3 reset`")
    again = error_of_kind(error.kind, message_of(error))
    assert (type(again), str(again)) == (cls, "offsets are gone; run `kafka-s3 reset`")


def test_an_unknown_kind_is_a_transient_error_of_the_spark_job() -> None:
    """It was written by another version; its message is kept."""
    again = error_of_kind("of_the_future", "what happened")
    assert (type(again), str(again)) == (SparkJobError, "what happened")


@EVERY
def test_an_error_survives_pickling(cls: type[KafkaS3Error]) -> None:
    """With class, message and notes."""
    error = cls("offsets are gone")
    error.add_note("first")
    error.add_note("second")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__notes__) == (cls, "offsets are gone", ["first", "second"])


def test_attributes_of_errors_survive_pickling() -> None:
    """Each that is set on the error and not on its class."""
    absent, throttled, unavailable = TopicNotFoundError("x"), ThrottledError("x", 2.5), KafkaUnavailableError("x")
    absent.cluster_id = "lkc-1"
    unavailable.repeatable = False
    again = [pickle.loads(pickle.dumps(error)) for error in (absent, throttled, unavailable)]
    assert (again[0].cluster_id, again[1].retry_after, again[2].repeatable) == ("lkc-1", 2.5, False)
    assert str(again[1]) == "x"
