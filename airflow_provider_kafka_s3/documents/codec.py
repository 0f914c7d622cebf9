"""Control documents: canonical JSON, versioned, checksummed, validated.

Canonical means UTF-8, keys sorted, no spaces, no floats, a final newline. ``sha256`` is taken over the canonical form
without itself. A document that is read back is untrusted input: anything invalid is refused.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import socket
import uuid
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from airflow_provider_kafka_s3.config import KeyNaming, decode_naming
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    CorruptControlError,
    UnsupportedFormatError,
)
from airflow_provider_kafka_s3.messages import printable
from airflow_provider_kafka_s3.storage.port import MAX_WHOLE
from airflow_provider_kafka_s3.structs import convert_to_struct
from airflow_provider_kafka_s3.version import __version__

__all__ = [
    "FORMAT",
    "MAX_BATCH",
    "MAX_BYTES",
    "MAX_PARTITION",
    "Document",
    "canonical",
    "corrupt",
    "decode",
    "digest",
    "encode",
    "printable",
    "write_stamp",
    "written_at",
]

FORMAT: Final = 1
"""The version of the documents that this code writes, and the highest it reads."""

MAX_BYTES: Final = MAX_WHOLE
"""Largest document. A manifest of 100,000 objects of one part has about 45 MB. A longer document is not read."""

MAX_BATCH: Final = 10**10 - 1
"""Batch numbers have ten digits in keys."""

MAX_PARTITION: Final = 2**31 - 1
"""Kafka numbers partitions with 32 bits."""

_MAX_DIGITS: Final = 19
_SHOWN_VERSION: Final = 40

_SMALLER_BATCH: Final = (
    "Let the batch have fewer objects or parts: a partitioner with wider folders, a larger flush_size or part_size, or "
    "smaller batches (records_per_batch of limits)"
)

_SHORTER: Final = {
    "plan": _SMALLER_BATCH,
    "manifest": _SMALLER_BATCH,
    "marker": "Land the gaps between landed offsets, so that their ranges join; the topic's status has them",
    "runrecord": "Let the run have a smaller window",
    "topicsummary": "It has the marker. Land the gaps between landed offsets, so that their ranges join",
    "logindex": "Nothing depends on it: plans and manifests are read instead",
    "replayplan": "Select fewer objects, by several replays",
}
"""How a document of a kind becomes shorter."""

_STAMPS: Final = ("written_by", "write_id", "created_at", "version")
_ENVELOPE: Final = ("kind", "format", "sha256", *_STAMPS, "process", "task")


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the control documents. The ``kind`` of a document is the lower-case name of its class."""

    @classmethod
    def complete(cls, fields: dict[str, Any]) -> None:
        """Add fields that an earlier version left out, where the default of this version means something else."""


D = TypeVar("D", bound=Document)


def canonical(value: object) -> bytes:
    """The canonical JSON of a value."""
    return (
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
    )


def digest(value: object) -> str:
    """Hex SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(value)).hexdigest()


def builtins(value: object) -> Any:
    """Convert a struct to plain JSON values."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_to_json)


def write_stamp(attempt: str = "") -> dict[str, str]:
    """The fields that record who wrote a document, when, and with which version of this package.

    They are information for people; no decision depends on them. ``write_id`` is unique.

    Args:
        attempt: of a run, such as ``try 2 on worker-1``; precedes host and process in ``written_by``.
    """
    process = f"{socket.gethostname()}/{os.getpid()}"
    return {
        "written_by": f"{attempt} ({process})" if attempt else process,
        "write_id": uuid.uuid4().hex,
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "version": __version__,
    }


def written_at(envelope: Mapping[str, Any]) -> datetime.datetime | None:
    """When a document was written, by the clock of its writer; None: its envelope has no such time."""
    try:
        time = datetime.datetime.fromisoformat(str(envelope.get("created_at")))
    except ValueError:
        return None
    return None if time.tzinfo is None else time


def encode(document: Document, stamp: dict[str, str], where: str = "") -> bytes:
    """The stored bytes of a document.

    Args:
        document: of any kind.
        stamp: who writes it.
        where: its address, for errors.

    Raises:
        ConfigurationError: it has more than ``MAX_BYTES``, so it could not be read again.
    """
    body = builtins(document)
    body.update(stamp, kind=_kind(type(document)), format=FORMAT)
    body["sha256"] = digest(body)
    encoded = canonical(body)
    if len(encoded) > MAX_BYTES:
        kind = _kind(type(document))
        of_topic = f" of topic {topic!r}" if isinstance(topic := getattr(document, "topic", None), str) else ""
        raise ConfigurationError(
            f"a document ({kind}){of_topic} of {len(encoded):,} bytes is too long to be read again ({MAX_BYTES:,} are "
            f"the limit). It was not written{where and ': '}{where}. {_SHORTER.get(kind, 'Report this error')}"
        )
    return encoded


