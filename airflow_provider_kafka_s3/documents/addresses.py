"""Addresses of control documents, below ``<topics_dir>/_kafka_s3/``, where no data object is.

No given name (topic, pipeline, run) can move an address out of that folder, or to the one of another document.
"""

from __future__ import annotations

import hashlib
import json
import re
import urllib.parse
from typing import Final

import msgspec

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.keys import CONTROL_DIR, below, validate_topic
from airflow_provider_kafka_s3.storage.port import check_key

__all__ = [
    "TopicAddress",
    "amend_key",
    "batches_prefix",
    "control_prefix",
    "encode_part",
    "expiry_key",
    "index_key",
    "indexes_prefix",
    "manifest_key",
    "marker_key",
    "owner_key",
    "owners_prefix",
    "plan_key",
    "probe_key",
    "replay_key",
    "run_key",
    "run_name",
    "schema_key",
    "schemas_prefix",
    "set_aside_key",
    "summaries_prefix",
    "summary_key",
    "table_key",
    "tables_prefix",
    "topic_of_summary",
    "validate_pipeline",
    "validate_replay",
]

_PIPELINE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# Bytes below a control prefix: the longest name is runs/<run>.json.
_CONTROL_NAME_BYTES: Final = 256
_READABLE_RUN: Final = 120


class TopicAddress(msgspec.Struct, frozen=True, kw_only=True, order=True, forbid_unknown_fields=True):
    """One topic of a pipeline in a bucket.

    Attributes:
        topics_dir: prefix of all keys of the pipeline, without slashes at its ends; may be empty.
        pipeline: name of the pipeline.
        topic: name of the topic.
    """

    topics_dir: str
    pipeline: str
    topic: str

    @property
    def prefix(self) -> str:
        """See :func:`control_prefix`."""
        return control_prefix(self.topics_dir, self.pipeline, self.topic)

    @property
    def owner_key(self) -> str:
        """See :func:`owner_key`."""
        return owner_key(self.topics_dir, self.topic)


def control_prefix(topics_dir: str, pipeline: str, topic: str) -> str:
    """The prefix of the control documents of one topic of a pipeline; ends with ``/``.

    Raises:
        ConfigurationError: a name is illegal, or the documents' keys would be too long.
    """
    prefix = f"{_control_root(topics_dir)}{validate_pipeline(pipeline)}/{validate_topic(topic)}/"
    return check_key(prefix, spare=_CONTROL_NAME_BYTES)


def owner_key(topics_dir: str, topic: str) -> str:
    """The document with the pipeline that lands a topic under ``topics_dir``; no pipeline can be named ``_owners``."""
    return check_key(f"{owners_prefix(topics_dir)}{validate_topic(topic)}.json")


def owners_prefix(topics_dir: str) -> str:
    """The prefix of :func:`owner_key`; ends with ``/``."""
    return f"{_control_root(topics_dir)}_owners/"


def probe_key(topics_dir: str) -> str:
    """The object of the checks of ``kafka-s3 doctor``; no pipeline can be named ``_doctor``."""
    return check_key(f"{_control_root(topics_dir)}_doctor/probe.json")


def summary_key(address: TopicAddress) -> str:
    """The summary of a topic; no pipeline can be named ``_summaries``."""
    pipeline, topic = validate_pipeline(address.pipeline), validate_topic(address.topic)
    return check_key(f"{summaries_prefix(address.topics_dir)}{pipeline}/{topic}.json")


def summaries_prefix(topics_dir: str) -> str:
    """The prefix of :func:`summary_key`; ends with ``/``."""
    return f"{_control_root(topics_dir)}_summaries/"


def topic_of_summary(key: str, topics_dir: str) -> TopicAddress | None:
    """The topic whose :func:`summary_key` a key is; None: it is no such key."""
    pipeline, _, name = key.removeprefix(summaries_prefix(topics_dir)).partition("/")
    address = TopicAddress(topics_dir=topics_dir, pipeline=pipeline, topic=name.removesuffix(".json"))
    try:
        return address if summary_key(address) == key else None
    except ConfigurationError:
        return None


def marker_key(prefix: str) -> str:
    """The marker, below a :func:`control_prefix`: the only document that is replaced and that the protocol reads."""
    return f"{prefix}marker.json"


def batches_prefix(prefix: str) -> str:
    """The prefix of the documents of batches, below a :func:`control_prefix`; ends with ``/``."""
    return f"{prefix}batches/"


def plan_key(prefix: str, batch: int) -> str:
    """The plan of a batch, below a :func:`control_prefix`."""
    return f"{batches_prefix(prefix)}{batch:010d}.plan.json"


