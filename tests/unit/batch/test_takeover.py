"""A pipeline goes on where a sink of Kafka Connect has ended, for every recorded scenario and place to stop."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import JsonLines, Layout, ValuesOnly
from airflow_provider_kafka_s3.documents.marker import ClosedGeneration, Marker
from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError, ForeignObjectError
from airflow_provider_kafka_s3.kafka.offsets import ConsumerGroup
from airflow_provider_kafka_s3.kafka_connect.convert import convert, layout_of
from airflow_provider_kafka_s3.maintenance.takeover import Takeover
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from tests.connect_corpus import SCENARIOS, Scenario

WRITTEN_OTHERWISE = {
    "J01": "Connect loses digits of numbers",
    "J02": "Connect loses digits of numbers",
    "F06": "a control character in the name of a folder",
    "J09": "Connect keeps no order of maps whose keys are no strings",
}
"""Objects that differ from what is written here, so they cannot be compared."""


def layout_for(scenario: Scenario) -> Layout | None:
    """The layout of a connector whose objects can be compared; None for the others."""
    try:
        layout = layout_of(convert(scenario.connector(scenario.topic)).parameters)
    except ConfigurationError:
        return None
    return layout if isinstance(layout.content, ValuesOnly) else None


COMPARABLE = {
    name: layout
    for name, scenario in SCENARIOS.items()
    if scenario.case["error"] is None and name not in WRITTEN_OTHERWISE and (layout := layout_for(scenario)) is not None
}


class World:
    """A sink that has stopped, in memory."""

    def __init__(self, name: str, layout: Layout | None = None) -> None:
        self.scenario = SCENARIOS[name]
        self.topic = self.scenario.topic
        self.layout = layout or COMPARABLE[name]
        self.bucket = MemoryStore("lake")
        self.kafka = SimulatedKafka()
        self.scenario.fill(self.kafka)
        for key, body in self.scenario.objects(self.topic).items():
            self.bucket.put_new(key, body)
        store = DurableStore(self.bucket, Retrier())
        self.pipeline = TopicPipeline(
            store, self.kafka, topics_dir=self.layout.topics_dir, pipeline="p", topic=self.topic
        )

    def plan(self, committed: dict[int, int], *, state: str = "", **more: Any) -> Takeover:
        """Decide where the pipeline goes on."""
        return self.pipeline.plan_takeover(ConsumerGroup("g", state, {self.topic: committed}), self.layout, **more)

    def move_all(self, takeover: Takeover) -> None:
        """Move the objects in the way."""
        for one in takeover.in_the_way:
            stored = self.bucket.get(one.key)
            assert stored is not None
            self.bucket.put_new(one.move_to, stored.body)
            self.bucket.delete(one.key)

    def land(self) -> None:
        """Land all that is new."""
        self.pipeline.land(
            RunRequest(run="first", offsets="incremental", layout=self.layout.at(1), starting="earliest")
        )

    def visible(self) -> list[str]:
        """Of objects that readers see."""
        return [info.key for info in self.bucket.list("") if "_kafka_s3/" not in info.key]

    def lines(self) -> Counter[str]:
        """All records in visible objects."""
        return Counter(line for key in self.visible() for line in self._lines(key))

    def _lines(self, key: str) -> Iterator[str]:
        stored = self.bucket.get(key)
        assert stored is not None
        body = gzip.decompress(stored.body) if key.endswith(".gz") else stored.body
        if not isinstance(self.layout.format, JsonLines):
            yield from body.decode("latin-1")  # records have no ends: all bytes have to be there
            return
        yield from (without_order(line) for line in body.splitlines())


def without_order(line: bytes) -> str:
    """A JSON document in one notation."""
    return json.dumps(json.loads(line), sort_keys=True)


def boundaries(scenario: Scenario, partition: int) -> list[int]:
    """Offsets that the sink may have committed for partition: all objects end before it, or begin behind it."""
    first, last = scenario.records[partition][0].offset, scenario.committed.get(partition, 0)
    settings = scenario.case["config"]
    if "JsonFormat" not in settings["format.class"] or "schema.compatibility" in settings:
        return [first, last]
    return [record.offset for record in scenario.records[partition] if record.offset <= last]


def everything(name: str, layout: Layout) -> Counter[str]:
    """What a pipeline that lands all records writes."""
    world = World(name, layout)
    for key in world.visible():
        world.bucket.delete(key)
    world.land()
    return world.lines()


@pytest.mark.parametrize("name", COMPARABLE)
def test_every_place_to_stop_is_gone_on_from_without_loss_or_duplicates(name: str) -> None:
    """The group has any committed offset, with all objects from there on; objects in the way are moved first."""
    wanted = everything(name, COMPARABLE[name])
    scenario = SCENARIOS[name]
    for offset in boundaries(scenario, 0):
        world = World(name)
        committed = {**{p: scenario.records[p][0].offset for p in scenario.records}, **scenario.committed, 0: offset}
        whole = {key for key in world.visible() if _start(world, key)[0] == 0 and _start(world, key)[1] < offset}
        # A sink commits only behind whole objects, so others are not there at this offset.
        if any(last >= offset for last in (_last(world, key) for key in whole)):
            continue
        takeover = world.plan(committed)
        assert takeover.start[0] == scenario.committed.get(0, offset)
        assert not takeover.in_the_way
        world.pipeline.take_over(takeover, world.layout)
        world.land()
        assert world.lines() == wanted
        assert world.plan(committed).done


@pytest.mark.parametrize("name", COMPARABLE)
def test_any_object_may_be_missing_among_those_past_the_committed_offset(name: str) -> None:
    """The sink stopped before its upload: records are landed up to it or again, and each is there once."""
    wanted = everything(name, COMPARABLE[name])
    scenario = SCENARIOS[name]
    committed = {p: scenario.records[p][0].offset for p in scenario.records}
    for key in World(name).visible():
        world = World(name)
        world.bucket.delete(key)
        takeover = world.plan(committed)
        partition, first = _start(world, key)
        assert takeover.start[partition] <= first
        if takeover.in_the_way:
            before = world.visible()
            with pytest.raises(ForeignObjectError, match="Nothing was changed"):
                world.pipeline.take_over(takeover, world.layout)
            assert world.visible() == before
            world.move_all(takeover)
            again = world.plan(committed)
            assert (again.start, again.in_the_way) == (takeover.start, ())
            takeover = again
        world.pipeline.take_over(takeover, world.layout)
        world.land()
        assert world.lines() == wanted


def _start(world: World, key: str) -> tuple[int, int]:
    """Kafka partition and first offset of an object, by its key."""
    delim = world.layout.naming.file_delim
    _, partition, offset = key.rsplit(delim, 2)
    return int(partition), int(offset.partition(".")[0])


def _last(world: World, key: str) -> int:
    """The highest offset of which the object may have a record, by the number of its lines."""
    partition, first = _start(world, key)
    values = [
        (record.offset, without_order(_payload(record.value)))
        for record in world.scenario.records[partition]
        if record.value is not None and record.offset >= first and isinstance(world.layout.format, JsonLines)
    ]
    lines = set(world._lines(key))
    return max((offset for offset, value in values if value in lines), default=first)


def _payload(value: bytes) -> bytes:
    document = json.loads(value)
    in_envelope = isinstance(document, dict) and document.keys() == {"schema", "payload"}
    return json.dumps(document["payload"]).encode() if in_envelope else value


def test_the_scenarios_are_used() -> None:
    """Fewer would be a loss."""
    assert len(COMPARABLE) >= 40


@pytest.mark.parametrize("name", ["J01", "J02"])
def test_objects_that_differ_from_kafka_are_in_the_way(name: str) -> None:
    """Connect has lost digits of their numbers: the records are landed again, whole."""
    scenario = SCENARIOS[name]
    layout = layout_for(scenario)
    assert layout is not None
    world = World(name, layout)
    takeover = world.plan({0: 0})
    assert takeover.start == {0: 0}
    assert [one.why for one in takeover.in_the_way] == ["its records are not those of Kafka"]


def test_objects_of_an_earlier_topic_of_the_name_are_in_the_way() -> None:
    """Names and numbers of lines are right, and the records are not: nothing is skipped."""
    world = World("D01")
    for key in world.visible():
        stored = world.bucket.get(key)
        assert stored is not None
        world.bucket.delete(key)
        world.bucket.put_new(key, stored.body.replace(b'"seq":', b'"seq":9'))
    takeover = world.plan({0: 3})
    assert takeover.start == {0: 3}
    assert len(takeover.in_the_way) == 2


def test_an_object_of_another_format_is_in_the_way() -> None:
    """It was written before the connector was changed."""
    world = World("D01")
    world.bucket.put_new(f"topics/{world.topic}/partition=0/{world.topic}+0+0000000006.avro", b"Obj")
    takeover = world.plan({0: 3})
    assert takeover.start == {0: 6}
    assert len(takeover.in_the_way) == 2


def test_two_objects_with_the_same_records_are_in_the_way() -> None:
    """The same records under two names would be there twice."""
    world = World("D01")
    body = world.bucket.get(f"topics/{world.topic}/partition=0/{world.topic}+0+0000000006.json")
    assert body is not None
    world.bucket.put_new(f"topics/{world.topic}/partition=0/{world.topic}+0+6.json", body.body)
    takeover = world.plan({0: 3})
    assert takeover.start == {0: 6}
    assert len(takeover.in_the_way) == 2


def test_a_damaged_gzip_object_is_in_the_way() -> None:
    """It is named, and read no further."""
    world = World("D12")
    key = f"topics/{world.topic}/partition=0/{world.topic}+0+0000000002.json.gz"
    stored = world.bucket.get(key)
    assert stored is not None
    world.bucket.delete(key)
    world.bucket.put_new(key, stored.body[:-9])
    takeover = world.plan({0: 2})
    assert (takeover.start, [one.key for one in takeover.in_the_way]) == ({0: 2}, [key])


def test_files_with_schemas_are_in_the_way() -> None:
    """They are not compared, so their records are landed again."""
    connector = {
        **SCENARIOS["D01"].connector("t-d01"),
        "format.class": "io.confluent.connect.s3.format.avro.AvroFormat",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    world = World("D01", layout_of(convert(connector).parameters))
    key = f"topics/{world.topic}/partition=0/{world.topic}+0+0000000009.avro"
    world.kafka.append(world.topic, 0, b"x", 0)
    world.bucket.put_new(key, b"Obj\x01")
    takeover = world.plan({0: 9})
    assert (takeover.start, [one.key for one in takeover.in_the_way]) == ({0: 9}, [key])
    assert takeover.in_the_way[0].why == "objects of the format avro are not compared with Kafka"


class ParquetWorld(World):
    """A sink that writes Parquet: the files of this package, encoded in another way."""

    def __init__(self) -> None:
        scenario = SCENARIOS["D01"]
        schema = {"type": "struct", "fields": [{"type": "int64", "field": "seq"}, {"type": "string", "field": "f"}]}
        connector = {
            **scenario.connector(scenario.topic),
            "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
            "value.converter.schemas.enable": "true",
        }
        layout = layout_of(convert(connector).parameters)
        super().__init__("D01", layout)
        self.kafka.create_topic(self.topic)
        for seq in range(10):
            value = {"schema": schema, "payload": {"seq": seq, "f": f"text {seq}"}}
            self.kafka.append(self.topic, 0, json.dumps(value).encode(), seq)
        for key in self.visible():
            self.bucket.delete(key)
        self.rows = [{"seq": seq, "f": f"text {seq}"} for seq in range(9)]
        for start in (0, 3, 6):
            self.put(start, self.rows[start : start + 3])

    def put(self, start: int, rows: list[dict[str, Any]]) -> None:
        """Write an object as the sink does."""
        sink = io.BytesIO()
        fields = [pa.field("seq", pa.int64(), nullable=False), pa.field("f", pa.string(), nullable=False)]
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), sink, use_dictionary=False, version="1.0")
        name = f"topics/{self.topic}/partition=0/{self.topic}+0+{start:010d}.snappy.parquet"
        self.bucket.put_new(name, sink.getvalue())

    def landed(self) -> list[int]:
        """The records in visible objects."""
        found: list[int] = []
        for key in self.visible():
            stored = self.bucket.get(key)
            assert stored is not None
            found += pq.read_table(io.BytesIO(stored.body)).column("seq").to_pylist()
        return sorted(found)


def test_parquet_files_are_compared_by_their_rows() -> None:
    """However they are encoded: those that have all records are kept."""
    world = ParquetWorld()
    takeover = world.plan({0: 3})
    assert (takeover.start, takeover.in_the_way) == ({0: 9}, ())
    world.pipeline.take_over(takeover, world.layout)
    world.land()
    assert world.landed() == [*range(10)]


def test_parquet_files_with_other_rows_are_in_the_way() -> None:
    """Their records are landed again; so are those behind them."""
    world = ParquetWorld()
    key = next(key for key in world.visible() if "+0000000003" in key)
    world.bucket.delete(key)
    world.put(3, [*world.rows[3:5], {"seq": 5, "f": "other"}])
    takeover = world.plan({0: 0})
    assert takeover.start == {0: 3}
    assert [one.why for one in takeover.in_the_way] == [
        "its records are not those of Kafka",
        "others of its records are in no object",
    ]
    world.move_all(takeover)
    world.pipeline.take_over(world.plan({0: 0}), world.layout)
    world.land()
    assert world.landed() == [*range(10)]


def test_a_damaged_parquet_file_is_in_the_way() -> None:
    """It is named, and nothing is guessed."""
    world = ParquetWorld()
    key = next(key for key in world.visible() if "+0000000006" in key)
    stored = world.bucket.get(key)
    assert stored is not None
    world.bucket.delete(key)
    world.bucket.put_new(key, stored.body[:-9])
    takeover = world.plan({0: 3})
    assert (takeover.start, [one.key for one in takeover.in_the_way]) == ({0: 6}, [key])


def test_values_with_schemas_of_a_registry_need_it_and_nothing_is_pinned() -> None:
    """The objects of a sink with Avro values as JSON lines are compared with its schemas."""
    connector = {
        **SCENARIOS["D01"].connector("t-d01"),
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://registry:8081",
    }
    del connector["value.converter.schemas.enable"]
    world = World("D01", layout_of(convert(connector).parameters))
    registry = SimulatedRegistry()
    schema = registry.register('{"type": "record", "name": "R", "fields": [{"name": "seq", "type": "long"}]}')
    world.kafka.append(world.topic, 0, registry.frame(schema, b"\x12"), 9)
    world.bucket.put_new(f"topics/{world.topic}/partition=0/{world.topic}+0+0000000009.json", b'{"seq":9}\n')
    with pytest.raises(ConfigurationError, match="--registry-conn-id"):
        world.plan({0: 9})
    before = [info.key for info in world.bucket.list("")]
    world.pipeline = TopicPipeline(
        world.pipeline.log.store, world.kafka, topics_dir="topics", pipeline="p", topic=world.topic, registry=registry
    )
    takeover = world.plan({0: 9})
    assert (takeover.start, takeover.in_the_way) == ({0: 10}, ())
    assert [info.key for info in world.bucket.list("")] == before


def test_the_folders_of_the_clock_are_not_compared() -> None:
    """A connector with the time of its clock: an object has the records behind its first one."""
    scenario = SCENARIOS["T01"]
    connector = {**scenario.connector(scenario.topic), "timestamp.extractor": "Wallclock"}
    world = World("T01", layout_of(convert(connector).parameters))
    for key in world.visible():
        world.bucket.delete(key)
    folder = f"topics/{world.topic}/year=2026/month=01/day=01"
    world.bucket.put_new(f"{folder}/hour=00/{world.topic}+0+0000000000.json", b'{"seq":0}\n{"seq":1}\n')
    world.bucket.put_new(f"{folder}/hour=01/{world.topic}+0+0000000002.json", b'{"seq":2}\n{"seq":3}\n')
    takeover = world.plan({0: 0})
    assert (takeover.start, takeover.in_the_way) == ({0: 4}, ())
    world.pipeline.take_over(takeover, world.layout)
    world.land()
    assert world.lines() == Counter(without_order(b'{"seq":%d}' % n) for n in range(6))


def test_null_values_that_are_left_out_are_no_gap() -> None:
    """The sink counts them in no object; those behind the last object are read again, and left out again."""
    world = World("N01")
    takeover = world.plan({0: 0})
    assert (takeover.start, takeover.in_the_way) == ({0: 3}, ())


def test_a_group_with_members_is_refused() -> None:
    """The sink still runs."""
    with pytest.raises(ConfigurationError, match=r"'g' has active members \(it is stable\)"):
        World("D01").plan({0: 3}, state="stable")


def test_a_committed_offset_behind_the_end_is_refused() -> None:
    """The topic was created again, or it is another cluster."""
    with pytest.raises(ConfigurationError, match=r"committed offset 99 .* the log ends at 9"):
        World("D01").plan({0: 99})


def test_an_offset_of_a_partition_that_does_not_exist_is_refused() -> None:
    """It is another topic."""
    with pytest.raises(ConfigurationError, match="partition 5, and there is no such partition"):
        World("D01").plan({0: 3, 5: 1})


def test_an_empty_partition_needs_no_committed_offset() -> None:
    """No record was ever in it."""
    world = World("D01")
    world.kafka.add_partitions(world.topic, 1)
    assert world.plan({0: 9}).start == {0: 9, 1: 0}


def test_lost_records_are_counted_over_partitions() -> None:
    """Nothing is written."""
    world = World("D03")
    world.kafka.delete_records(world.topic, 0, 5)
    world.kafka.delete_records(world.topic, 1, 2)
    before = [info.key for info in world.bucket.list("")]
    with pytest.raises(DataLossError, match=r"deleted 3 offsets .*partition 0: \[3, 5\), partition 1: \[1, 2\)"):
        world.plan({0: 3, 1: 1})
    assert [info.key for info in world.bucket.list("")] == before


def test_a_marker_with_other_offsets_is_refused_and_kept() -> None:
    """Without batches, the error has the way out."""
    world = World("D01")
    marker = Marker(
        topic=world.topic,
        cluster_id="simulated",
        topic_id=world.kafka.describe(world.topic).topic_id or "",
        start={0: 1},
    )
    world.pipeline.log.create_marker(marker, data_prefix=f"topics/{world.topic}/")
    with pytest.raises(ConfigurationError, match=r"partition 0: 1, not 9.*has no batches yet: delete s3://"):
        world.plan({0: 9})
    assert world.pipeline.log.require_marker()[0] == marker


@pytest.mark.parametrize("generation", [0, 1])
def test_a_marker_of_another_incarnation_of_the_topic_is_refused(generation: int) -> None:
    """One with another topic id, or behind a reset, whose offsets happen to be the same."""
    world = World("D01")
    marker = Marker(
        topic=world.topic,
        cluster_id="simulated",
        topic_id=(world.kafka.describe(world.topic).topic_id or "") if generation else "another",
        start={0: 9},
        generation=generation,
        history=(ClosedGeneration(generation=0, topic_id="another", partitions={}),) * generation,
    )
    world.pipeline.log.create_marker(marker, data_prefix=f"topics/{world.topic}/")
    with pytest.raises(ConfigurationError, match="has begun topic 't-d01' already, with another incarnation"):
        world.plan({0: 9})


def test_another_run_that_creates_the_marker_meanwhile_wins() -> None:
    """With the same offsets it is the same; with others it is an error."""
    world = World("D01")
    takeover = world.plan({0: 9})
    world.pipeline.take_over(takeover, world.layout)
    world.pipeline.take_over(takeover, world.layout)
    other = msgspec.structs.replace(world.pipeline.log.require_marker()[0], start={0: 4})
    world.bucket.delete("topics/_kafka_s3/p/t-d01/marker.json")
    world.pipeline.log.create_marker(other, data_prefix=f"topics/{world.topic}/")
    with pytest.raises(ConfigurationError, match="0: 4, not 9"):
        world.pipeline.take_over(takeover, world.layout)


def test_a_takeover_stays_done_when_kafka_deletes_landed_records() -> None:
    """A repetition months later changes nothing."""
    world = World("D03")
    committed = {0: 6, 1: 3}
    world.pipeline.take_over(world.plan(committed), world.layout)
    world.land()
    world.kafka.delete_records(world.topic, 0, 8)
    assert world.plan(committed).done
