"""A table of Glue or Hive has a partition for each folder of landed objects, whatever fails in between."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.config import (
    ByField,
    ByPartition,
    Chain,
    Daily,
    DeviantArtNaming,
    JsonConverter,
    JsonLines,
    Layout,
    Naming,
    RawBytes,
    SiblingObjects,
    TimePattern,
    default_partitioner,
)
from airflow_provider_kafka_s3.config.tables import MetastoreSettings
from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    CatalogUnavailableError,
    ConfigurationError,
    ThrottledError,
    TransientError,
)
from airflow_provider_kafka_s3.storage.clients import make_glue_client
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.tables.partitions import PartitionedTable, Synced, sync_partitions
from airflow_provider_kafka_s3.tables.partitions.glue import GluePartitions
from airflow_provider_kafka_s3.tables.partitions.hive import HivePartitions
from airflow_provider_kafka_s3.tables.partitions.sync import require_named_folders
from dev.metastore import HiveMetastore
from dev.ports import free_ports
from dev.s3_server import ThreadedS3Server
from tests.tables.catalogs import CREDENTIALS, Catalog, Glue, GlueFaults, Hive, no_wait
from tests.unit.batch.simulated_topic import Topic

LOCATION = {"glue": "s3://bucket/lake/orders/", "hive": "s3a://bucket/lake/orders/"}
HOSTILE = ["a b", "a/b=c", "100%", "å ø", "'\"", "a+b", "[x]^{y}", "C:\\d", "a#b?c", "~", None]
"""Values of folders; the last one is null."""


@pytest.fixture(scope="module")
def glue_server() -> Iterator[tuple[ThreadedS3Server, GlueFaults]]:
    """Moto's Glue, and its faults."""
    faults: list[GlueFaults] = []

    def middleware(application: Any) -> GlueFaults:
        faults.append(GlueFaults(application))
        return faults[0]

    with ThreadedS3Server(middleware=middleware) as server:
        yield server, faults[0]


@pytest.fixture(scope="module")
def metastore() -> Iterator[HiveMetastore]:
    """A real metastore."""
    with HiveMetastore() as server:
        yield server


@pytest.fixture
def glue(glue_server: tuple[ThreadedS3Server, GlueFaults]) -> Glue:
    """Glue without a table."""
    return Glue(*glue_server)


@pytest.fixture(params=["glue", "hive"])
def catalog(request: pytest.FixtureRequest) -> Catalog:
    """Both, without a table."""
    if request.param == "glue":
        return Glue(*request.getfixturevalue("glue_server"))
    return Hive(request.getfixturevalue("metastore"))


def location_of(catalog: Catalog) -> str:
    """The folder of the topic as the engine of a catalog has it."""
    return LOCATION["glue" if isinstance(catalog, Glue) else "hive"]


class Landed(Topic):
    """A topic by fields of its values."""

    def __init__(self, *names: str, **layout: Any) -> None:
        settings = {"partitioner": ByField(names=names, missing="null"), "value_converter": JsonConverter(), **layout}
        super().__init__(Layout(topics_dir="lake", **{"format": JsonLines(), **settings}))
        self.bucket = MemoryStore("bucket")
        self._runs = 0

    def land_values(self, *values: dict[str, Any]) -> None:
        """Land records as one batch."""
        self.append(*(json.dumps(value).encode() for value in values), key=b"k")
        self._runs += 1
        self.land(f"run-{self._runs}")

    def change(self, **layout: Any) -> None:
        """Land later batches by another layout."""
        self.layout = msgspec.structs.replace(self.layout, **layout)

    def sync(self, table: PartitionedTable, **how: Any) -> Synced:
        """What a process does."""
        return sync_partitions(self.pipeline.log, table, **how)


def test_a_table_gets_each_folder_once_and_a_second_run_changes_nothing(catalog: Catalog) -> None:
    """250 of them, also of hostile names: the values are those of the records, the locations those of the objects."""
    topic = Landed("country")
    countries = [*HOSTILE, *(f"c{n}" for n in range(250 - len(HOSTILE)))]
    topic.land_values(*({"country": country, "n": 1} for country in countries))
    catalog.make(["country"], location_of(catalog))
    synced = topic.sync(catalog.opened())
    assert (len(synced.added), synced.equal, synced.differing, synced.others) == (250, 0, (), 0)
    partitions = catalog.partitions()
    assert {values[0] for values in partitions} == {c or "__HIVE_DEFAULT_PARTITION__" for c in countries}
    places = {key.rpartition("/")[0] for key in topic.objects()}
    assert set(partitions.values()) == {f"{location_of(catalog).partition('lake/')[0]}{place}/" for place in places}
    again = topic.sync(catalog.opened())
    assert (again.added, again.equal, again.differing) == ((), 250, ())
    assert catalog.partitions() == partitions


