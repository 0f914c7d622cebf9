"""Every setting of the sink becomes a parameter, a field of a connection or nothing, or it is an error."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka_connect.call import python_call
from airflow_provider_kafka_s3.kafka_connect.convert import Converted, convert, layout_of
from airflow_provider_kafka_s3.kafka_connect.known_names import CONSUMER_CLASSES, CONVERTER_CLASSES, ClassNames
from airflow_provider_kafka_s3.kafka_connect.settings import (
    CONFLUENT,
    CONSUMER,
    CONVERTER,
    DEVIANTART_SINK,
    FRAMEWORK,
    SINK,
    TRANSFORMS,
    Sink,
    replaces,
)
from airflow_provider_kafka_s3.kafka_connect.settings import DEVIANTART as DEVIANTART_SETTINGS
from airflow_provider_kafka_s3.retry import RetryPolicy
from tests.unit.kafka_connect.connectors import CUSTOMER, DEVIANTART, MINIMAL, SECRET

BY_HOUR = {
    "partitioner.class": "io.confluent.connect.storage.partitioner.HourlyPartitioner",
    "timezone": "Europe/Berlin",
    "locale": "en-US",
}
BY_PATTERN = {
    **BY_HOUR,
    "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
    "path.format": "yyyy",
    "partition.duration.ms": "60000",
}
AVRO = {
    "format.class": "io.confluent.connect.s3.format.avro.AvroFormat",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schemas.enable": None,
}


def converted(settings: dict[str, Any] | None = None, **parameters: Any) -> Converted:
    """The minimal sink with more settings."""
    return convert({**MINIMAL, **(settings or {})}, **parameters)


def refusal(settings: dict[str, Any], **parameters: Any) -> str:
    """The error of the minimal sink with more settings."""
    with pytest.raises(ConfigurationError) as caught:
        converted(settings, **parameters)
    return str(caught.value)


def notes(result: Converted) -> dict[str, str]:
    """What became of the settings, by their names."""
    return {note.name: note.text for note in result.notes}


def test_a_sink_in_production_has_an_equivalent_operator() -> None:
    """Each of its settings is in it, or named with the reason."""
    result = convert(CUSTOMER)
    assert result.parameters == {
        "task_id": "events-to-s3",
        "topics": ["events"],
        "bucket": "lake",
        "pipeline": "events-to-s3",
        "offsets": "incremental",
        "starting_offsets": "earliest",
        "format": config.Parquet(compression="zstd"),
        "value_converter": config.ProtobufConverter(),
        "partitioner": config.TimePattern(path_format="'dt'=YYYY'-'MM'-'dd/'hr'=HH'/us-east-1'", duration_ms=3_600_000),
        "rotation": config.Rotation(flush_size=2_000_000, whole_partitions=True, max_bytes=9_000 * 104_857_600),
        "naming": config.Naming(offset_pad_width=20, kafka_connect_names=True),
        "schema_compatibility": "BACKWARD",
        "upload": config.Upload(part_size=104_857_600),
        "errors": "dead_letter",
        "request_retry": RetryPolicy(max_retries=14, base=1.0),
        "kafka_options": {"kafka.fetch.max.bytes": "104857600", "kafka.max.poll.records": "15000"},
        "registry_conn_id": "registry_default",
    }
    assert notes(result).keys() == CUSTOMER.keys()
    assert result.connections == {
        "aws_conn_id": {"conn_type": "aws", "extra": {"region_name": "us-east-1"}},
        "kafka_conn_id": {"conn_type": "kafka", "extra": {}},
        "registry_conn_id": {"conn_type": "http", "host": "http://registry:8081"},
    }


def test_all_that_is_wrong_is_one_error() -> None:
    """Unknown names come with the nearest known one."""
    error = refusal(
        {
            **BY_HOUR,
            "rotate.scheduled.interval.ms": "60000",
            "rotate.interval.ms": "hourly",
            "fetch.max.bytes": "1",
            "flush.size": "many",
            "parquet.codec": "lzo",
            "s3.bucket.name": "",
        }
    )
    assert "because of 6 settings" in error
    assert "  rotate.scheduled.interval.ms: is not a setting" in error
    assert "did you mean 'rotate.schedule.interval.ms'?" in error
    assert "did you mean 'consumer.override.fetch.max.bytes'?" in error
    assert "  rotate.interval.ms: 'hourly' must be a whole number" in error
    assert "  flush.size: 'many' must be a whole number" in error
    assert "  parquet.codec: 'lzo' is refused" in error
    assert "  s3.bucket.name: is missing" in error


@pytest.mark.parametrize(
    ("prefix", "classes"),
    [
        ("value.converter.", CONVERTER_CLASSES),
        ("key.converter.", CONVERTER_CLASSES),
        ("header.converter.", CONVERTER_CLASSES),
        ("consumer.override.", CONSUMER_CLASSES),
    ],
)
def test_every_setting_of_the_classes_is_known(prefix: str, classes: tuple[ClassNames, ...]) -> None:
    """With words, by which it is never taken for a misspelt one."""
    for name in (name.replace("*", "x") for one in classes for name in one.names):
        found = CONFLUENT.find(prefix + name)
        assert found is not None, name
        assert found.here, name


def test_an_unknown_name_is_a_warning_unless_it_looks_misspelt() -> None:
    """Connect ignores it, and a newer class may have it."""
    result = converted({"value.converter.colour.of.nulls": SECRET})
    assert [(note.name, note.use) for note in result.notes if note.use == "warning"] == [
        ("value.converter.colour.of.nulls", "warning")
    ]
    assert SECRET not in repr(result)
    error = refusal({"value.converter.schema.enable": "true", "s3.bucket.nmae": "x"})
    assert "did you mean 'value.converter.schemas.enable'?" in error
    assert "did you mean 's3.bucket.name'?" in error


@pytest.mark.parametrize("name", [*TRANSFORMS, "Mine"])
def test_a_transform_is_named_with_what_replaces_it_and_the_rest_is_converted(name: str) -> None:
    """Also one that is not known, those of keys and values, and predicates."""
    settings = {
        "transforms": "t",
        "transforms.t.type": f"org.apache.kafka.connect.transforms.{name}$Value",
        "transforms.t.predicate": "p",
        "predicates": "p",
        "predicates.p.type": f"org.apache.kafka.connect.transforms.predicates.{name}",
    }
    result = converted(settings)
    assert result.parameters == converted().parameters
    assert {note.name for note in result.notes if note.use == "warning"} == settings.keys()
    for setting in ("transforms.t.type", "predicates.p.type"):
        assert notes(result)[setting].endswith(f"is left out: {replaces(settings[setting])}")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector", "is Aiven's sink, which is not converted"),
        ("io.confluent.connect.hdfs.HdfsSinkConnector", "is not converted"),
    ],
)
def test_other_connectors_are_refused_by_name(name: str, what: str) -> None:
    """Their settings have other meanings."""
    error = refusal({"connector.class": name, "s3.prefix": "x"})
    assert (name in error, what in error, "s3.prefix" in error) == (True, True, False)


@pytest.mark.parametrize(
    ("settings", "parameter", "expected"),
    [
        ({}, "format", config.JsonLines()),
        ({"s3.compression.type": "gzip"}, "format", config.JsonLines(compression="gzip")),
        (
            {"s3.compression.type": "gzip", "s3.compression.level": "9"},
            "format",
            config.JsonLines(compression="gzip", compression_level=9),
        ),
        ({"json.decimal.format": "numeric"}, "format", config.JsonLines(decimal_format="NUMERIC")),
        ({"behavior.on.null.values": "ignore"}, "format", config.JsonLines(on_null="ignore")),
        ({**AVRO, "avro.codec": "snappy"}, "format", config.AvroContainer(codec="snappy")),
        (AVRO, "schema_compatibility", "NONE"),
        (
            {
                **AVRO,
                "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
                "parquet.codec": "lz4_raw",
            },
            "format",
            config.Parquet(compression="lz4"),
        ),
        (
            {**AVRO, "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat"},
            "format",
            config.Parquet(compression="snappy"),
        ),
        (
            {
                "format.class": "io.confluent.connect.s3.format.bytearray.ByteArrayFormat",
                "value.converter": None,
                "value.converter.schemas.enable": None,
                "format.bytearray.extension": ".txt",
                "format.bytearray.separator": " ",
            },
            "format",
            config.RawBytes(extension=".txt", separator=" "),
        ),
        ({"value.converter.schemas.enable": None}, "value_converter", config.JsonConverter(schemas_enable=True)),
        (
            {"value.converter": "io.confluent.connect.json.JsonSchemaConverter"},
            "value_converter",
            config.JsonSchemaConverter(),
        ),
        (
            {"store.kafka.keys": "true", "key.converter": "org.apache.kafka.connect.storage.StringConverter"},
            "content",
            config.SiblingObjects(keys=config.AvroContainer()),
        ),
        (
            {
                "store.kafka.headers": "true",
                "headers.format.class": "io.confluent.connect.s3.format.json.JsonFormat",
                "s3.compression.type": "gzip",
            },
            "content",
            config.SiblingObjects(keys=None, headers=config.JsonLines(compression="gzip")),
        ),
        (BY_HOUR, "partitioner", config.Hourly(timezone="Europe/Berlin", timestamp_from=config.ClockTime())),
        (
            {
                **BY_HOUR,
                "timestamp.extractor": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner"
                "$RecordFieldTimestampExtractor",
                "timestamp.field": "event.time",
            },
            "partitioner",
            config.Hourly(timezone="Europe/Berlin", timestamp_from=config.FieldTime(name="event.time")),
        ),
        (
            {
                "partitioner.class": "io.confluent.connect.storage.partitioner.FieldPartitioner",
                "partition.field.name": "country, user.city",
            },
            "partitioner",
            config.ByField(names=("country", "user.city")),
        ),
        (
            {
                **BY_HOUR,
                "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
                "path.format": "MMMM/",
                "partition.duration.ms": 60_000,
                "locale": "fr",
                "timestamp.extractor": "Record",
            },
            "partitioner",
            config.TimePattern(path_format="MMMM", duration_ms=60_000, locale="fr", timezone="Europe/Berlin"),
        ),
        (
            {"directory.delim": "|", "file.delim": "-", "s3.schema.partition.affix.type": "suffix"},
            "naming",
            config.Naming(directory_delim="|", file_delim="-", schema_affix="SUFFIX", kafka_connect_names=True),
        ),
        (
            {"partitioner.max.open.files": "7"},
            "rotation",
            config.Rotation(
                flush_size=1000, whole_partitions=True, max_bytes=9_000 * 8 * config.MIB, max_open_objects=7
            ),
        ),
        ({"topics.dir": ""}, "topics_dir", ""),
        ({"topics": "a, b"}, "topics", ["a", "b"]),
        ({"name": "Orders to S3!"}, "pipeline", "Orders-to-S3"),
        (
            {
                "s3.object.tagging": "true",
                "s3.object.tagging.key.value.pairs": "team:lake, url:a:b",
                "s3.acl.canned": "bucket-owner-full-control",
                "s3.ssea.name": "aws:kms",
                "s3.sse.kms.key.id": "alias/lake",
            },
            "upload",
            config.Upload(
                offset_tags=True,
                on_tag_error="ignore",
                tags={"team": "lake", "url": "a:b"},
                acl="bucket-owner-full-control",
                encryption=config.SseKms(key_id="alias/lake"),
            ),
        ),
        ({"s3.ssea.name": "AES256"}, "upload", config.Upload(encryption=config.SseS3())),
        ({"s3.retry.backoff.ms": "60000"}, "request_retry", RetryPolicy(base=60.0, cap=60.0)),
        ({"consumer.override.isolation.level": "read_uncommitted"}, "isolation", "read_uncommitted"),
        ({"consumer.override.auto.offset.reset": "latest"}, "starting_offsets", "latest"),
    ],
)
def test_settings_become_parameters(settings: dict[str, Any], parameter: str, expected: Any) -> None:
    """One parameter of each case is looked at."""
    assert converted(settings).parameters[parameter] == expected


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"value.converter": None}, "value.converter: is missing: the one of the worker applies"),
        ({"topics": None, "topics.regex": "a.*"}, "topics.regex: a run lands the topics of a list"),
        ({"topics": None}, "topics: is missing"),
        ({"name": None}, "name: is missing"),
        ({"flush.size": None}, "flush.size: is missing"),
        ({"flush.size": "0"}, "flush.size: rotation: flush_size=0 must be a positive"),
        ({"format.class": "com.example.CsvFormat"}, "format.class: 'com.example.CsvFormat' is not supported"),
        ({"storage.class": "io.confluent.connect.hdfs.storage.HdfsStorage"}, "storage.class"),
        ({"partitioner.class": "com.example.DailyPartitioner"}, "partitioner.class: 'com.example.DailyPartitioner'"),
        ({**BY_HOUR, "timestamp.extractor": "com.example.Mine"}, "timestamp.extractor: 'com.example.Mine'"),
        ({**BY_HOUR, "timezone": "Mars/Olympus"}, "timezone: timezone='Mars/Olympus' is not in the zone database"),
        ({**BY_HOUR, "timezone": None}, "timezone: is missing"),
        (
            {"s3.bucket.name": "${file:/etc/connect:bucket}"},
            "s3.bucket.name: '${file:/etc/connect:bucket}' is resolved",
        ),
        ({"s3.credentials.provider.class": "com.example.Mine"}, "s3.credentials.provider.class: 'com.example.Mine'"),
        ({"schema.compatibility": "BACKWARDS"}, "did you mean 'BACKWARD'?"),
        ({"value.converter.encoding": "latin1"}, "value.converter.encoding: texts are UTF-8"),
        ({"behavior.on.null.values": "write"}, "layout: on_null='write' writes the keys of null values"),
        (
            {
                "behavior.on.null.values": "write",
                "store.kafka.keys": "true",
                "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                "tombstone.encoded.partition": "nulls",
            },
            "tombstone.encoded.partition: 'nulls' is refused",
        ),
        ({"store.kafka.keys": "true"}, "key.converter: is missing"),
        ({"format.class": AVRO["format.class"]}, "layout: value_converter='json' needs a schema with format="),
        ({"s3.object.tagging.key.value.pairs": "lake"}, "must be pairs such as team:lake"),
        ({"consumer.override.interceptor.classes": "x"}, "consumer.override.interceptor.classes: records are read"),
        ({"s3.part.size": "1"}, "part_size=1 must be"),
    ],
)
def test_settings_that_have_no_equivalent_are_refused(settings: dict[str, Any], error: str) -> None:
    """With the reason and what to do."""
    assert error in refusal(settings)


@pytest.mark.parametrize("setting", [s for s in (*SINK, *FRAMEWORK) if s.use == "none"], ids=lambda s: s.name)
def test_settings_without_a_meaning_change_nothing(setting: Any) -> None:
    """And the reason is named."""
    name = setting.name.replace("*", "x")
    value = {"connector.class": MINIMAL["connector.class"], "storage.class": MINIMAL["storage.class"]}.get(name, "1")
    result = converted({name: value})
    assert result.parameters == converted().parameters
    assert notes(result)[name] == setting.here


@pytest.mark.parametrize(
    ("name", "value", "beside"),
    [
        ("tasks.max", "0", {}),
        ("retry.backoff.ms", "often", {}),
        ("errors.log.enable", "perhaps", {}),
        ("s3.elastic.buffer.init.capacity", "-1", {}),
        ("rotate.interval.ms", "0", {}),
        ("rotate.interval.ms", "-5", {}),
        ("rotate.schedule.interval.ms", "60000", {}),
        ("partition.duration.ms", "0", {}),
        ("path.format", "", {}),
        ("timezone", "Mars/Olympus", {}),
        ("locale", "", BY_HOUR),
        ("locale", "xx-nowhere", BY_PATTERN),
        ("locale", "", BY_PATTERN),
        ("keys.format.class", "com.example.Mine", {}),
        ("headers.format.class", "com.example.Mine", {}),
        ("key.converter", "com.example.Mine", {}),
        ("header.converter", "com.example.Mine", {}),
        ("consumer.override.fetch.max.bytes", "many", {}),
        ("s3.region", "mars-1", {}),
        ("s3.proxy.url", "x", {}),
        ("store.url", "x", {}),
        ("value.converter.decimal.format", "ROMAN", {}),
        ("transforms.x.type", "com.example.Mine", {"transforms": "x"}),
        ("predicates.x.type", "com.example.Mine", {"predicates": "x"}),
    ],
)
def test_what_connect_refuses_and_this_takes_is_documented(name: str, value: str, beside: dict[str, str]) -> None:
    """By name, in the table of docs/differences-from-kafka-connect.md."""
    assert converted({**beside, name: value}).parameters["pipeline"] == "orders-to-s3"
    page = (Path(__file__).parents[3] / "docs" / "differences-from-kafka-connect.md").read_text()
    rows = page.partition("## Where Kafka Connect stops and this goes on")[2].partition("\n\n## ")[0]
    assert f"`{name}`" in rows


BY_TIME_OF_RECORD = {**BY_HOUR, "timestamp.extractor": "Record"}


@pytest.mark.parametrize(
    ("settings", "interval", "on_change"),
    [
        ({"rotate.interval.ms": "60000"}, 60_000, True),
        ({"rotate.interval.ms": "60000", "rotate.file.on.partition.change": "false"}, 60_000, False),
        ({"rotate.interval.ms": "60000", "timestamp.extractor": "RecordField"}, 60_000, True),
        ({"rotate.interval.ms": "-1"}, None, False),
        ({"rotate.file.on.partition.change": "true"}, None, False),
    ],
)
def test_rotation_by_time_is_that_of_connect(settings: dict[str, Any], interval: int | None, on_change: bool) -> None:
    """The change of the partition counts by default, and with an interval only."""
    result = converted({**BY_TIME_OF_RECORD, **settings}).parameters["rotation"]
    assert (result.rotate_interval_ms, result.rotate_on_partition_change) == (interval, on_change)


def test_rotation_by_time_is_kept_with_a_chain_in_place_of_the_partitioner() -> None:
    """Whose times count is known from its link by time."""
    chain = config.Chain(partitioners=(config.ByField(names=("country",)), config.Hourly()))
    result = converted({"rotate.interval.ms": "60000"}, partitioner=chain)
    assert result.parameters["rotation"].rotate_interval_ms == 60_000


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({}, "no effect: the partitioner is not one by time"),
        (BY_HOUR, "no effect: all records of a batch have one time, that of its plan"),
        ({**BY_TIME_OF_RECORD, "rotate.interval.ms": "0"}, "no effect: it is not positive"),
    ],
)
def test_rotation_by_time_has_no_effect_without_times_of_records(settings: dict[str, Any], note: str) -> None:
    """As in Connect, or as a run has no clock of its own; so it is no error."""
    given = {"rotate.interval.ms": "60000", "rotate.file.on.partition.change": "true"}
    result = converted({**given, **settings})
    assert result.parameters["rotation"] == converted().parameters["rotation"]
    assert notes(result)["rotate.interval.ms"] == note
    assert notes(result)["rotate.file.on.partition.change"].startswith("no effect: ")


def test_refused_settings_may_be_empty() -> None:
    """As forms of web pages send them."""
    result = converted({"transforms": "", "predicates": " ", "topics.regex": ""})
    assert result.parameters == converted().parameters
    assert notes(result)["transforms"] == "no effect: it is empty"


def test_settings_of_other_formats_and_partitioners_are_named_as_without_effect() -> None:
    """As Connect ignores them."""
    settings = {"avro.codec": "snappy", "path.format": "YYYY", "key.converter": "com.example.Mine", "locale": "en"}
    result = converted(settings)
    assert result.parameters == converted().parameters
    assert all(notes(result)[name].startswith("no effect: ") for name in settings)


def test_parameters_replace_settings_also_refused_ones() -> None:
    """A parameter wins over all settings that it stands for."""
    result = converted(
        {
            **BY_HOUR,
            "rotate.interval.ms": "5",
            "topics.regex": "a.*",
            "topics": None,
            "format.class": "com.example.Mine",
        },
        topics=["a1", "a2"],
        format="json",
        rotation={"flush_size": 5},
        offsets="data_interval",
        task_id="land",
    )
    assert result.parameters["topics"] == ["a1", "a2"]
    assert (result.parameters["format"], result.parameters["task_id"]) == (config.JsonLines(), "land")
    assert "starting_offsets" not in result.parameters
    assert notes(result)["format.class"] == "replaced by the parameter format"
    assert layout_of(result.parameters).rotation == config.Rotation(flush_size=5)


def test_a_class_in_java_is_replaced_by_one_in_python() -> None:
    """The error has the parameter to give, and with it the connector is converted."""
    settings = {"partitioner.class": "com.example.Tenants", "format.class": "com.example.Boxes"}
    error = refusal(settings)
    assert "or your own class, in Python: from_connect_config(..., partitioner=CustomPartitioner(import_path='" in error
    assert "or your own class, in Python: from_connect_config(..., format=CustomFormat(import_path='" in error
    tenants = config.CustomPartitioner(import_path="mycompany.tenants:Tenants")
    boxes = config.CustomFormat(import_path="mycompany.boxes:Boxes", extension=".box")
    result = converted(settings, partitioner=tenants, format=boxes)
    assert (result.parameters["partitioner"], result.parameters["format"]) == (tenants, boxes)
    assert notes(result)["partitioner.class"] == "replaced by the parameter partitioner"


def test_the_worker_has_the_converters_of_connectors_without_their_own() -> None:
    """As in Connect; its other settings are not looked at."""
    worker = (
        "bootstrap.servers=b:1\nvalue.converter=io.confluent.connect.avro.AvroConverter\n"
        "value.converter.schema.registry.url=http://registry:8081\nkey.converter=com.example.Mine\n"
    )
    bare = {"value.converter": None, "value.converter.schemas.enable": None}
    result = convert({k: v for k, v in MINIMAL.items() if k not in bare}, worker=worker)
    assert result.parameters["value_converter"] == config.AvroConverter()
    assert result.connections["registry_conn_id"]["host"] == "http://registry:8081"
    assert converted(worker=worker).parameters == converted().parameters


SECRETS = {
    "aws.access.key.id": SECRET,
    "aws.secret.access.key": SECRET,
    "s3.ssea.name": "AES256",
    "s3.sse.customer.key": SECRET,
    "s3.proxy.url": f"https://me:{SECRET}@proxy:3128",
    "s3.proxy.user": SECRET,
    "s3.proxy.password": SECRET,
    "store.url": f"https://me:{SECRET}@store:9000",
    "s3.credentials.provider.class": "io.confluent.connect.s3.auth.AwsAssumeRoleCredentialsProvider",
    "s3.credentials.provider.sts.role.arn": "arn:aws:iam::123456789012:role/partner",
    "s3.credentials.provider.sts.role.external.id": SECRET,
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": f"https://me:{SECRET}@r-1:8081,https://r-2:8081",
    "value.converter.basic.auth.user.info": SECRET,
    "value.converter.bearer.auth.token": SECRET,
    "value.converter.schema.registry.ssl.keystore.password": SECRET,
    "consumer.override.sasl.jaas.config": SECRET,
    "consumer.override.ssl.key.password": SECRET,
}


def test_secrets_are_in_no_result() -> None:
    """The notes name the fields of the connections that they belong into."""
    result = converted(SECRETS)
    assert SECRET not in repr(result) + python_call(result.parameters)
    assert result.parameters["upload"] == config.Upload(encryption=config.SseCustomer())
    assert "`sse_customer_key`" in notes(result)["s3.sse.customer.key"]
    assert "password of the AWS connection" in notes(result)["aws.secret.access.key"]
    assert result.connections["aws_conn_id"]["extra"] == {
        "region_name": "us-west-2",
        "endpoint_url": "https://store:9000",
        "config_kwargs": {"proxies": {"https": "https://proxy:3128"}},
        "role_arn": "arn:aws:iam::123456789012:role/partner",
    }
    assert result.connections["registry_conn_id"] == {
        "conn_type": "http",
        "host": "https://r-1:8081",
        "extra": {"urls": ["https://r-2:8081"]},
    }


def test_secrets_are_in_no_error() -> None:
    """Neither those of known settings, nor the values of unknown ones."""
    assert SECRET not in refusal({**SECRETS, "aws.secret.acces.key": SECRET, "flush.size": "x", "topics": ""})


@pytest.mark.parametrize("sink", [CONFLUENT, DEVIANTART_SETTINGS], ids=lambda sink: sink.bucket)
def test_every_setting_is_found_by_its_name(sink: Sink) -> None:
    """Also those that stand for several, and each has its own words."""
    names = sink.known_names
    assert len(set(names)) == len(names) > 100
    assert all((found := sink.find(name)) is not None and found.name == name for name in names)
    assert sink.find("transforms.a.type") == sink.find("transforms.*")
    assert sink.find("consumer.override.sasl.jaas.config") == sink.find("consumer.override.sasl.*")
    assert sink.find("rotate.scheduled.interval.ms") is None
    assert all(setting.here for setting in (*SINK, *DEVIANTART_SINK, *FRAMEWORK, *CONVERTER, *CONSUMER))


def test_the_sink_of_deviantart_has_an_equivalent_operator() -> None:
    """Blocks of gzip with an index, one folder per day; each setting is in it, or named with the reason."""
    result = convert(DEVIANTART)
    assert result.parameters == {
        "task_id": "orders-backup",
        "topics": ["orders", "refunds"],
        "bucket": "lake",
        "pipeline": "orders-backup",
        "offsets": "incremental",
        "starting_offsets": "earliest",
        "format": config.BlockGzip(lines=config.RawBytes(extension=""), encoder="zlib", block_size=1_048_576),
        "value_converter": config.BytesConverter(),
        "partitioner": config.TimePattern(path_format="yyyy-MM-dd", duration_ms=86_400_000),
        "topics_dir": "raw/backup",
        "naming": config.DeviantArtNaming(),
    }
    assert notes(result).keys() == DEVIANTART.keys()
    assert notes(result)["key.converter"] == "no effect: no keys are stored"
    assert result.connections == {
        "aws_conn_id": {
            "conn_type": "aws",
            "extra": {"endpoint_url": "http://minio:9000", "config_kwargs": {"s3": {"addressing_style": "path"}}},
        },
        "kafka_conn_id": {"conn_type": "kafka", "extra": {}},
    }
    assert result.consumer_group == "connect-orders-backup"


def test_the_sink_of_deviantart_without_optional_settings_writes_to_the_top_of_the_bucket() -> None:
    """An empty prefix, AWS, and the host of the bucket in URLs."""
    optional = ("s3.prefix", "s3.endpoint", "s3.path_style", "compressed_block_size", "local.buffer.dir")
    result = convert({name: value for name, value in DEVIANTART.items() if name not in optional})
    assert result.parameters["topics_dir"] == ""
    assert result.parameters["format"].block_size == 64 * 1024 * 1024
    assert result.connections["aws_conn_id"] == {"conn_type": "aws", "extra": {}}


def test_all_that_is_wrong_with_a_sink_of_deviantart_is_one_error() -> None:
    """Settings of the other sink are unknown to it."""
    with pytest.raises(ConfigurationError) as caught:
        convert(
            {
                **DEVIANTART,
                "s3.bucket": "",
                "s3.bucket.name": "lake",
                "flush.size": "3",
                "s3.path_style": "yes",
                "compressed_block_size": "-1",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            }
        )
    error = str(caught.value)
    assert "because of 6 settings" in error
    assert "  s3.bucket.name: is not a setting of DeviantArt's S3 sink; did you mean 's3.bucket'?" in error
    assert "  flush.size: is not a setting of DeviantArt's S3 sink" in error
    assert "  s3.bucket: is missing" in error
    assert "  s3.path_style: 'yes' must be 'true' or 'false'" in error
    assert "  compressed_block_size: must not be negative" in error
    assert "is refused: the sink writes what Java prints for its values" in error


def test_printed_python_makes_the_same_layout() -> None:
    """The code is valid, and complete with its imports."""
    settings = [
        CUSTOMER,
        {**MINIMAL, **BY_HOUR, "s3.object.tagging": "true", "s3.object.tagging.key.value.pairs": "a:b"},
        DEVIANTART,
        {**MINIMAL, "file.delim": "'\"+", "store.kafka.headers": "true", "s3.ssea.name": "aws:kms"},
    ]
    for one in settings:
        result = convert(one)
        names: dict[str, Any] = {}
        call = (
            python_call(result.parameters)
            .replace("KafkaToS3Operator,", "")
            .replace("KafkaToS3Operator(", "made = dict(")
        )
        exec(call, names)
        assert names["made"] == result.parameters
        now = datetime(2026, 1, 2, tzinfo=UTC)
        assert layout_of(names["made"]).at(int(now.timestamp())) == layout_of(result.parameters).at(
            int(now.timestamp())
        )
