"""Checks of ``kafka-s3 doctor`` on the schema registry: address and login, subjects of topics, stored schemas."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from airflow_provider_kafka_s3.cli.findings import Finding, good, guarded
from airflow_provider_kafka_s3.cli.store_checks import latest_layout
from airflow_provider_kafka_s3.config import AvroConverter, Converter, JsonSchemaConverter, ProtobufConverter
from airflow_provider_kafka_s3.config.converters import needs_registry
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.pinned_schema import decode_pinned_schema
from airflow_provider_kafka_s3.exceptions import SchemaNotFoundError
from airflow_provider_kafka_s3.formats.registry import unusable
from airflow_provider_kafka_s3.messages import few

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.batch.log import TopicLog
    from airflow_provider_kafka_s3.cli.access import Access
    from airflow_provider_kafka_s3.config import Layout
    from airflow_provider_kafka_s3.registry.client import RegistryClient
    from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaType

__all__ = ["check_registry"]

_Part: TypeAlias = Literal["key", "value"]

_CHECK: Final = "schema registry"
_TYPES: Final[Mapping[type[Converter], SchemaType]] = {
    AvroConverter: "AVRO",
    ProtobufConverter: "PROTOBUF",
    JsonSchemaConverter: "JSON",
}
_COMPARED: Final = 20
"""Stored schemas of a topic that are compared with the registry: those with the highest ids."""


def check_registry(access: Access) -> list[Finding]:
    """Check that the schema registry answers, and that it has schemas that fit the topics. Nothing is registered."""
    if not access.has_registry:
        return guarded(_CHECK, lambda: _not_checked(access))
    findings = guarded(_CHECK, lambda: _answers(access))
    if findings[-1].level == "error":
        return findings
    for topic in access.arguments.topic or sorted({topic.log.topic for topic in access.known_topics()}):
        findings += guarded(f"schemas of {topic}", lambda: _topic(access, topic))  # noqa: B023 - called at once
    return findings


def _not_checked(access: Access) -> Iterator[Finding]:
    needing = []
    if access.arguments.pipeline or not access.arguments.topic:
        layouts = {topic.log.topic: latest_layout(topic.log) for topic in access.known_topics()}
        needing = sorted(topic for topic, layout in layouts.items() if layout is not None and layout.needs_registry)
    named = f"; these topics have schemas of a registry: {few(needing)}" if needing else ""
    yield Finding(_CHECK, "unknown", f"not checked{named}; name it by --registry-conn-id or --registry-url")


def _answers(access: Access) -> Iterator[Finding]:
    registry = access.require_registry()
    registry.require_answer()
    yield good(_CHECK, f"schemas can be read from {registry.addresses}")


def _topic(access: Access, topic: str) -> Iterator[Finding]:
    registry, pipeline = access.require_registry(), access.arguments.pipeline
    logs = [known.log for known in access.known_topics() if known.log.topic == topic] if pipeline else []
    layouts = [layout for log in logs if (layout := latest_layout(log)) is not None]
    yield from _subjects(registry, topic, layouts[0] if layouts else None)
    for log in logs:
        yield from _stored(access, registry, log)


def _subjects(registry: RegistryClient, topic: str, layout: Layout | None) -> Iterator[Finding]:
    """Compare the latest schemas of values and keys with the converters of the latest batch."""
    if layout is None:
        yield from _subject(registry, f"{topic}-value", "value", None)
        return
    converters: dict[_Part, Converter | None] = {
        "value": layout.value_converter,
        "key": layout.key_converter if layout.has_keys else None,
    }
    if not layout.needs_registry:
        yield good(f"schemas of {topic}", "the topic's latest batch needs none of a registry")
    for part, converter in converters.items():
        if needs_registry(converter):
            yield from _subject(registry, f"{topic}-{part}", part, layout)


def _subject(registry: RegistryClient, subject: str, part: _Part, layout: Layout | None) -> Iterator[Finding]:
    parameter = f"{part}_converter"
    converter: Converter | None = None if layout is None else getattr(layout, parameter)
    check, latest = f"subject {subject}", registry.latest(subject)
    if latest is None:
        yield Finding(
            check,
            "warning",
            f"{registry.addresses} has no such subject. Records are decoded by the ids in them, without subjects; but "
            f"schema_compatibility takes the versions of schemas from it",
            "correct --topic, or register the schema; nothing, if producers name subjects otherwise",
        )
        return
    prefix = f"the latest schema has the id {latest.id}, version {latest.versions.get(subject, 'unknown')} and the type"
    expected = None if converter is None else _TYPES[type(converter)]
    if layout is None or expected is None:
        yield good(check, f"{prefix} {latest.type}; no batch was landed, so whether it fits {parameter} is unknown")
    elif latest.type != expected:
        fitting = next(str(kind.__struct_config__.tag) for kind, of_kind in _TYPES.items() if of_kind == latest.type)
        yield Finding(
            check,
            "error",
            f"{prefix} {latest.type}, but the {parameter} of the topic's latest batch is {converter!r}, which reads "
            f"{expected}: records with this schema are invalid",
            f"set {parameter}={fitting!r}, or correct what the producers register",
        )
    elif (reason := unusable(layout, part, latest)) is not None:
        yield Finding(
            check,
            "error",
            f"{prefix} {latest.type}, as {parameter}={converter!r} needs it, but records with this schema cannot be "
            f"landed by the layout of the topic's latest batch: {reason}",
            "correct what the producers register, or change the format",
        )
    else:
        yield good(check, f"{prefix} {latest.type}, as {parameter}={converter!r} needs it")


def _stored(access: Access, registry: RegistryClient, topic_log: TopicLog) -> Iterator[Finding]:
    """Compare the schemas that are stored beside the batches with the registry's under the same ids."""
    store, check = access.store, f"stored schemas of {topic_log.topic}"
    prefix = addresses.schemas_prefix(topic_log.prefix)
    names = (info.key.removeprefix(prefix).removesuffix(".json") for info in store.list(prefix))
    ids = sorted((int(name) for name in names if name.isdecimal()), reverse=True)
    differing, same = [], 0
    for schema_id in itertools.islice(ids, _COMPARED):
        key = addresses.schema_key(topic_log.prefix, schema_id)
        stored = store.get(key)
        if stored is None:
            continue
        try:
            registered = registry.schema(schema_id)
        except SchemaNotFoundError:
            # A schema that was deleted is still decoded with what is stored.
            continue
        if _meaning(registered) == _meaning(decode_pinned_schema(stored.body, schema_id, store.url(key))):
            same += 1
        else:
            differing.append(str(schema_id))
    if differing:
        yield Finding(
            check,
            "error",
            f"the ids {few(differing)} name other schemas in {registry.addresses} than those that are stored at "
            f"{store.url(prefix)}, which decode the records. Records that were produced with this registry are "
            f"invalid, or are landed wrongly",
            "connect the registry with which the pipeline began; or land the topic by another pipeline, below another "
            "topics_dir (docs/changing-layout.md)",
        )
    elif same:
        yield good(check, f"{same} schemas that records are decoded with are those of the registry")


def _meaning(schema: RegisteredSchema) -> object:
    """What does not depend on how a registry formats texts."""
    return schema.type, _parsed(schema.text), {r.name: _parsed(r.text) for r in schema.references}


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        # Protobuf.
        return text.split()
