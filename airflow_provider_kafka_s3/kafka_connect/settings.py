"""Every setting of Confluent's and DeviantArt's S3 sinks, and of Kafka Connect around them: what it becomes here.

The tables are also those of ``docs/from-kafka-connect.md``; ``dev/docs/connect_settings.py`` writes them there.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

from airflow_provider_kafka_s3.kafka_connect.known_names import CONSUMER_CLASSES, CONVERTER_CLASSES, ClassNames

__all__ = [
    "CONFLUENT",
    "CONSUMER",
    "CONVERTER",
    "DEVIANTART",
    "DEVIANTART_SINK",
    "FRAMEWORK",
    "SINK",
    "TRANSFORMS",
    "Setting",
    "Sink",
    "Use",
    "is_router",
    "is_secret",
    "replaces",
]

Use: TypeAlias = Literal["parameter", "connection", "none", "warning", "refused"]
"""What a setting becomes: a parameter, a field of an Airflow connection, nothing, a warning, or an error."""


class Setting(NamedTuple):
    """A setting of Kafka Connect.

    Attributes:
        name: of it; one that ends in ``*`` stands for all that begin so.
        use: what becomes of it.
        here: in words: the parameter or the field, or the reason.
        parameter: of the operator that replaces it, if there is one.
    """

    name: str
    use: Use
    here: str
    parameter: str = ""


def _parameter(name: str, parameter: str, here: str) -> Setting:
    return Setting(name, "parameter", here, parameter)


def _connection(name: str, here: str) -> Setting:
    return Setting(name, "connection", here)


def _none(name: str, here: str) -> Setting:
    return Setting(name, "none", here)


def _warning(name: str, here: str) -> Setting:
    return Setting(name, "warning", here)


def _refused(name: str, here: str, parameter: str = "") -> Setting:
    return Setting(name, "refused", here, parameter)


def _others(classes: Iterable[ClassNames], own: Sequence[Setting]) -> tuple[Setting, ...]:
    """Settings of classes that have no words of their own."""
    names = {setting.name for setting in own}
    others: dict[str, Setting] = {}
    for class_names in classes:
        for name in class_names.names:
            if name not in names:
                others.setdefault(name, _none(name, class_names.here))
    return tuple(others.values())


_EXTRA: Final = "in the extra of the AWS connection"

SINK: Final = (
    _parameter(
        "format.class",
        "format",
        "`format`: its kind; own classes are refused: give `format=CustomFormat(…)` with a class in Python",
    ),
    _parameter(
        "flush.size",
        "rotation",
        "`flush_size` of `rotation`, with `whole_partitions`, which counts as Connect does; bytes end no object",
    ),
    _parameter(
        "rotate.interval.ms",
        "rotation",
        "`rotate_interval_ms` of `rotation`; without effect without a partitioner by time, as in Connect; if it is not "
        "positive; and with `Wallclock`: a run ends all its objects",
    ),
    _none("rotate.schedule.interval.ms", "the schedule of the DAG: each run ends all its objects"),
    _parameter(
        "rotate.file.on.partition.change",
        "rotation",
        "`rotate_on_partition_change` of `rotation`: with `rotate.interval.ms` only, then `true` by default, as in "
        "Connect",
    ),
    _none("schemas.cache.config", "schemas are cached without a limit"),
    _none("enhanced.avro.schema.support", "files have the schema of the values, with its namespaces and enums"),
    _none("connect.meta.data", "files have the schema of the values, without names and versions of Connect"),
    _none("retry.backoff.ms", "a failed task is tried again as Airflow's `retries` and `retry_delay` say"),
    _none("shutdown.timeout.ms", "there is no worker that is shut down"),
    _parameter("filename.offset.zero.pad.width", "naming", "`offset_pad_width` of `naming`"),
    _parameter("avro.codec", "format", "`codec` of `AvroContainer`"),
    _none("allow.optional.map.keys", "maps whose keys are no texts are written in any case, as lists of entries"),
    _parameter("parquet.codec", "format", "`compression` of `Parquet`; `lzo` and `lz4` are refused: readers lack them"),
    _parameter("schema.compatibility", "schema_compatibility", "`schema_compatibility`, for values with a schema"),
    _parameter("s3.bucket.name", "bucket", "`bucket`"),
    _parameter("s3.object.tagging", "upload", "`offset_tags` of `upload`"),
    _parameter("s3.object.tagging.key.value.pairs", "upload", "`tags` of `upload`"),
    _parameter("s3.object.behavior.on.tagging.error", "upload", "`on_tag_error` of `upload`"),
    _connection("s3.region", f"`region_name` {_EXTRA}; Connect's default is `us-west-2`"),
    _parameter("s3.part.size", "upload", "`part_size` of `upload`, 512 MiB at most"),
    _connection(
        "s3.credentials.provider.class",
        "keys, a role, or boto3's own chain, in the AWS connection; providers other than AWS's own are refused",
    ),
    _connection("s3.credentials.provider.sts.role.arn", f"`role_arn` {_EXTRA}"),
    _connection("s3.credentials.provider.sts.role.session.name", f"`assume_role_kwargs.RoleSessionName` {_EXTRA}"),
    _connection("s3.credentials.provider.sts.role.external.id", f"secret: `assume_role_kwargs.ExternalId` {_EXTRA}"),
    _connection("s3.credentials.provider.sts.region", f"`region_name` {_EXTRA}"),
    _connection("s3.credentials.provider.aws.access.key.id", "secret: login of the AWS connection"),
    _connection("s3.credentials.provider.aws.secret.access.key", "secret: password of the AWS connection"),
    _connection("aws.access.key.id", "secret: login of the AWS connection"),
    _connection("aws.secret.access.key", "secret: password of the AWS connection"),
    _parameter("s3.ssea.name", "upload", "`encryption` of `upload`: `AES256` is `s3`, `aws:kms` is `kms`"),
    _connection("s3.sse.customer.key", f"secret: `sse_customer_key` {_EXTRA}, base64; `encryption` is `customer`"),
    _parameter("s3.sse.kms.key.id", "upload", "`key_id` of the `encryption` of `upload`"),
    _parameter("s3.acl.canned", "upload", "`acl` of `upload`"),
    _connection("s3.wan.mode", f"`config_kwargs.s3.use_accelerate_endpoint` {_EXTRA}"),
    _parameter("s3.compression.type", "format", "`compression` of `JsonLines` and `RawBytes`"),
    _parameter("s3.compression.level", "format", "`compression_level`: the same number; -1 is its default"),
    _parameter("json.decimal.format", "format", "`decimal_format` of `JsonLines`"),
    _parameter("s3.part.retries", "request_retry", "`max_retries` of `request_retry`: tries beside the first one"),
    _parameter("s3.retry.backoff.ms", "request_retry", "`base` of `request_retry`, in seconds"),
    _parameter("format.bytearray.extension", "format", "`extension` of `RawBytes`"),
    _parameter("format.bytearray.separator", "format", "`separator` of `RawBytes`"),
    _connection("s3.proxy.url", f"`config_kwargs.proxies` {_EXTRA}"),
    _connection("s3.proxy.user", f"secret: in the address of `config_kwargs.proxies` {_EXTRA}"),
    _connection("s3.proxy.password", f"secret: in the address of `config_kwargs.proxies` {_EXTRA}"),
    _none("s3.http.send.expect.continue", "botocore decides it"),
    _parameter("behavior.on.null.values", "format", "`on_null` of the format"),
    _none("report.null.values.to.dlq", "null values that are left out are counted (`ignored`), not set aside"),
    _none("max.write.duration.ms", "a task has Airflow's `execution_timeout`"),
    _parameter("tombstone.encoded.partition", "content", "the folder is `tombstone`; any other is refused: rename it"),
    _parameter("s3.schema.partition.affix.type", "naming", "`schema_affix` of `naming`"),
    _none("s3.send.digest", "each part is sent with its CRC32, which the store verifies"),
    _none("enable.conditional.writes", "writes are always conditional"),
    _none("max.files.scan.limit", "names are planned, not searched"),
    _parameter("store.kafka.keys", "content", "`keys` of `SiblingObjects` (`content`)"),
    _parameter("store.kafka.headers", "content", "`headers` of `SiblingObjects` (`content`)"),
    _parameter("keys.format.class", "content", "the format of `keys`"),
    _parameter("headers.format.class", "content", "the format of `headers`"),
    _connection("s3.path.style.access.enabled", f"`config_kwargs.s3.addressing_style` {_EXTRA}"),
    _none("s3.elastic.buffer.enable", "buffers grow as needed; `memory` of `upload` limits those of a task"),
    _none("s3.elastic.buffer.init.capacity", "buffers grow as needed; `memory` of `upload` limits those of a task"),
    _parameter(
        "partitioner.max.open.files",
        "rotation",
        "`max_open_objects` of `rotation`: one more closes the least recently written, where Connect closes all",
    ),
    _none("storage.class", "there is S3 only; another class is refused"),
    _parameter("topics.dir", "topics_dir", "`topics_dir`"),
    _connection("store.url", f"`endpoint_url` {_EXTRA}"),
    _parameter("directory.delim", "naming", "`directory_delim` of `naming`"),
    _parameter("file.delim", "naming", "`file_delim` of `naming`"),
    _parameter(
        "partitioner.class",
        "partitioner",
        "`partitioner`: its kind; own classes are refused: combine those of this package, or give "
        "`partitioner=CustomPartitioner(…)` with a class in Python",
    ),
    _parameter("partition.field.name", "partitioner", "`names` of `ByField`"),
    _parameter("partition.duration.ms", "partitioner", "`duration_ms` of `TimePattern`"),
    _parameter("path.format", "partitioner", "`path_format` of `TimePattern`"),
    _parameter("locale", "partitioner", "`locale` of `TimePattern`; one with a region is `root`, as in Connect"),
    _parameter("timezone", "partitioner", "`timezone` of the partitioner"),
    _parameter(
        "timestamp.extractor",
        "partitioner",
        "`timestamp_from` of the partitioner; `Wallclock` is the time of the batch's plan; own classes are refused",
    ),
    _parameter("timestamp.field", "partitioner", "`name` of `FieldTime` (`timestamp_from`)"),
    _none("schema.cache.size", "schemas are cached without a limit"),
    _refused("s3.sse.key", "it is the name that old versions have for `s3.sse.customer.key`: use this one"),
    _none("append.late.data", "no released version has it; late records share the objects of their folders"),
    _none("schema.generator.class", "no version of the last years has it, and it had no effect with S3"),
    _none("confluent.license", "a licence of Confluent"),
    _none("confluent.topic.*", "the topic of Confluent's licence"),
)
"""Settings of Confluent's sink."""