def test_a_second_run_sends_no_request_that_writes(glue: Glue) -> None:
    """And batches of 100 are written: three of 250."""
    topic = Landed("country")
    topic.land_values(*({"country": f"c{n}"} for n in range(250)))
    glue.make(["country"], LOCATION["glue"])
    glue.faults.clear()
    topic.sync(glue.opened())
    assert glue.faults.calls == {"GetTable": 1, "BatchGetPartition": 2, "BatchCreatePartition": 3}
    glue.faults.clear()
    topic.sync(glue.opened())
    assert glue.faults.calls == {"GetTable": 1, "BatchGetPartition": 1}


def test_a_dry_run_says_what_would_be_added_and_adds_nothing(catalog: Catalog) -> None:
    """With --dry-run of the command."""
    topic = Landed("country")
    topic.land_values({"country": "NO"})
    catalog.make(["country"], location_of(catalog))
    assert topic.sync(catalog.opened(), dry_run=True).added == ("country=NO",)
    assert catalog.partitions() == {}


def test_a_partition_at_another_place_is_named_and_left_alone(catalog: Catalog) -> None:
    """The others are added. Slashes at the end, and the scheme of S3, make no difference."""
    topic = Landed("country")
    topic.land_values({"country": "NO"}, {"country": "SE"}, {"country": "DK"})
    catalog.make(["country"], location_of(catalog))
    elsewhere = location_of(catalog).replace("orders", "old")
    other_scheme = LOCATION["hive" if isinstance(catalog, Glue) else "glue"]
    table = catalog.opened()
    table.describe()
    table.add({("NO",): f"{elsewhere}country=NO/", ("SE",): f"{other_scheme}country=SE"})
    before = catalog.partitions()
    synced = topic.sync(catalog.opened())
    assert (synced.added, synced.equal) == (("country=DK",), 1)
    (differing,) = synced.differing
    assert differing.partition == "country=NO"
    assert differing.location.rstrip("/") == f"{elsewhere}country=NO"
    assert differing.expected == f"{location_of(catalog)}country=NO/"
    assert before.items() < catalog.partitions().items()


def test_a_race_is_no_error_and_what_the_other_one_added_is_compared_again(catalog: Catalog) -> None:
    """Added after the look-up: an equal partition is fine, a differing one is named, the rest is added."""
    topic = Landed("country")
    topic.land_values({"country": "NO"}, {"country": "SE"}, {"country": "DK"})
    catalog.make(["country"], location_of(catalog))
    table = catalog.opened()
    ours, old = f"{location_of(catalog)}country=", location_of(catalog).replace("orders", "old") + "country=SE/"
    add = table.add

    def after_another_process(partitions: Any) -> Any:
        add({("NO",): f"{ours}NO/", ("SE",): old})
        return add(partitions)

    table.add = after_another_process  # type: ignore[method-assign]
    (differing,) = topic.sync(table).differing
    assert (differing.partition, differing.location.rstrip("/"), differing.expected) == (
        "country=SE",
        old.rstrip("/"),
        f"{ours}SE/",
    )
    assert catalog.partitions() == {("NO",): f"{ours}NO/", ("SE",): old, ("DK",): f"{ours}DK/"}


def test_values_are_in_the_order_of_the_keys_of_the_table(catalog: Catalog) -> None:
    """Whatever the order of the folders is; names of columns are those that kafka-s3 ddl gives them."""
    topic = Landed("user.Id", partitioner=Chain(partitioners=(ByField(names=("user.Id",)), ByPartition())))
    topic.land_values({"user": {"Id": 7}})
    catalog.make(["partition", "user_id"], location_of(catalog))
    assert topic.sync(catalog.opened()).added == ("partition=0/user_id=7",)
    assert catalog.partitions() == {("0", "7"): f"{location_of(catalog)}user.Id=7/partition=0/"}


def test_without_a_table_the_error_has_the_command_that_prints_its_statement(catalog: Catalog) -> None:
    """And so has one whose keys are not the folders, which names both."""
    topic = Landed("country")
    topic.land_values({"country": "NO"})
    dialect = "athena" if isinstance(catalog, Glue) else "hive"
    remedy = f"kafka-s3 ddl .*--dialect {dialect} --database {catalog.database} --table orders"
    with pytest.raises(ConfigurationError, match=f"there is no table {catalog.table} in .*{remedy}"):
        topic.sync(catalog.opened())
    catalog.make(["day", "hour"], location_of(catalog))
    with pytest.raises(ConfigurationError, match=f"partition keys day, hour, and .* in folders country=NO.*{remedy}"):
        topic.sync(catalog.opened())
    assert catalog.partitions() == {}


