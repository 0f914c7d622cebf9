"""Control documents: canonical JSON, versioned, checksummed, validated.

Canonical means UTF-8, keys sorted, no spaces, no floats, a final newline. ``sha256`` is taken over the canonical form
without itself. A document that is read back is untrusted input: whatever is not exactly right is refused.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import socket
import uuid
from typing import Any, Final, TypeVar

import msgspec

from airflow_provider_kafka_s3.batch.offsets import Offsets
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    CorruptControlError,
    UnsupportedFormatError,
)

__all__ = ["FORMAT", "Document", "canonical", "decode", "digest", "encode", "write_stamp"]

FORMAT: Final = 1
"""The version of the documents that this code writes, and the highest it reads."""

_STAMPS: Final = ("written_by", "write_id", "created_at")
_OVERHEAD: Final = ("kind", "format", "sha256", *_STAMPS)


class Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the control documents; a subclass names its ``kind`` by its class name in lower case."""


D = TypeVar("D", bound=Document)


def canonical(value: object) -> bytes:
    """The one JSON form of a value."""
    return (
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
    )


def digest(value: object) -> str:
    """Hex SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(value)).hexdigest()


def builtins(value: object) -> Any:
    """A struct as plain JSON values."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_to_wire)


def write_stamp(attempt: str = "") -> dict[str, str]:
    """Who wrote a document and when: information for people, nobody decides by it. ``write_id`` is unique.

    Args:
        attempt: of a run, such as ``try 2 on worker-1``; stands beside host and process in ``written_by``.
    """
    process = f"{socket.gethostname()}/{os.getpid()}"
    return {
        "written_by": f"{attempt} ({process})" if attempt else process,
        "write_id": uuid.uuid4().hex,
        "created_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
    }


def encode(document: Document, stamp: dict[str, str]) -> bytes:
    """A document as it is stored."""
    body = builtins(document)
    body.update(stamp, kind=_kind(type(document)), format=FORMAT)
    body["sha256"] = digest(body)
    return canonical(body)


def decode(kind: type[D], data: bytes, where: str) -> tuple[D, dict[str, Any]]:
    """Read a stored document.

    Args:
        kind: the class it has to be.
        data: the bytes as stored.
        where: its address, for errors.

    Returns:
        The document, and what stands beside it: ``sha256`` and the stamp.

    Raises:
        UnsupportedFormatError: a newer version of this package wrote it.
        CorruptControlError: anything else is not as it has to be.
    """
    try:
        body = json.loads(data, parse_float=_no_float, parse_constant=_no_float)
    except (ValueError, RecursionError) as e:
        raise _corrupt(where, f"it is not JSON ({e})") from e
    if not isinstance(body, dict):
        raise _corrupt(where, "it is not a JSON object")
    if type(body.get("format")) is int and body["format"] > FORMAT:
        raise UnsupportedFormatError(
            f"{where} has format {body['format']}, this version reads up to {FORMAT}: upgrade airflow-provider-kafka-s3"
        )
    # By type too: in Python, true equals 1.
    if body.get("kind") != _kind(kind) or type(body.get("format")) is not int or body["format"] != FORMAT:
        raise _corrupt(where, f"it says kind {body.get('kind')!r}, format {body.get('format')!r}")
    beside = {name: body.pop(name, None) for name in _OVERHEAD}
    without_sum = {**body, **{k: v for k, v in beside.items() if k != "sha256" and v is not None}}
    try:
        checksum = digest(without_sum)
    except (ValueError, RecursionError) as e:
        raise _corrupt(where, f"it has no canonical form ({e})") from e
    if beside["sha256"] != checksum:
        raise _corrupt(where, "its checksum does not match its content")
    try:
        return msgspec.convert(body, kind, strict=True, str_keys=True, dec_hook=_from_wire), beside
    except (msgspec.ValidationError, ConfigurationError, ValueError, RecursionError) as e:
        raise _corrupt(where, str(e)) from e


def _kind(kind: type[Document]) -> str:
    return kind.__name__.lower()


def _no_float(text: str) -> Any:
    raise ValueError(f"{text} is not an integer")


def _corrupt(where: str, why: str) -> CorruptControlError:
    return CorruptControlError(
        f"control document {where} cannot be trusted: {why}. Nothing was changed. Restore the object's earlier version "
        f"(bucket versioning)"
    )


def _to_wire(value: object) -> object:
    if isinstance(value, Offsets):
        return value.to_wire()
    raise TypeError(f"{type(value).__name__} has no place in a control document")


def _from_wire(kind: type, value: object) -> object:
    if kind is Offsets:
        return Offsets.from_wire(value)
    raise TypeError(f"{kind.__name__} has no place in a control document")
