"""Checks and parsers of the parameters of operators and sensors; errors have the right form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.config import Landed, Layout
from airflow_provider_kafka_s3.config.values import Value, require_type
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.keys import data_key, validate_topic, with_schema_name
from airflow_provider_kafka_s3.layout.patterns import time_pattern
from airflow_provider_kafka_s3.messages import nearest
from airflow_provider_kafka_s3.submit import spark_command

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.batch.request import Starting

__all__ = [
    "has_template",
    "parse_options",
    "parse_starting_offsets",
    "parse_topics",
    "require_bucket",
    "require_client_mode",
    "require_conf",
    "require_known",
    "require_layout",
    "require_other_prefix",
    "require_plain_env",
    "require_text",
    "require_topics_dir",
    "starting_of",
    "usable_layout",
]

_MANY_GENERATIONS: Final = 9_999
"""Number of resets up to which the length of keys is checked."""

_BUCKET: Final = re.compile("[a-zA-Z0-9._-]{1,255}")
_ACCESS_POINT: Final = re.compile(r"arn:aws[a-z-]*:s3:[a-z0-9-]*:[0-9]{12}:accesspoint[/:][a-zA-Z0-9.-]{1,63}")
_DIRECTORY_BUCKET: Final = "--x-s3"
"""The end of the names of directory buckets."""


def has_template(value: object) -> bool:
    """Whether a value is resolved when the task runs: a template, the output of a task, a parameter of the DAG."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, list | tuple):
        return any(has_template(item) for item in value)
    # Every class whose values Airflow resolves has this method, such as XComArg and DagParam.
    return hasattr(value, "iter_references")


def require_text(name: str, value: object) -> str:
    """Return a parameter that must be text and not empty, stripped."""
    if isinstance(value, int | float):
        # The text is not made of the number: 1_000 and 1000 are the same one.
        raise ConfigurationError(
            f"{name}={value!r} must be text. A DAG with render_template_as_native_obj "
            f"makes numbers of digits: put quotes into the template, such as {name}=\"'{{{{ params.{name} }}}}'\""
        )
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name}={value!r} must be text that is not empty")
    return value.strip()


def require_bucket(value: object) -> str:
    """Return the name of a bucket, or the ARN of an access point; a URL, a path and a directory bucket are refused."""
    bucket = require_text("bucket", value)
    if bucket.endswith(_DIRECTORY_BUCKET):
        raise ConfigurationError(
            f"bucket={bucket!r} is a directory bucket (S3 Express One Zone), which lists keys in no order; use a "
            f"general purpose bucket"
        )
    # boto3 accepts the ARN of an access point in place of a name.
    if _BUCKET.fullmatch(bucket) or _ACCESS_POINT.fullmatch(bucket):
        return bucket
    if bucket.startswith("arn:"):
        name = bucket.rpartition(":::")[2]
        write = f"bucket={name!r}" if name != bucket and _BUCKET.fullmatch(name) else "the name of the bucket"
        raise ConfigurationError(
            f"bucket={bucket!r} is neither the name of a bucket nor the ARN of an access point of S3, "
            f"arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME; write {write}"
        )
    if "/" in bucket:
        scheme, _, path = bucket.rpartition("://")
        name, _, folder = path.strip("/").partition("/")
        if scheme not in ("", "s3", "s3a", "s3n"):
            # Which part of the URL of a web server is the name depends on that server.
            raise ConfigurationError(f"bucket={bucket!r} is not the name of a bucket; write the name, without its URL")
        below = f" and topics_dir={folder!r}" if folder else ""
        raise ConfigurationError(f"bucket={bucket!r} is not the name of a bucket; write bucket={name!r}{below}")
    raise ConfigurationError(
        f"bucket={bucket!r} is not the name of a bucket: use letters, digits, '.', '-' and '_', at most 255"
    )


def require_topics_dir(value: object) -> str:
    """Return the prefix of all keys; it may be empty. The layout checks its parts."""
    require_type("topics_dir", value, str)
    return str(value)


def require_other_prefix(source: Landed, topics_dir: str) -> None:
    """Refuse a source below the prefix of the pipeline that reads it: a topic has one pipeline per prefix."""
    if source.topics_dir.strip("/") == topics_dir.strip("/"):
        raise ConfigurationError(
            f"source={source!r} is below topics_dir={topics_dir!r}, which is this pipeline's own, and a topic has one "
            f"pipeline there. Give this pipeline another topics_dir, such as 'compacted'"
        )


def require_client_mode(deploy_mode: object, conf: object) -> None:
    """Refuse a driver in the cluster, as far as the deploy mode is known when the DAG is parsed.

    Args:
        deploy_mode: the operator's.
        conf: the operator's settings of Spark, which apply if there is no ``deploy_mode``.
    """
    if not has_template(conf):
        require_conf(conf)
    mode = deploy_mode or (conf.get("spark.submit.deployMode") if isinstance(conf, Mapping) else None)
    if isinstance(mode, str) and not has_template(mode):
        spark_command.require_client_deploy_mode(mode)


def require_conf(conf: object) -> None:
    """Refuse settings of Spark that are not a mapping."""
    if conf is not None:
        require_type("conf", conf, dict)


def require_plain_env(env_vars: Mapping[str, object] | None) -> None:
    """Refuse environment variables of a job that are not a mapping, or contain templates."""
    require_type("env_vars", env_vars, dict | None)
    for name, value in (env_vars or {}).items():
        if has_template(str(value)):
            raise ConfigurationError(
                f"env_vars: {name} contains a template, and env_vars are not rendered here: Airflow's UI shows "
                f"rendered values, and env_vars often contain secrets. Use conf, which is rendered "
                f"(spark.executorEnv.{name} for executors), or set the variable on the worker"
            )


