"""An operator that is made from the configuration of a connector lands what the connector would have written."""

from __future__ import annotations

import gzip
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider_kafka_s3 import Daily, KafkaToS3Operator
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka_connect.call import python_call
from airflow_provider_kafka_s3.kafka_connect.convert import convert
from airflow_provider_kafka_s3.testing.pipeline import SimulatedPipeline
from tests.unit.kafka_connect.connectors import CUSTOMER, DEVIANTART, MINIMAL
from tests.unit.operators.conftest import make_context

AT = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)


def test_a_sink_in_production_is_replaced() -> None:
    """Protobuf in, Parquet out, under the names of Connect; a broken value is set aside."""
    with SimulatedPipeline() as simulated:
        schema = simulated.registry.register('syntax = "proto3"; message Event { string id = 1; }', type="PROTOBUF")
        values = [simulated.registry.frame(schema, b"\0" + b"\x0a\x02" + text) for text in (b"e1", b"e2", b"e3")]
        simulated.append("events", *values, b"broken", at=AT)
        landed = KafkaToS3Operator.from_connect_config(CUSTOMER).execute(make_context())["landed"]
        (key,) = simulated.objects("topics/events/dt=")
        assert key == "topics/events/dt=2026-03-04/hr=05/us-east-1/events+0+00000000000000000000.zstd.parquet"
        assert pq.read_table(io.BytesIO(simulated.objects()[key])).to_pylist() == [
            {"id": "e1"},
            {"id": "e2"},
            {"id": "e3"},
        ]
        assert landed["records"] == 3
        assert len(simulated.objects("topics/events/_dead_letters")) == 1


def test_the_sink_of_deviantart_lands_lines_in_its_folders_of_days_with_index_and_marker_file() -> None:
    """By gzip, below the prefix and the day of the records."""
    with SimulatedPipeline() as simulated:
        simulated.append("orders", b"one", b"{two", at=AT)
        simulated.append("refunds", b"three", at=AT)
        KafkaToS3Operator.from_connect_config(DEVIANTART).execute(make_context())
        found = {key.removeprefix("raw/backup/"): body for key, body in simulated.objects().items()}
        day = f"{AT:%Y-%m-%d}"
        assert {key: gzip.decompress(body) for key, body in found.items() if key.endswith(".gz")} == {
            f"{day}/orders-00000-000000000000.gz": b"one\n{two\n",
            f"{day}/refunds-00000-000000000000.gz": b"three\n",
        }
        assert {key: body for key, body in found.items() if key.endswith(".txt")} == {
            f"last_chunk_index.{topic}-00000.txt": f"raw/backup/{day}/{topic}-00000-000000000000.index.json".encode()
            for topic in ("orders", "refunds")
        }


@pytest.mark.parametrize("form", ["mapping", "REST", "JSON", "properties", "path"])
def test_every_form_makes_the_same_operator(form: str, tmp_path: Path) -> None:
    """It lands records without any other parameter."""
    text = json.dumps(MINIMAL)
    (tmp_path / "connector.json").write_text(text)
    given = {
        "mapping": MINIMAL,
        "REST": {"name": MINIMAL["name"], "config": MINIMAL},
        "JSON": text,
        "properties": "\n".join(f"{name}={value}" for name, value in MINIMAL.items()),
        "path": tmp_path / "connector.json",
    }[form]
    task = KafkaToS3Operator.from_connect_config(given)
    assert (task.task_id, task.pipeline, task.topics) == ("orders-to-s3", "orders-to-s3", ["orders"])
    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"id": 1}, {"id": 2})
        task.execute(make_context())
        assert list(simulated.objects()) == ["topics/orders/partition=0/orders+0+0000000000.json"]
        assert simulated.records("orders") == [{"id": 1}, {"id": 2}]
        simulated.check()


def test_objects_begin_where_those_of_connect_did() -> None:
    """A slice is a whole Kafka partition, however small slices are; a late record is by itself, as in Connect."""
    by_hour = {
        "partitioner.class": "io.confluent.connect.storage.partitioner.HourlyPartitioner",
        "timezone": "UTC",
        "locale": "en-US",
        "timestamp.extractor": "Record",
        "flush.size": "4",
        "rotate.interval.ms": "600000",
    }
    task = KafkaToS3Operator.from_connect_config({**MINIMAL, **by_hour}, limits={"records_per_slice": 2})
    minutes = [0, 1, 2, 3, 4, 15, 16, -30, 17]
    with SimulatedPipeline() as simulated:
        for minute in minutes:
            simulated.append("orders", {"minute": minute}, at=AT.replace(minute=0) + timedelta(minutes=minute))
        task.execute(make_context())
        names = sorted(key.rpartition("+")[2] for key in simulated.objects())
        assert names == [f"{start:010d}.json" for start in (0, 4, 5, 7, 8)]
        simulated.check()


def test_an_extension_without_a_dot_is_in_the_names_as_it_is() -> None:
    """As in Connect, which writes what it is given; the objects are read back by their names."""
    settings = {
        "format.class": "io.confluent.connect.s3.format.bytearray.ByteArrayFormat",
        "format.bytearray.extension": "json",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    }
    task = KafkaToS3Operator.from_connect_config({**MINIMAL, **settings, "topics": "orders"})
    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"a": 1}, {"a": 2})
        task.execute(make_context())
        assert [key.rpartition("/")[2] for key in simulated.objects()] == ["orders+0+0000000000json"]
        simulated.check()


def test_parameters_of_the_operator_win() -> None:
    """Those of Airflow are passed on."""
    task = KafkaToS3Operator.from_connect_config(
        MINIMAL, task_id="land", pipeline="p", partitioner="daily", offsets="data_interval", retries=7
    )
    assert (task.task_id, task.pipeline, task.partitioner, task.retries) == ("land", "p", Daily(), 7)
    assert (task.offsets, task.starting_offsets) == ("data_interval", None)


def test_transforms_are_a_warning_of_the_dag() -> None:
    """It names what replaces them; the operator is made."""
    masked = {"transforms": "m", "transforms.m.type": "org.apache.kafka.connect.transforms.MaskField$Value"}
    with pytest.warns(UserWarning, match=r"transforms\.m\.type: .*MaskField\$Value is left out: .*unmasked"):
        assert KafkaToS3Operator.from_connect_config({**MINIMAL, **masked}).bucket == "lake"


def test_a_connector_that_cannot_be_converted_is_an_error_of_the_dag() -> None:
    """Raised where the operator is made, with all names."""
    with pytest.raises(ConfigurationError, match=r"(?s)2 settings:.*topics\.regex.*rotate\.scheduled"):
        KafkaToS3Operator.from_connect_config({**MINIMAL, "topics.regex": "a.*", "rotate.scheduled.interval.ms": "1"})


@pytest.mark.parametrize("connector", [MINIMAL, CUSTOMER, DEVIANTART], ids=lambda c: c["name"])
def test_printed_python_makes_the_same_operator(connector: dict[str, str]) -> None:
    """With the same layout and the same upload."""
    names: dict[str, type[KafkaToS3Operator]] = {}
    code = python_call(convert(connector).parameters).replace("\n\nKafkaToS3Operator(", "\n\nmade = KafkaToS3Operator(")
    exec(code, names)
    printed, made = names["made"], KafkaToS3Operator.from_connect_config(connector)
    for name in convert(connector).parameters:
        assert getattr(printed, name) == getattr(made, name), name