DEVIANTART_SINK: Final = (
    _parameter("s3.bucket", "bucket", "`bucket`"),
    _parameter("s3.prefix", "topics_dir", "`topics_dir`, without slashes at its ends"),
    _connection("s3.endpoint", f"`endpoint_url` {_EXTRA}"),
    _connection("s3.path_style", f"`config_kwargs.s3.addressing_style` {_EXTRA}"),
    _none("local.buffer.dir", "nothing is buffered in files of its own: parts are uploaded while records are read"),
    _parameter(
        "compressed_block_size", "format", "`block_size` of `BlockGzip`, in bytes; the sink counts UTF-16 characters"
    ),
)
"""Settings of DeviantArt's sink."""

_TRANSFORMED: Final = "records are landed as they are; what replaces each: *Transforms* in docs/from-kafka-connect.md"

FRAMEWORK: Final = (
    _parameter("name", "pipeline", "`pipeline`, which owns the stored offsets, and the id of the task"),
    _none(
        "connector.class",
        "`io.confluent.connect.s3.S3SinkConnector` or `com.deviantart.kafka_connect_s3.S3SinkConnector`; others are "
        "refused",
    ),
    _none("tasks.max", "Spark's executors; one Spark task reads a Kafka partition (`whole_partitions`)"),
    _none("tasks.max.enforce", "Spark's executors"),
    _none("config.action.reload", "Airflow looks connections up in each run"),
    _parameter("topics", "topics", "`topics`"),
    _refused("topics.regex", "a run lands the topics of a list: name them in `topics`", "topics"),
    _parameter("key.converter", "key_converter", "`key_converter`, if keys are stored"),
    _parameter("value.converter", "value_converter", "`value_converter`"),
    _none("header.converter", "headers are written as texts"),
    _none("header.converter.*", "headers are written as texts"),
    _warning("transforms", _TRANSFORMED),
    _warning("transforms.*", _TRANSFORMED),
    _warning("predicates", "they belong to transforms, which do not exist here"),
    _warning("predicates.*", "they belong to transforms, which do not exist here"),
    _parameter(
        "errors.tolerance",
        "errors",
        "`errors`: `all` is `dead_letter`, which sets invalid records aside in the bucket; none is dropped",
    ),
    _none("errors.retry.timeout", "requests are tried again as `request_retry` says, tasks as Airflow's `retries`"),
    _none("errors.retry.delay.max.ms", "`cap` of `request_retry`, in seconds, if 20 are not right"),
    _none("errors.log.enable", "an error names topic, partition and offset of the record"),
    _none("errors.log.include.messages", "logs have no values of records"),
    _none("errors.deadletterqueue.topic.name", "invalid records go to `_dead_letters` of the topic's folder"),
    _none("errors.deadletterqueue.topic.replication.factor", "there is no topic of invalid records"),
    _none("errors.deadletterqueue.context.headers.enable", "a dead letter has its reason and its offset"),
    _none("key.converter.plugin.version", "there are no plugins of Connect"),
    _none("value.converter.plugin.version", "there are no plugins of Connect"),
    _none("header.converter.plugin.version", "there are no plugins of Connect"),
    _none("connector.plugin.version", "there are no plugins of Connect"),
    _none("producer.override.*", "invalid records go to `_dead_letters` of the topic's folder, not to a topic"),
    _none("admin.override.*", "no topic is created"),
)
"""Settings of Kafka Connect itself."""

