"""Objects of other sinks, listed by their names and indices in the order of their records."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.config import Naming
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.formats.block_index import Chunk
from airflow_provider_kafka_s3.reading.foreign import ForeignObject, list_foreign_objects
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from tests.connect_corpus import SCENARIOS
from tests.deviantart_sink import sink_objects


def bucket(*keys: str, **objects: bytes) -> DurableStore:
    """A bucket with objects of three bytes at these keys."""
    memory = MemoryStore("lake")
    for key in keys:
        memory.put_new(key, b"abc")
    for key, body in objects.items():
        memory.put_new(key, body)
    return DurableStore(memory, Retrier())


def shown(one: ForeignObject) -> tuple[object, ...]:
    """What its name says."""
    return (one.first_offset, one.folders, one.format, one.compression, dict(one.beside))


def test_objects_of_confluents_sink_are_in_the_order_of_their_offsets() -> None:
    """Over all folders; keys and headers are beside values, and other objects are left out."""
    store = bucket(
        "t/orders/f=b/orders+0+0000000005.json",
        "t/orders/f=a/orders+0+0000000010.json.gz",
        "t/orders/f=a/orders+0+0000000003.json",
        "t/orders/f=a/orders+11+0000000000.snappy.parquet",
        "t/orders/f=a/orders+1+0000000000.avro",
        "t/orders/f=a/orders+1+0000000000.keys.avro",
        "t/orders/f=a/orders+1+0000000000.headers.json",
        "t/orders/f=a/orders+1+0000000007.what",
        "t/orders/f=a/_SUCCESS",
        "t/orders/f=a/other+0+0000000000.json",
        "t/orders2/f=a/orders2+0+0000000000.json",
    )
    found = list_foreign_objects(store, topics_dir="t", topic="orders")
    assert {partition: [shown(one) for one in some] for partition, some in found.items()} == {
        0: [
            (3, "f=a", "json", "none", {}),
            (5, "f=b", "json", "none", {}),
            (10, "f=a", "json", "gzip", {}),
        ],
        1: [
            (
                0,
                "f=a",
                "avro",
                "none",
                {
                    "keys": "t/orders/f=a/orders+1+0000000000.keys.avro",
                    "headers": "t/orders/f=a/orders+1+0000000000.headers.json",
                },
            ),
            (7, "f=a", None, "none", {}),
        ],
        11: [(0, "f=a", "parquet", "none", {})],
    }
    assert [one.size for one in found[11]] == [3]
    before = list_foreign_objects(store, topics_dir="t", topic="orders", before={0: 6})
    assert {partition: len(some) for partition, some in before.items()} == {0: 2}


def test_delimiters_are_those_of_the_sink() -> None:
    """Given as the naming of a layout."""
    store = bucket("t-orders-p=0-orders.0.0000000003.bin")
    naming = Naming(directory_delim="-", file_delim=".")
    (one,) = list_foreign_objects(store, topics_dir="t", topic="orders", naming=naming)[0]
    assert shown(one) == (3, "p=0", "bytes", "none", {})


@pytest.mark.parametrize("name", ["D03", "F01", "R01"])
def test_the_objects_of_the_real_sink_are_all_listed(name: str) -> None:
    """Of recorded runs."""
    scenario = SCENARIOS[name]
    objects = scenario.objects(scenario.topic)
    store = bucket(**objects)
    topics_dir = scenario.connector(scenario.topic).get("topics.dir", "topics")
    found = list_foreign_objects(store, topics_dir=topics_dir, topic=scenario.topic)
    assert sorted(one.key for some in found.values() for one in some) == sorted(objects)
    assert all(one.format == "json" for some in found.values() for one in some)


@pytest.mark.parametrize("prefix", ["", "pfx/"])
def test_objects_of_deviantarts_sink_have_the_chunks_of_their_indices(prefix: str) -> None:
    """With the number of records; one without an index was not finished."""
    records = [(n + (n > 3), f"record {n}") for n in range(9)]
    objects = {
        **sink_objects(prefix, "2026-01-02", "orders", 0, records[5:], block_size=20),
        **sink_objects(prefix, "2026-01-03", "orders", 0, records[:5], block_size=20),
        **sink_objects(prefix, "2026-01-02", "orders-00000", 0, records, block_size=20),
        f"{prefix}2026-01-04/orders-00000-000000000010.gz": b"unfinished",
    }
    found = list_foreign_objects(bucket(**objects), topics_dir=prefix.rstrip("/"), topic="orders", layout="deviantart")
    assert [*found] == [0]
    assert [(one.folders, one.first_offset, one.records, len(one.chunks)) for one in found[0]] == [
        ("2026-01-03", 0, 5, 3),
        ("2026-01-02", 6, 4, 2),
    ]
    first = found[0][0]
    assert (first.format, first.compression, first.size) == ("bytes", "gzip", len(objects[first.key]))
    assert first.chunks[1] == Chunk(
        byte_length_uncompressed=18,
        num_records=2,
        byte_length=first.chunks[1].byte_length,
        byte_offset=first.chunks[0].byte_length,
        first_record_offset=2,
    )


def test_two_objects_that_begin_with_one_offset_are_refused() -> None:
    """The sink wrote records again on another day: which one to read is a person's decision."""
    records = [(n, f"record {n}") for n in range(3)]
    objects = {
        **sink_objects("", "2026-01-02", "orders", 0, records, block_size=20),
        **sink_objects("", "2026-01-03", "orders", 0, records[:2], block_size=20),
    }
    with pytest.raises(ConfigurationError, match="with the same first offset as another") as caught:
        list_foreign_objects(bucket(**objects), topics_dir="", topic="orders", layout="deviantart")
    assert "s3://lake/2026-01-02/orders-00000-000000000000.gz" in str(caught.value)
    assert "s3://lake/2026-01-03/orders-00000-000000000000.gz" in str(caught.value)


@pytest.mark.parametrize("damaged", [b"", b"[]", b"\xff", b'{"chunks":[]}', b'{"chunks":[{"num_records":1}]}'])
def test_a_damaged_index_is_refused(damaged: bytes) -> None:
    """Also one that is not that of its object."""
    objects = sink_objects("", "2026-01-02", "orders", 0, [(0, "x")], block_size=20)
    objects["2026-01-02/orders-00000-000000000000.index.json"] = damaged
    with pytest.raises(ConfigurationError, match=r"000000000000\.index\.json is damaged"):
        list_foreign_objects(bucket(**objects), topics_dir="", topic="orders", layout="deviantart")
