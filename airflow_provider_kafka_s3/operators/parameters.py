"""What a DAG author writes, turned into the engine's settings; every error says what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from airflow_provider_kafka_s3.config import Format, Layout, Partitioner
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.keys import data_key, validate_delimiters, validate_topic
from airflow_provider_kafka_s3.layout.patterns import compile_pattern
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.spark.spec import UploadSettings

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.batch.requests import Starting

__all__ = [
    "has_template",
    "parse_format",
    "parse_partitioner",
    "parse_retry_policy",
    "parse_starting_offsets",
    "parse_topics",
    "parse_upload",
    "require_choice",
    "require_layout",
    "require_plain_env",
    "require_text",
    "require_whole",
    "starting_of",
    "usable_layout",
]

T = TypeVar("T")

_MANY_GENERATIONS: Final = 9_999
"""Resets of a topic that its keys have room for."""


def has_template(value: object) -> bool:
    """Whether a value is only known when the task runs: a Jinja template, or the output of another task."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, list | tuple):
        return any(has_template(item) for item in value)
    return value is not None


def require_text(name: str, value: object) -> str:
    """Return a parameter that has to be text and not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name}={value!r} must be text that is not empty")
    return value.strip()


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise ConfigurationError(f"{name}={value!r} is not known; use one of {', '.join(map(repr, choices))}")


def require_plain_env(env_vars: Mapping[str, object]) -> None:
    """Refuse environment variables of a job that would have to be rendered."""
    for name, value in env_vars.items():
        if has_template(str(value)):
            raise ConfigurationError(
                f"env_vars: {name} holds a template, and env_vars are not rendered here: Airflow stores what it "
                f"renders for everybody to see, and secrets are often in there. Use conf, which is rendered "
                f"(spark.executorEnv.{name} for executors), or set the variable on the worker"
            )


def require_whole(name: str, value: object, *, optional: bool) -> None:
    """Refuse a number of records that is not a whole number; whether it is large enough the request judges."""
    if not isinstance(value, int) and not (value is None and optional):
        raise ConfigurationError(
            f"{name}={value!r} must be a whole number of records{', or None for no limit' if optional else ''}"
        )


def parse_topics(topics: object) -> tuple[str, ...]:
    """One topic, several separated by commas, or a list of them."""
    names: Iterable[object]
    if isinstance(topics, str):
        names = [name.strip() for name in topics.split(",")]
    elif isinstance(topics, Iterable):
        names = topics
    else:
        raise ConfigurationError(f"topics={topics!r} must be the name of a topic or a list of names")
    parsed = tuple(validate_topic(require_text("topics", name)) for name in names)
    if not parsed:
        raise ConfigurationError("topics is empty; name at least one topic")
    repeated = sorted({name for name in parsed if parsed.count(name) > 1})
    if repeated:
        raise ConfigurationError(f"topics names {', '.join(map(repr, repeated))} more than once; name each topic once")
    return parsed


def parse_format(value: Format | Mapping[str, Any] | str) -> Format:
    """``"json"``, ``"bytes"``, a mapping of a :class:`Format`'s fields, or one."""
    return value if isinstance(value, Format) else _settings("format", Format, value)


def parse_partitioner(value: Partitioner | Mapping[str, Any] | str) -> Partitioner:
    """``"default"``, ``"daily"``, ``"hourly"``, a mapping of a :class:`Partitioner`'s fields, or one."""
    return value if isinstance(value, Partitioner) else _settings("partitioner", Partitioner, value)


def parse_retry_policy(value: RetryPolicy | Mapping[str, Any] | None) -> RetryPolicy:
    """A mapping of a :class:`RetryPolicy`'s fields, or one; None: the defaults."""
    if isinstance(value, RetryPolicy):
        return value
    if value is None:
        return RetryPolicy()
    known = RetryPolicy.__dataclass_fields__
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise ConfigurationError(f"request_retry has no {', '.join(map(repr, unknown))}; it has {', '.join(known)}")
    return _convert("request_retry", RetryPolicy, dict(value))