_OWN_SCHEMA: Final = "refused unless it is the default: a value keeps the schema of the registry. Remove it"
_SERIALIZER: Final = "for producers only"

_CONVERTER: Final = (
    _parameter("schemas.enable", "", "`schemas_enable` of `JsonConverter`; the default is `true`, as in Connect"),
    _none("schemas.cache.size", "schemas are cached without a limit"),
    _none("schemas.cache.config", "schemas are cached without a limit"),
    _none("max.schemas.per.subject", "schemas are cached without a limit"),
    _none("decimal.format", _SERIALIZER),
    _none("encoding", "refused unless it is UTF-8: texts are UTF-8. Use `ByteArrayConverter`"),
    _none("replace.null.with.default", "refused if `false`: a null value of a field with a default is the default"),
    _connection("schema.registry.url", "host of the connection of `registry_conn_id`, more of them in `urls`"),
    _connection("basic.auth.credentials.source", "the connection of `registry_conn_id` has the login"),
    _connection("basic.auth.user.info", "secret: login and password of the connection of `registry_conn_id`"),
    _connection(
        "schema.registry.basic.auth.user.info",
        "secret: login and password of the connection of `registry_conn_id`",
    ),
    _connection("bearer.auth.credentials.source", "the connection of `registry_conn_id` has the token"),
    _connection("bearer.auth.token", "secret: `bearer_token` in the extra of the connection of `registry_conn_id`"),
    _connection(
        "schema.registry.ssl.*",
        "secret: `ca`, `certificate`, `key` and `key_password` in the extra of the connection of `registry_conn_id`",
    ),
    _none("auto.register.schemas", _SERIALIZER),
    _none("use.latest.version", _SERIALIZER),
    _none("latest.compatibility.strict", _SERIALIZER),
    _none("normalize.schemas", _SERIALIZER),
    _none("key.subject.name.strategy", "schemas are those of the ids in the records"),
    _none("value.subject.name.strategy", "schemas are those of the ids in the records"),
    _none("reference.subject.name.strategy", _SERIALIZER),
    _none("enhanced.avro.schema.support", "files have the schema of the values, with its namespaces and enums"),
    _none("enhanced.protobuf.schema.support", "files have the schema of the values"),
    _none("connect.meta.data", "files have the schema of the values, without names and versions of Connect"),
    _none("scrub.invalid.names", _OWN_SCHEMA),
    _none("generalized.sum.type.support", _OWN_SCHEMA),
    _none("flatten.unions", _OWN_SCHEMA),
    _none("flatten.singleton.unions", _OWN_SCHEMA),
    _none("wrapper.for.nullables", _OWN_SCHEMA),
    _none("wrapper.for.raw.primitives", _OWN_SCHEMA),
    _none("optional.for.nullables", _OWN_SCHEMA),
    _none("optional.for.proto2", _OWN_SCHEMA),
    _none("int.for.enums", _OWN_SCHEMA),
    _connection("bearer.auth.client.secret", "secret: it gets a token, and the connection has the token itself"),
    _none("request.header.*", "secret: requests have the login of the connection of `registry_conn_id` only"),
)

