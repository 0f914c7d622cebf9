"""What a check of ``kafka-s3 doctor`` found, with what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, message_of

__all__ = ["Finding", "Level", "good", "guarded"]

Level = Literal["ok", "unknown", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what was looked at, in a word or two.
        level: ``ok``; ``unknown``: it could not be looked at; ``warning``: it works, and may hurt later; ``error``:
            runs fail, or may lose something.
        message: what was seen.
        fix: what to do about it; empty if nothing.
        kind: of the error that ended the check; empty if none did.
    """

    check: str
    level: Level
    message: str
    fix: str = ""
    kind: str = ""


def good(check: str, message: str) -> Finding:
    """Nothing to do."""
    return Finding(check, "ok", message)


def guarded(check: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What a check finds; an error of ours is a finding, whose message says the fix."""
    try:
        return list(look())
    except KafkaS3Error as e:
        return [Finding(check, "error", f"{type(e).__name__}: {message_of(e)}", kind=e.kind)]