def test_a_table_that_is_not_in_s3_is_refused(glue: Glue) -> None:
    """It is another one than that of the topic."""
    topic = Landed("country")
    topic.land_values({"country": "NO"})
    glue.make(["country"], "hdfs://cluster/orders")
    with pytest.raises(ConfigurationError, match="'hdfs://cluster/orders', which is not in S3"):
        topic.sync(glue.opened())


def test_objects_of_earlier_folders_are_counted_and_in_no_partition(glue: Glue) -> None:
    """Other names of folders; and the same values at another place, of which the newest one is the partition."""
    topic = Landed("shop")
    topic.land_values({"shop": 1, "country": "NO"}, {"shop": 2, "country": "NO"})
    topic.change(partitioner=ByField(names=("country",)), naming=Naming(topic_prefix="old="))
    topic.land_values({"country": "NO"})
    topic.change(naming=Naming())
    topic.land_values({"country": "NO"}, {"country": "SE"})
    glue.make(["country"], LOCATION["glue"])
    synced = topic.sync(glue.opened())
    assert (synced.added, synced.others) == (("country=NO", "country=SE"), 3)
    assert glue.partitions() == {(c,): f"{LOCATION['glue']}country={c}/" for c in ("NO", "SE")}
    assert topic.sync(glue.opened(), last=1).others == 0


def test_only_the_last_batches_and_the_named_ones_are_looked_at(glue: Glue) -> None:
    """As a run does: its own, and the last ones for what another process did not add."""
    topic = Landed("country")
    for country in ("A", "B", "C", "D"):
        topic.land_values({"country": country})
    glue.make(["country"], LOCATION["glue"])
    assert topic.sync(glue.opened(), batches=[1], last=2).added == ("country=A", "country=C", "country=D")
    assert topic.sync(glue.opened()).added == ("country=B",)


def test_a_batch_may_also_have_objects_in_other_folders(glue: Glue) -> None:
    """The keys of null values are in the folder ``tombstone``, which is no partition."""
    topic = Landed("country", content=SiblingObjects(keys=RawBytes()), format=JsonLines(on_null="write"))
    topic.land_values({"country": "NO"})
    topic.append(None, key=b"k")
    topic.land_values({"country": "SE"})
    assert any("/tombstone/" in key for key in topic.objects())
    glue.make(["country"], LOCATION["glue"])
    synced = topic.sync(glue.opened())
    assert (synced.added, synced.others) == (("country=NO", "country=SE"), 0)


def test_a_topic_without_a_batch_needs_nothing(glue: Glue) -> None:
    """A run that found no record."""
    topic = Landed("country")
    topic.land("first")
    glue.make(["country"], LOCATION["glue"])
    assert topic.sync(glue.opened()) == Synced(f"{glue.table} in Glue", (), 0, (), 0)


@pytest.mark.parametrize("code", ["ThrottlingException", "InternalServiceException", "OperationTimeoutException"])
def test_what_passes_is_tried_again(glue: Glue, code: str) -> None:
    """As the answer to each request, for single partitions, and for those that Glue did not look up."""
    topic = Landed("country")
    topic.land_values(*({"country": f"c{n}"} for n in range(150)))
    glue.make(["country"], LOCATION["glue"])
    glue.faults.refusals = {action: [code] for action in ("GetTable", "BatchGetPartition", "BatchCreatePartition")}
    glue.faults.errors = {(f"c{n}",): [code] for n in range(75)}
    glue.faults.unprocessed = [60, 20]
    assert len(topic.sync(glue.opened()).added) == 150
    assert len(glue.partitions()) == 150


def test_a_glue_that_stays_throttled_is_an_error_and_what_was_added_stays(glue: Glue) -> None:
    """The next process adds the rest."""
    topic = Landed("country")
    topic.land_values(*({"country": f"c{n}"} for n in range(150)))
    glue.make(["country"], LOCATION["glue"])
    glue.faults.refusals = {"BatchCreatePartition": [None, *["ThrottlingException"] * 1000]}
    with pytest.raises(ThrottledError, match=f"{glue.table} in Glue: BatchCreatePartition is answered by Throttling"):
        topic.sync(glue.opened())
    assert len(glue.partitions()) == 100
    glue.faults.clear()
    assert len(topic.sync(glue.opened()).added) == 50


