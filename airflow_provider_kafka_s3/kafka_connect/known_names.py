"""Names of settings that the classes of Kafka Connect define, with the class, its version and its source.

What becomes of a setting is in ``settings``; a name that is here and has no words there has those of its class.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["CONSUMER_CLASSES", "CONVERTER_CLASSES", "ClassNames"]


class ClassNames(NamedTuple):
    """The settings that one class defines.

    Attributes:
        java_class: in full.
        version: a release, or the commit of its file; ``and later``: with names that logs of later releases have.
        source: repository and path of its file, or the artifact it is in.
        here: in words: why these settings have no meaning here.
        names: as they are behind the prefix; one that ends in ``*`` stands for all that begin so.
    """

    java_class: str
    version: str
    source: str
    here: str
    names: tuple[str, ...]


_REGISTRY: Final = "confluentinc/schema-registry"
_SCHEMA: Final = "a value keeps the schema of the registry, and null is null"

CONVERTER_CLASSES: Final = (
    ClassNames(
        "io.confluent.kafka.schemaregistry.client.SchemaRegistryClientConfig",
        "01c6d7a7094c and later",
        f"{_REGISTRY}: client/src/main/java/io/confluent/kafka/schemaregistry/client/SchemaRegistryClientConfig.java",
        "the client of the registry has its own times, tries and cache",
        (
            "http.connect.timeout.ms",
            "http.read.timeout.ms",
            "latest.cache.ttl.sec",
            "max.retries",
            "missing.cache.size",
            "missing.id.cache.ttl.sec",
            "missing.schema.cache.ttl.sec",
            "missing.version.cache.ttl.sec",
            "retries.max.wait.ms",
            "retries.wait.ms",
            "srclient.http.connect.timeout.ms",
            "srclient.http.read.timeout.ms",
        ),
    ),
    ClassNames(
        "io.confluent.kafka.serializers.AbstractKafkaSchemaSerDeConfig",
        "03addb54408f and later",
        f"{_REGISTRY}: schema-serializer/src/main/java/io/confluent/kafka/serializers/"
        "AbstractKafkaSchemaSerDeConfig.java",
        "a record is read by the schema whose id it has, and rules of schemas are not run",
        (
            "auto.register.schemas",
            "basic.auth.credentials.source",
            "basic.auth.user.info",
            "bearer.auth.cache.expiry.buffer.seconds",
            "bearer.auth.client.id",
            "bearer.auth.client.secret",
            "bearer.auth.credentials.source",
            "bearer.auth.custom.provider.class",
            "bearer.auth.identity.pool.id",
            "bearer.auth.issuer.endpoint.url",
            "bearer.auth.logical.cluster",
            "bearer.auth.scope",
            "bearer.auth.scope.claim.name",
            "bearer.auth.sub.claim.name",
            "bearer.auth.token",
            "context.name.strategy",
            "id.compatibility.strict",
            "key.schema.id.deserializer",
            "key.schema.id.serializer",
            "key.subject.name.strategy",
            "latest.cache.size",
            "latest.compatibility.strict",
            "max.schemas.per.subject",
            "normalize.schemas",
            "propagate.schema.tags",
            "proxy.host",
            "proxy.port",
            "request.header.*",
            "rule.actions",
            "rule.actions.*",
            "rule.executors",
            "rule.executors.*",
            "rule.service.loader.enable",
            "schema.format",
            "schema.reflection",
            "schema.registry.basic.auth.user.info",
            "schema.registry.ssl.*",
            "schema.registry.url",
            "use.latest.version",
            "use.latest.with.metadata",
            "use.schema.guid",
            "use.schema.id",
            "value.schema.id.deserializer",
            "value.schema.id.serializer",
            "value.subject.name.strategy",
        ),
    ),
    ClassNames(
        "io.confluent.connect.schema.AbstractDataConfig",
        "7e9e75503678",
        f"{_REGISTRY}: schema-converter/src/main/java/io/confluent/connect/schema/AbstractDataConfig.java",
        _SCHEMA,
        ("generalized.sum.type.support", "ignore.default.for.nullables", "schemas.cache.config"),
    ),
    ClassNames(
        "io.confluent.connect.avro.AvroDataConfig",
        "0c1c7deafed9",
        f"{_REGISTRY}: avro-data/src/main/java/io/confluent/connect/avro/AvroDataConfig.java",
        _SCHEMA,
        (
            "allow.optional.map.keys",
            "connect.meta.data",
            "discard.type.doc.default",
            "enhanced.avro.schema.support",
            "flatten.singleton.unions",
            "scrub.invalid.names",
        ),
    ),
    ClassNames(
        "io.confluent.kafka.serializers.KafkaAvroDeserializerConfig",
        "056f131448d5",
        f"{_REGISTRY}: avro-serializer/src/main/java/io/confluent/kafka/serializers/KafkaAvroDeserializerConfig.java",
        "it belongs to classes of Java",
        (
            "avro.reflection.allow.null",
            "avro.remove.java.properties",
            "avro.use.logical.type.converters",
            "specific.avro.key.type",
            "specific.avro.reader",
            "specific.avro.value.type",
        ),
    ),
    ClassNames(
        "io.confluent.connect.json.JsonSchemaDataConfig",
        "056f131448d5",
        f"{_REGISTRY}: json-schema-converter/src/main/java/io/confluent/connect/json/JsonSchemaDataConfig.java",
        "properties that are not required may be null, and those that the schema does not have are left out",
        ("decimal.format", "object.additional.properties", "use.optional.for.nonrequired"),
    ),
    ClassNames(
        "io.confluent.kafka.serializers.json.KafkaJsonSchemaDeserializerConfig",
        "05d2649c12eb and later",
        f"{_REGISTRY}: json-schema-serializer/src/main/java/io/confluent/kafka/serializers/json/"
        "KafkaJsonSchemaDeserializerConfig.java and KafkaJsonSchemaSerializerConfig.java",
        "a document needs the types of its schema, and its keywords are not checked",
        (
            "json.default.property.inclusion",
            "json.fail.invalid.schema",
            "json.fail.unknown.properties",
            "json.indent.output",
            "json.key.type",
            "json.oneof.for.nullables",
            "json.schema.spec.version",
            "json.value.type",
            "json.write.dates.iso8601",
            "type.property",
        ),
    ),
    ClassNames(
        "io.confluent.connect.protobuf.ProtobufDataConfig",
        "1c6badc6d7bf and later",
        f"{_REGISTRY}: protobuf-converter/src/main/java/io/confluent/connect/protobuf/ProtobufDataConfig.java",
        _SCHEMA,
        (
            "enhanced.protobuf.schema.support",
            "flatten.unions",
            "generate.index.for.unions",
            "generate.struct.for.nulls",
            "int.for.enums",
            "optional.for.nullables",
            "optional.for.proto2",
            "wrapper.for.nullables",
            "wrapper.for.raw.primitives",
        ),
    ),
    ClassNames(
        "io.confluent.kafka.serializers.protobuf.KafkaProtobufDeserializerConfig",
        "7c1ae01a35eb and later",
        f"{_REGISTRY}: protobuf-serializer/src/main/java/io/confluent/kafka/serializers/protobuf/"
        "KafkaProtobufDeserializerConfig.java and KafkaProtobufSerializerConfig.java",
        "it belongs to classes of Java, or to producers",
        (
            "derive.type",
            "reference.lookup.only",
            "reference.subject.name.strategy",
            "skip.known.types",
            "specific.protobuf.key.type",
            "specific.protobuf.value.type",
        ),
    ),
    ClassNames(
        "org.apache.kafka.connect.json.JsonConverterConfig",
        "4.3.1",
        "apache/kafka: connect/json/src/main/java/org/apache/kafka/connect/json/JsonConverterConfig.java",
        "a document has the schema of its envelope",
        (
            "decimal.format",
            "replace.null.with.default",
            "schema.content",
            "schemas.cache.size",
            "schemas.enable",
        ),
    ),
)
"""Classes whose settings are behind ``key.converter.``, ``value.converter.`` and ``header.converter.``."""

CONSUMER_CLASSES: Final = (
    ClassNames(
        "org.apache.kafka.clients.consumer.ConsumerConfig",
        "3.9.2 and 4.3.1",
        "ConsumerConfig.configNames() of org.apache.kafka:kafka-clients",
        "it belongs to groups, metrics or classes of a consumer in Java",
        (
            "allow.auto.create.topics",
            "auto.commit.interval.ms",
            "auto.include.jmx.reporter",
            "auto.offset.reset",
            "bootstrap.servers",
            "check.crcs",
            "client.dns.lookup",
            "client.id",
            "client.rack",
            "config.providers",
            "connections.max.idle.ms",
            "default.api.timeout.ms",
            "enable.auto.commit",
            "enable.metrics.push",
            "exclude.internal.topics",
            "fetch.max.bytes",
            "fetch.max.wait.ms",
            "fetch.min.bytes",
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "interceptor.classes",
            "internal.leave.group.on.close",
            "internal.throw.on.fetch.stable.offset.unsupported",
            "isolation.level",
            "key.deserializer",
            "max.partition.fetch.bytes",
            "max.poll.interval.ms",
            "max.poll.records",
            "metadata.max.age.ms",
            "metadata.recovery.rebootstrap.trigger.ms",
            "metadata.recovery.strategy",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "partition.assignment.strategy",
            "receive.buffer.bytes",
            "reconnect.backoff.max.ms",
            "reconnect.backoff.ms",
            "request.timeout.ms",
            "retry.backoff.max.ms",
            "retry.backoff.ms",
            "sasl.*",
            "security.protocol",
            "security.providers",
            "send.buffer.bytes",
            "session.timeout.ms",
            "share.acknowledgement.mode",
            "share.acquire.mode",
            "socket.connection.setup.timeout.max.ms",
            "socket.connection.setup.timeout.ms",
            "ssl.*",
            "value.deserializer",
        ),
    ),
)
"""Classes whose settings are behind ``consumer.override.``."""