def parse_upload(value: UploadSettings | Mapping[str, Any] | None) -> UploadSettings:
    """A mapping of an :class:`UploadSettings`' fields, or one; None: the defaults."""
    if isinstance(value, UploadSettings):
        return value
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError(f"upload={value!r} must be a mapping of settings or UploadSettings")
    return _convert("upload", UploadSettings, dict(value or {}))


def require_layout(layout: Layout) -> Layout:
    """Return a layout if its delimiters and its pattern can name objects; imports nothing heavy."""
    validate_delimiters(layout)
    if layout.partitioner.path_format is not None:
        compile_pattern(layout.partitioner.path_format.removesuffix(layout.directory_delim))
    return layout


def usable_layout(layout: Layout, topics: Sequence[str]) -> Layout:
    """Return a layout if its time zone is known and the longest key that it can make is not too long.

    Raises:
        ConfigurationError: see :mod:`~airflow_provider_kafka_s3.layout.keys`.
    """
    from airflow_provider_kafka_s3.layout.partitioners import make_partitioner

    longest = make_partitioner(layout).longest
    for topic in topics:
        data_key(
            layout,
            topic=topic,
            encoded_partition=longest,
            partition=2**31 - 1,
            first_offset=2**63 - 1,
            generation=_MANY_GENERATIONS,
        )
    return layout


def parse_starting_offsets(value: object) -> str | dict[int, int] | dict[str, dict[int, int]]:
    """``"earliest"``, ``"latest"``, ``{partition: offset}`` or ``{topic: {partition: offset}}``.

    Partitions may be written as text, as they are in JSON.
    """
    if isinstance(value, str) and value in ("earliest", "latest"):
        return value
    if isinstance(value, Mapping) and value:
        if all(isinstance(offsets, Mapping) and offsets for offsets in value.values()):
            return {validate_topic(str(topic)): _partition_offsets(offsets) for topic, offsets in value.items()}
        if not any(isinstance(offset, Mapping) for offset in value.values()):
            return _partition_offsets(value)
    raise ConfigurationError(
        f"starting_offsets={value!r} is not understood; use 'earliest', 'latest', {{partition: offset}} or "
        f"{{topic: {{partition: offset}}}}"
    )


def starting_of(
    starting: str | dict[int, int] | dict[str, dict[int, int]], topic: str, topics: Sequence[str]
) -> Starting:
    """What parsed ``starting_offsets`` say about one topic of the task."""
    if isinstance(starting, str):
        return "latest" if starting == "latest" else "earliest"
    if any(isinstance(key, int) for key in starting):
        if len(topics) > 1:
            raise ConfigurationError(
                f"starting_offsets={starting} do not tell which of the topics {', '.join(topics)} they belong to; use "
                f"{{topic: {{partition: offset}}}}"
            )
        return {int(partition): offset for partition, offset in starting.items() if isinstance(offset, int)}
    offsets = {name: offsets for name, offsets in starting.items() if isinstance(offsets, dict)}
    if topic not in offsets:
        raise ConfigurationError(f"starting_offsets name no offsets of topic {topic!r}; add {{{topic!r}: …}}")
    return offsets[topic]


def _settings(name: str, kind: type[T], value: Mapping[str, Any] | str) -> T:
    fields = {"kind": value} if isinstance(value, str) else value
    if not isinstance(fields, Mapping):
        raise ConfigurationError(f"{name}={value!r} must be a name, a mapping of settings or a {kind.__name__}")
    return _convert(name, kind, dict(fields))


def _convert(name: str, kind: type[T], fields: dict[str, Any]) -> T:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as e:
        raise ConfigurationError(f"{name}={fields!r}: {e}") from e


def _partition_offsets(offsets: Mapping[Any, Any]) -> dict[int, int]:
    parsed: dict[int, int] = {}
    for partition, offset in offsets.items():
        text = str(partition)
        if not (text.isascii() and text.isdigit() and isinstance(offset, int) and offset >= 0) or isinstance(
            offset, bool
        ):
            raise ConfigurationError(
                f"starting_offsets: {partition!r}: {offset!r} is not a Kafka partition and an offset in it; both are "
                f"whole numbers from 0"
            )
        parsed[int(text)] = offset
    return parsed