def test_of_a_request_that_half_fails_the_other_half_is_added(glue: Glue) -> None:
    """The error names partitions and the reason; the same command adds them when the reason is gone."""
    topic = Landed("country")
    topic.land_values(*({"country": f"c{n}"} for n in range(250)))
    glue.make(["country"], LOCATION["glue"])
    glue.faults.errors = {(f"c{n}",): ["InvalidInputException"] for n in range(0, 250, 2)}
    with pytest.raises(
        ConfigurationError, match=r"lacks 125 partitions of 250: country=c0 \(InvalidInputException: of"
    ):
        topic.sync(glue.opened())
    assert set(glue.partitions()) == {(f"c{n}",) for n in range(1, 250, 2)}
    assert len(topic.sync(glue.opened()).added) == 125
    assert len(glue.partitions()) == 250


@pytest.mark.parametrize("action", ["GetTable", "BatchGetPartition", "BatchCreatePartition"])
def test_a_refusal_is_not_tried_again_and_names_the_right(glue: Glue, action: str) -> None:
    """Of IAM, as docs/iam.md has it."""
    topic = Landed("country")
    topic.land_values({"country": "NO"})
    glue.make(["country"], LOCATION["glue"])
    glue.faults.clear()
    glue.faults.refusals = {action: ["AccessDeniedException"] * 9}
    with pytest.raises(AccessDeniedError, match=f"Allow glue:{action} to the credentials"):
        topic.sync(glue.opened())
    assert glue.faults.calls[action] == 1


def test_a_glue_that_is_down_or_silent_is_a_passing_error(glue: Glue) -> None:
    """Nothing listens there, or who listens does not answer."""
    topic = Landed("country")
    topic.land_values({"country": "NO"})
    settings = msgspec.structs.replace(glue.settings, endpoint_url=f"http://127.0.0.1:{free_ports(1)[0]}")
    table = GluePartitions(make_glue_client(settings, CREDENTIALS), glue.table, retrier=no_wait())
    with pytest.raises(TransientError, match=rf"GetTable {glue.table} in Glue"):
        topic.sync(table)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = msgspec.structs.replace(settings, endpoint_url=endpoint, read_timeout=0.2)
        table = GluePartitions(make_glue_client(settings, CREDENTIALS), glue.table, retrier=no_wait())
        with pytest.raises(TransientError, match="ReadTimeoutError"):
            topic.sync(table)


def test_a_metastore_that_is_down_or_silent_is_a_passing_error(metastore: HiveMetastore) -> None:
    """It is waited for as long as the connection says; of several addresses the first one that answers is used."""
    topic = Landed("country")
    topic.land_values({"country": "NO"})
    (port,) = free_ports(1)
    with pytest.raises(
        CatalogUnavailableError, match=r"lake.orders in the Hive metastore: get_table_req has no usable"
    ):
        topic.sync(HivePartitions(MetastoreSettings(hosts=("127.0.0.1",), port=port), "lake.orders", retrier=no_wait()))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        alone = MetastoreSettings(hosts=("127.0.0.1",), port=silent.getsockname()[1], timeout=0.2)
        with pytest.raises(CatalogUnavailableError, match="get_table_req has no usable answer"):
            topic.sync(HivePartitions(alone, "lake.orders", retrier=no_wait()))
    hive = Hive(metastore)
    hive.make(["country"], LOCATION["hive"])
    several = MetastoreSettings(hosts=("metastore.invalid", "127.0.0.1"), port=metastore.port)
    assert topic.sync(HivePartitions(several, hive.table, retrier=no_wait())).added == ("country=NO",)


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        ({"naming": Naming(directory_delim="-")}, "directory_delim='-' makes no folders"),
        (
            {"naming": DeviantArtNaming(), "partitioner": default_partitioner(DeviantArtNaming())},
            "topics share folders",
        ),
        (
            {"partitioner": TimePattern(path_format="'year'=YYYY/MM", duration_ms=3_600_000)},
            "path_format has folders without a name",
        ),
    ],
)
def test_folders_that_are_no_partitions_are_refused_before_anything_is_landed(
    layout: dict[str, Any], problem: str
) -> None:
    """As far as the layout shows them."""
    require_named_folders(Layout(topics_dir="lake", format=JsonLines(), partitioner=Daily()))
    given = {"partitioner": Daily(), **layout}
    with pytest.raises(ConfigurationError, match=f"partitions_in needs folders name=value .*{problem}"):
        require_named_folders(Layout(topics_dir="lake", format=JsonLines(), **given))