def decode(kind: type[D], data: bytes, where: str) -> tuple[D, dict[str, Any]]:
    """Decode and validate a stored document.

    Args:
        kind: the expected class.
        data: the stored bytes.
        where: its address, for errors.

    Returns:
        The document, and its envelope: ``sha256`` and the stamp.

    Raises:
        UnsupportedFormatError: a newer version of this package wrote it: it has a higher format, or it is from another
            version, its checksum matches, and it has a field or a choice that this version does not have.
        CorruptControlError: anything else is invalid.
    """
    if len(data) > MAX_BYTES:
        raise corrupt(where, f"it has {len(data):,} bytes, and no document has more than {MAX_BYTES:,}")
    try:
        body = json.loads(
            data, parse_int=_integer, parse_float=_no_float, parse_constant=_no_float, object_pairs_hook=_unique_names
        )
    except (ValueError, RecursionError) as e:
        raise corrupt(where, f"it is not JSON ({e})") from e
    if not isinstance(body, dict):
        raise corrupt(where, "it is not a JSON object")
    if type(body.get("format")) is int and body["format"] > FORMAT:
        raise _unsupported(kind, body.get("version"), where, f"its format is {body['format']}, not {FORMAT}")
    # The type is compared as well: in Python, True == 1.
    if body.get("kind") != _kind(kind) or type(body.get("format")) is not int or body["format"] != FORMAT:
        raise corrupt(where, f"it is not a {_kind(kind)} of format {FORMAT}")
    envelope = {name: body.pop(name, None) for name in _ENVELOPE}
    if not all(isinstance(envelope[name], str | None) for name in _STAMPS):
        raise corrupt(where, f"one of {', '.join(_STAMPS)} is not text")
    checksummed = {**body, **{k: v for k, v in envelope.items() if k != "sha256" and v is not None}}
    try:
        checksum = digest(checksummed)
    except (ValueError, RecursionError) as e:
        raise corrupt(where, f"it has no canonical form ({e})") from e
    if envelope["sha256"] != checksum:
        raise corrupt(where, "its checksum does not match its content")
    kind.complete(body)
    try:
        return convert_to_struct(body, kind, str_keys=True, dec_hook=_from_json), envelope
    except (msgspec.ValidationError, ConfigurationError, ValueError, RecursionError) as e:
        # The checksum matches, so the document is unchanged. This version writes nothing that it cannot read.
        if isinstance(e, msgspec.ValidationError) and envelope["version"] not in (None, __version__):
            raise _unsupported(kind, envelope["version"], where, str(e)) from e
        raise corrupt(where, str(e)) from e


def corrupt(where: str, why: str) -> CorruptControlError:
    """The error for an invalid document.

    Args:
        where: its address.
        why: the reason. It may quote the document, so it is truncated and made printable.
    """
    return CorruptControlError(
        f"a control document cannot be trusted: {printable(why)}. Nothing was changed. Restore the object's earlier "
        f"version (bucket versioning): {where}"
    )


def _unsupported(kind: type[Document], version: object, where: str, why: str) -> UnsupportedFormatError:
    wrote = f"version {printable(version, shown=_SHOWN_VERSION)}" if isinstance(version, str) else "an unknown version"
    return UnsupportedFormatError(
        f"upgrade airflow-provider-kafka-s3 here: this worker has version {__version__}, and {wrote} wrote the "
        f"{_kind(kind)}, which this one does not support ({printable(why)}). Nothing was changed. See {where}"
    )


def _kind(kind: type[Document]) -> str:
    return kind.__name__.lower()


def _no_float(text: str) -> Any:
    raise ValueError(f"{text[:_MAX_DIGITS]} is not an integer")


def _integer(text: str) -> int:
    # No document holds a larger number. Python's integers have no limit, so sums, texts and keys would have none.
    if len(text) > _MAX_DIGITS + 1 or not -(2**63) <= (number := int(text)) < 2**63:
        raise ValueError(f"{text[:_MAX_DIGITS]}… is not a 64-bit number")
    return number


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        raise ValueError("a name occurs twice, so readers could disagree about its value")
    return body


def _to_json(value: object) -> object:
    if isinstance(value, Offsets):
        return value.to_json()
    raise TypeError(f"{type(value).__name__} cannot be stored in a control document")


def _from_json(kind: type, value: object) -> object:
    if kind is Offsets:
        return Offsets.from_json(value)
    if kind is KeyNaming:
        return decode_naming(value)
    raise TypeError(f"{kind.__name__} cannot be stored in a control document")
