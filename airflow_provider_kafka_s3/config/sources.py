"""Where the records of a pipeline come from, if not from Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_kafka_s3.config.values import Value, make_value

__all__ = ["Landed", "parse_source"]


class Landed(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The objects of another pipeline in the same bucket, in place of Kafka.

    Attributes:
        pipeline: its name.
        topics_dir: prefix of its keys, without slashes at its ends. A topic has one pipeline per prefix, so it is
            another prefix than that of the pipeline that reads.
    """

    pipeline: str
    topics_dir: str = "topics"


def parse_source(given: Landed | Mapping[str, Any] | None) -> Landed | None:
    """A source, or a mapping of its fields; None: Kafka.

    Raises:
        ConfigurationError: it is anything else.
    """
    return None if given is None else make_value("source", (Landed,), given)
