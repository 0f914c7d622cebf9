"""Findings of the checks of ``kafka-s3 doctor``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, message_of

__all__ = ["Finding", "Level", "good", "guarded"]

Level = Literal["ok", "unknown", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Attributes:
        check: name of the check, a word or two.
        level: ``ok``; ``unknown``: it could not be checked; ``warning``: it works, and may cause trouble later;
            ``error``: runs fail, or may lose records or documents.
        message: what was found.
        fix: what to do about it; empty if nothing.
        kind: kind of the error that ended the check; empty if none did.
    """

    check: str
    level: Level
    message: str
    fix: str = ""
    kind: str = ""


def good(check: str, message: str) -> Finding:
    """A finding that needs no action."""
    return Finding(check, "ok", message)


def guarded(check: str, run: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Findings of a check; an error of this package becomes a finding, whose message contains the fix."""
    try:
        return list(run())
    except KafkaS3Error as e:
        return [Finding(check, "error", f"{type(e).__name__}: {message_of(e)}", kind=e.kind)]