CONVERTER: Final = (*_CONVERTER, *_others(CONVERTER_CLASSES, _CONVERTER))
"""Settings of converters, behind ``key.converter.`` and ``value.converter.``."""

_SPARK: Final = tuple(
    _parameter(name, "kafka_options", "`kafka_options`, with `kafka.` before its name")
    for name in (
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "max.partition.fetch.bytes",
        "max.poll.records",
        "metadata.max.age.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    )
)
_NO_GROUP: Final = "no consumer group is used"

_CONSUMER: Final = (
    *_SPARK,
    _parameter("isolation.level", "isolation", "`isolation`; the default is `read_committed`, Connect's is not"),
    _parameter(
        "auto.offset.reset",
        "starting_offsets",
        "`starting_offsets`: `earliest`, the default as in Connect, or `latest`",
    ),
    _connection("bootstrap.servers", "`bootstrap.servers` in the extra of the Kafka connection"),
    _connection("security.protocol", "`security.protocol` in the extra of the Kafka connection"),
    _connection("sasl.mechanism", "`sasl.mechanism` in the extra of the Kafka connection"),
    _connection("sasl.*", "secret: librdkafka's settings in the extra of the Kafka connection"),
    _connection("ssl.*", "secret: librdkafka's settings in the extra of the Kafka connection"),
    _none("allow.auto.create.topics", "a missing topic is an error, never created"),
    _none("auto.commit.interval.ms", _NO_GROUP),
    _none("client.id", "Spark names its clients"),
    _none("enable.auto.commit", _NO_GROUP),
    _none("exclude.internal.topics", "topics are named"),
    _none("group.id", _NO_GROUP),
    _none("group.instance.id", _NO_GROUP),
    _none("group.protocol", _NO_GROUP),
    _none("heartbeat.interval.ms", _NO_GROUP),
    _none("max.poll.interval.ms", _NO_GROUP),
    _none("partition.assignment.strategy", _NO_GROUP),
    _none("session.timeout.ms", _NO_GROUP),
    _refused("interceptor.classes", "records are read as they are. Remove it"),
    _refused("key.deserializer", "records are read as bytes. Remove it"),
    _refused("value.deserializer", "records are read as bytes. Remove it"),
)

CONSUMER: Final = (*_CONSUMER, *_others(CONSUMER_CLASSES, _CONSUMER))
"""Settings of the consumer, behind ``consumer.override.``."""

_CONSUMER_PREFIX: Final = "consumer.override."
_PREFIXES: Final = (_CONSUMER_PREFIX, "key.converter.", "value.converter.", "header.converter.")
_TYPO: Final = 0.88
"""How similar a name has to be to a known one, from 0 to 1, to be a misspelling of it."""


@dataclass(frozen=True)
class Sink:
    """A connector that is converted.

    Attributes:
        name: in words.
        own: its own settings; those of Kafka Connect, of converters and of the consumer are the same for all.
        bucket: the setting with the name of the bucket.
    """

    name: str
    own: Sequence[Setting]
    bucket: str

    def find(self, name: str) -> Setting | None:
        """The setting of this name; None: neither Kafka Connect nor this sink has it."""
        if name in self._by_name:
            return self._by_name[name]
        families = (known for known in self._by_name if known.endswith("*"))
        return next((self._by_name[family] for family in families if name.startswith(family[:-1])), None)

    def misspelt(self, name: str) -> str | None:
        """The known name that this one looks like a misspelling of, or is without its prefix; None if there is none."""
        prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
        known = self.known_names
        behind = {candidate.removeprefix(prefix): candidate for candidate in known if candidate.startswith(prefix)}
        near = difflib.get_close_matches(name.removeprefix(prefix)[:100].lower(), behind, n=1, cutoff=_TYPO)
        if near:
            return behind[near[0]]
        return next((candidate for candidate in known if candidate in {before + name for before in _PREFIXES}), None)

    @property
    def known_names(self) -> tuple[str, ...]:
        """Names of all settings, without those that stand for several."""
        return tuple(name for name in self._by_name if not name.endswith("*"))

    @cached_property
    def _by_name(self) -> dict[str, Setting]:
        return {setting.name: setting for setting in self._all()}

    def _all(self) -> Iterable[Setting]:
        yield from (*self.own, *FRAMEWORK)
        for part in ("key", "value"):
            for setting in CONVERTER:
                yield setting._replace(
                    name=f"{part}.converter.{setting.name}",
                    parameter="" if setting.use == "connection" else f"{part}_converter",
                )
        for setting in CONSUMER:
            yield setting._replace(name=_CONSUMER_PREFIX + setting.name)


CONFLUENT: Final = Sink("Confluent's S3 sink", SINK, "s3.bucket.name")
DEVIANTART: Final = Sink("DeviantArt's S3 sink", DEVIANTART_SINK, "s3.bucket")


def is_secret(setting: Setting) -> bool:
    """Whether the value of a setting must not be shown."""
    return setting.here.startswith("secret: ")


TRANSFORMS: Final[Mapping[str, str]] = {
    "Cast": "values keep their types: cast where the objects are read",
    "DropHeaders": "all headers are stored, if `content` stores headers: select them where the objects are read",
    "ExtractField": "the whole value is landed: select the field where the objects are read",
    "ExtractNewRecordState": "Debezium's envelope is landed: read its `after` and `op`, or unwrap at the source",
    "Filter": "every record is landed: filter where the objects are read; `on_null='ignore'` leaves out null values",
    "Flatten": "a struct stays one column: read `a.b`, and partition by it with `ByField(names=['a.b'])`",
    "HeaderFrom": "values and headers stay where they are: `SiblingObjects(headers=…)` stores headers",
    "HoistField": "the value is landed itself: wrap it where the objects are read",
    "InsertField": "topic, partition, offset and time: `content='envelope'`; a fixed text: where objects are read",
    "InsertHeader": "headers are those in Kafka: add a fixed text where the objects are read",
    "MaskField": "fields are landed unmasked: mask them before Kafka, or do not land the topic",
    "RegexRouter": "folders have the topic's own name: change `topics_dir`, or the location of the table",
    "ReplaceField": "all fields are landed, under their own names: select and rename them where the objects are read",
    "SetSchemaMetadata": "schemas keep their names: they are those of the registry",
    "TimestampConverter": "times keep their types: convert where objects are read; `FieldTime` reads numbers and texts",
    "TimestampRouter": "a folder by time below the topic's: the partitioner `Daily`, `Hourly` or `TimePattern`",
    "ValueToKey": "keys are those in Kafka: `ByField` partitions by fields of the value itself",
    "HasHeaderKey": "filter by the header where the objects are read",
    "RecordIsTombstone": "`on_null='ignore'` of the format leaves out null values",
    "TopicNameMatches": "name the topics in `topics`, with one operator for those that were transformed",
}
"""What replaces each transform and predicate, by the name of its class without package, ``$Key`` and ``$Value``."""


def is_router(java_class: str) -> bool:
    """Whether a transform changes the names of topics, by the name of its class."""
    name = _class_name(java_class)
    return name.endswith("Router") or name == "ExtractTopic"


def replaces(java_class: str) -> str:
    """In words: what replaces a transform or a predicate."""
    name = _class_name(java_class)
    return TRANSFORMS.get(name, "it has no equivalent: change the records before Kafka, or where the objects are read")


def _class_name(java_class: str) -> str:
    return java_class.strip().rpartition(".")[2].partition("$")[0]