def require_known(kind: type, kwargs: Mapping[str, object], groups: Mapping[str, type[Value]] | None = None) -> None:
    """Refuse unknown parameters that resemble a known one; Airflow's own error has no suggestion.

    Args:
        kind: class of the operator.
        kwargs: parameters that are passed on to its base classes.
        groups: parameters whose values have fields.
    """
    makers = [vars(base)["__init__"] for base in kind.__mro__[:-1] if "__init__" in vars(base)]
    known = [name for maker in makers for name in signature(maker).parameters]
    for name in kwargs:
        for group, values in (groups or {}).items():
            if name in values.__struct_fields__ and name not in known:
                raise ConfigurationError(f"{name} is a field of {group}; write {group}={{{name!r}: …}}")
        if name not in known and (near := nearest(name, known)) is not None:
            raise ConfigurationError(f"{kind.__name__} has no parameter {name!r}; did you mean {near!r}?")


def parse_topics(topics: object) -> tuple[str, ...]:
    """Parse one topic, several topics separated by commas, or a list of topics.

    Raises:
        ConfigurationError: it is none of these, a name is invalid, or a topic is named twice.
    """
    names: Iterable[object]
    if isinstance(topics, str):
        names = [name.strip() for name in topics.split(",")]
    elif isinstance(topics, Iterable):
        names = topics
    else:
        names = [topics]
    parsed = tuple(validate_topic(require_text("topics", name)) for name in names)
    if not parsed:
        raise ConfigurationError("topics is empty; name at least one topic")
    repeated = sorted({name for name in parsed if parsed.count(name) > 1})
    if repeated:
        raise ConfigurationError(f"topics names {', '.join(map(repr, repeated))} more than once; name each topic once")
    return parsed


def require_layout(layout: Layout) -> Layout:
    """Return a layout if its pattern is valid; imports nothing heavy itself.

    Classes of other packages are checked if their modules can be imported here: the process that parses a DAG need not
    have them.

    Raises:
        ConfigurationError: something is wrong.
    """
    if layout.by_time is not None:
        time_pattern(layout.by_time, layout.naming.directory_delim)
    if layout.extensions and all(_is_here(each.import_path) for each in layout.extensions):
        from airflow_provider_kafka_s3.extensions.loading import pinned

        pinned(layout)
    return layout


def _is_here(import_path: str) -> bool:
    """Whether the module of a class can be imported here."""
    try:
        import_module(import_path.partition(":")[0])
    except ImportError:
        return False
    except Exception:  # noqa: BLE001 - it is here, and the check of the class has the error
        return True
    return True


def usable_layout(layout: Layout, topics: Sequence[str]) -> Layout:
    """Return a layout if its time zone and its declared schema are valid, and its longest possible key is not too long.

    Returns:
        The layout with what its classes of other packages declare.

    Raises:
        ConfigurationError: see :mod:`~airflow_provider_kafka_s3.layout.keys` and
            :mod:`~airflow_provider_kafka_s3.schemas.avro`.
    """
    from airflow_provider_kafka_s3.extensions.loading import pinned
    from airflow_provider_kafka_s3.formats.registry import make_formats
    from airflow_provider_kafka_s3.layout.partitioners import make_partitioner

    layout = pinned(layout)
    if not layout.needs_registry:
        make_formats(layout, topic="", partition=lambda: 0)
    longest = with_schema_name(layout, make_partitioner(layout).longest, "null")
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


def parse_options(value: Mapping[str, str] | None) -> dict[str, str]:
    """Return ``kafka_options`` if it is a mapping; its settings are checked together with those of the connection."""
    require_type("kafka_options", value, dict | None)
    return dict(value or {})


def parse_starting_offsets(value: object) -> str | dict[int, int] | dict[str, dict[int, int]] | None:
    """Parse ``"earliest"``, ``"latest"``, ``{partition: offset}`` or ``{topic: {partition: offset}}``.

    Partitions may be text, as in JSON. None: the topic begins with the window of the first run.

    Raises:
        ConfigurationError: it is none of these.
    """
    if value is None:
        return None
    if isinstance(value, str) and value in ("earliest", "latest"):
        return value
    if isinstance(value, Mapping) and value:
        if all(isinstance(offsets, Mapping) and offsets for offsets in value.values()):
            return {validate_topic(str(topic)): _partition_offsets(offsets) for topic, offsets in value.items()}
        if not any(isinstance(offset, Mapping) for offset in value.values()):
            return _partition_offsets(value)
    raise ConfigurationError(
        f"starting_offsets={value!r} is not valid; use 'earliest', 'latest', {{partition: offset}} or "
        f"{{topic: {{partition: offset}}}}"
    )


def starting_of(
    starting: str | dict[int, int] | dict[str, dict[int, int]] | None, topic: str, topics: Sequence[str]
) -> Starting | None:
    """The parsed ``starting_offsets`` of one topic of the task.

    Raises:
        ConfigurationError: they do not name the topic.
    """
    if starting is None:
        return None
    if isinstance(starting, str):
        return "latest" if starting == "latest" else "earliest"
    if any(isinstance(key, int) for key in starting):
        if len(topics) > 1:
            raise ConfigurationError(
                f"starting_offsets={starting} do not name which of the topics {', '.join(topics)} they belong to; use "
                f"{{topic: {{partition: offset}}}}"
            )
        return {int(partition): offset for partition, offset in starting.items() if isinstance(offset, int)}
    offsets = {name: offsets for name, offsets in starting.items() if isinstance(offsets, dict)}
    if topic not in offsets:
        raise ConfigurationError(f"starting_offsets name no offsets of topic {topic!r}; add {{{topic!r}: …}}")
    return offsets[topic]


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