def manifest_key(prefix: str, batch: int) -> str:
    """The decision about a batch, below a :func:`control_prefix`."""
    return f"{batches_prefix(prefix)}{batch:010d}.manifest.json"


def indexes_prefix(prefix: str) -> str:
    """The prefix of :func:`index_key`; ends with ``/``."""
    return f"{prefix}index/"


def index_key(prefix: str, first: int, count: int) -> str:
    """The index of ``count`` batches from ``first`` on, below a :func:`control_prefix`."""
    return f"{indexes_prefix(prefix)}{first:010d}-{first + count - 1:010d}.json"


def amend_key(prefix: str, batch: int, number: int) -> str:
    """The ``number``-th amend of a batch, from 1, below a :func:`control_prefix`."""
    return f"{batches_prefix(prefix)}{batch:010d}.amend.{number}.json"


def run_key(prefix: str, run: str) -> str:
    """The record of a run, below a :func:`control_prefix`; ``run`` may be any text, see :func:`run_name`."""
    return check_key(f"{prefix}runs/{encode_part(run)}.json")


def run_name(*, dag_id: str, task_id: str, run_id: str, map_index: int = -1) -> str:
    """The name of a run of a task, the same for all its tries.

    The first part is readable and need not be unique; the SHA-256 behind it is.
    """
    identity = json.dumps([dag_id, task_id, run_id, map_index], separators=(",", ":"))
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", f"{dag_id}.{task_id}.{run_id}")[:_READABLE_RUN]
    return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()}"


def schema_key(prefix: str, schema_id: int) -> str:
    """The schema that records with this id are decoded with, below a :func:`control_prefix`."""
    return f"{schemas_prefix(prefix)}{schema_id}.json"


def schemas_prefix(prefix: str) -> str:
    """The prefix of :func:`schema_key`; ends with ``/``."""
    return f"{prefix}schemas/"


def replay_key(prefix: str, replay: str, name: str) -> str:
    """A document of a replay into Kafka, below a :func:`control_prefix`; ``replay`` is a valid id."""
    return check_key(f"{prefix}replays/{validate_replay(replay)}/{name}.json")


def table_key(prefix: str, table: str) -> str:
    """The document of a table that owns objects of the topic, below a :func:`control_prefix`."""
    return check_key(f"{tables_prefix(prefix)}{encode_part(table)}.json")


def tables_prefix(prefix: str) -> str:
    """The prefix of :func:`table_key`; ends with ``/``."""
    return f"{prefix}tables/"


def expiry_key(prefix: str) -> str:
    """The document of the objects that were deleted on purpose, below a :func:`control_prefix`."""
    return f"{prefix}expiry.json"


def set_aside_key(prefix: str, key: str) -> str:
    """Where an object of other software may be moved, so that readers skip it, below a :func:`control_prefix`."""
    return check_key(f"{prefix}set_aside/{key}")


def validate_pipeline(pipeline: str) -> str:
    """Return the pipeline's name if it can be part of keys.

    Raises:
        ConfigurationError: it has other characters than letters, digits, ``.``, ``_``, ``-``, or begins with one of the
            last three.
    """
    if _PIPELINE.fullmatch(pipeline) is None:
        raise ConfigurationError(
            f"pipeline={pipeline!r} is not a legal name: use 1 to 128 of the characters a-z A-Z 0-9 . _ - and begin "
            f"with a letter or digit, such as 'flights-to-lake'"
        )
    return pipeline


def validate_replay(replay: str) -> str:
    """Return the id of a replay if it can be part of keys, groups and transactional ids.

    Raises:
        ConfigurationError: it has other characters than letters, digits, ``.``, ``_``, ``-``.
    """
    if _PIPELINE.fullmatch(replay) is None:
        raise ConfigurationError(
            f"replay={replay!r} is not a legal id: use 1 to 128 of the characters a-z A-Z 0-9 . _ - and begin with a "
            f"letter or digit, such as 'orders-2026-01-02'"
        )
    return replay


def encode_part(text: str) -> str:
    """Percent-encode any text as one part of a key; different texts have different results.

    Letters, digits, ``_`` and ``-`` are not encoded; nor is ``.``, except in a text of dots alone (``.`` and ``..`` are
    folders). Lone surrogates are encoded like other code points in UTF-8.
    """
    encoded = urllib.parse.quote(text.encode("utf-8", "surrogatepass"), safe="")
    encoded = encoded.replace("~", "%7E")
    return encoded if encoded.strip(".") else encoded.replace(".", "%2E")


def _control_root(topics_dir: str) -> str:
    return f"{below(topics_dir)}{CONTROL_DIR}/"
