"""The pages of a topic and of a batch: dead letters, lag of batches, layouts, tasks and objects."""

from __future__ import annotations

import dataclasses
import html
import json
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

import airflow_provider_kafka_s3
from airflow_provider_kafka_s3.airflow.ui.task_paths import task_path_2, task_path_3
from airflow_provider_kafka_s3.batch.expiry import swap_expiry
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import (
    ByField,
    ByPartition,
    Daily,
    Envelope,
    Format,
    Hourly,
    JsonConverter,
    JsonLines,
    Landed,
    Layout,
    Parquet,
    RawBytes,
    Rotation,
)
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects, Expiry
from airflow_provider_kafka_s3.documents.planner import PlannerTask
from airflow_provider_kafka_s3.storage.browser import browser_url
from airflow_provider_kafka_s3.storage.clients import S3Settings
from airflow_provider_kafka_s3.ui.pages import Pages
from airflow_provider_kafka_s3.ui.texts import duration
from tests.unit.ui.conftest import Lake
from tests.unit.ui.test_pages import HOSTILE, Parsed

ORDERS = "topic/0/shop/orders"
LETTERS: Final = Layout(topics_dir="topics", format=JsonLines(), value_converter=JsonConverter(), errors="dead_letter")


@pytest.fixture
def lake() -> Lake:
    """With a topic of which nothing is landed."""
    made = Lake()
    made.kafka.create_topic("orders")
    return made


def land(lake: Lake, run: str, *values: bytes, layout: Layout = LETTERS, at: int = 0, **request: Any) -> None:
    """Append records to the topic orders, and land them."""
    for value in values:
        lake.kafka.append("orders", 0, value, timestamp=at)
    lake.topic("orders").land(
        RunRequest(run=run, offsets="incremental", layout=layout, starting="earliest", adopt_wait=0.0, **request)
    )


def topic(lake: Lake) -> dict[str, Any]:
    """The page of the topic orders as JSON."""
    view: dict[str, Any] = json.loads(lake.get(f"api/{ORDERS}").body)
    return view


def requests_of(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None]]:
    """Keys that are read from now on, and where each read begins."""
    read: list[tuple[str, int | None]] = []
    get = lake.bucket.get

    def note(key: str, *, start: int | None = None, end: int | None = None) -> Any:
        read.append((key, start))
        return get(key, start=start, end=end)

    monkeypatch.setattr(lake.bucket, "get", note)
    return read


def test_expired_objects_are_marked(lake: Lake) -> None:
    """In the bar of a Kafka partition, in the list of batches, and in a batch; and nothing where none has expired."""
    hourly = replace(LETTERS, partitioner=Hourly())
    land(lake, "r1", b"1", layout=hourly)
    lake.kafka.append("orders", 0, b"2", timestamp=0)
    land(lake, "r2", b"3", layout=hourly, at=7_200_000)
    land(lake, "r3", b"4", layout=hourly)
    assert "<title>expired" not in lake.get(ORDERS).body
    assert "Expired:" not in lake.get(f"batch{ORDERS.removeprefix('topic')}/1").body
    expired = ExpiredObjects(batches=((1, 2),), before=((2, 7_200_000),))
    assert swap_expiry(lake.topic("orders").log, Expiry(topic="orders", number=2, deleted=expired), None)
    page = html.unescape(lake.get(ORDERS).body)
    assert "<title>expired: offsets 0 to 0</title>" in page
    assert page.count('<p class="quiet">expired</p>') == 1
    assert page.count('<p class="quiet">1 of its objects expired</p>') == 1
    view = topic(lake)
    assert view["expired"] == {"0": [[0, 1]]}
    assert [batch["expired"] for batch in view["last"]] == [1, 1, 0]
    batch = lake.get(f"batch{ORDERS.removeprefix('topic')}/2").body
    assert "Expired: 1 of 2 objects" in batch
    assert batch.count('<span class="quiet">expired</span>') == 1


def test_dead_letters_are_counted_by_their_reasons(lake: Lake) -> None:
    """With the place of the newest one of each, and the command that lists all."""
    land(lake, "r1", b"1", b"{", b"")
    land(lake, "r2", b"2", b"{", at=86_400_000)
    letters = topic(lake)["dead_letters"]
    assert (letters["letters"], letters["problem"]) == (3, "")
    malformed, empty = letters["reasons"]
    assert (malformed["letters"], malformed["batch"], malformed["partition"], malformed["offset"]) == (2, 2, 0, 4)
    assert (empty["letters"], empty["batch"], empty["offset"], empty["stage"]) == (1, 1, 2, "value")
    page = Parsed(lake.get(ORDERS))
    assert malformed["reason"] in page.text
    assert lake.topic("orders").log.remedies.dead_letters().strip("`") in page.text


@pytest.mark.parametrize("body", [None, b"{", b"[1]\n"])
def test_dead_letters_that_cannot_be_read_hide_nothing_else(lake: Lake, body: bytes | None) -> None:
    """The page says why; the letters of other batches are shown."""
    land(lake, "r1", b"1", b"{")
    land(lake, "r2", b"2", b"nope")
    key = "topics/orders/_dead_letters/orders+0+0000000003.json"
    lake.bucket.delete(key)
    if body is not None:
        lake.bucket.put_new(key, body)
    view = topic(lake)
    assert [reason["batch"] for reason in view["dead_letters"]["reasons"]] == [1]
    page = Parsed(lake.get(ORDERS))
    assert key in view["dead_letters"]["problem"]
    assert view["dead_letters"]["problem"] in page.text
    assert view["activity"]["dead_letters"] == 2
    assert "Last batches" in page.text


def test_few_dead_letters_are_read_of_many(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest ones: of sixteen objects, two hundred, and of a large object its end alone."""
    for n in range(30):
        land(lake, f"r{n}", b"1", b"{")
    read = requests_of(lake, monkeypatch)
    assert topic(lake)["dead_letters"]["letters"] == 16
    assert sum("_dead_letters" in key for key, _ in read) == 16
    land(lake, "large", *[b"{" + bytes(500)] * 1_000)
    read.clear()
    letters = topic(lake)["dead_letters"]
    assert letters["letters"] == 200
    assert letters["reasons"][0]["offset"] == 1_059
    (begin,) = [start for key, start in read if key.endswith("+0000000060.json")]
    assert begin is not None
    assert begin > 500_000


def test_a_topic_whose_dead_letters_are_too_large_says_so(lake: Lake) -> None:
    """Rather than that there are none."""
    land(lake, "r1", b"1", b"{" + bytes(300_000))
    assert topic(lake)["dead_letters"] == {"letters": 0, "reasons": [], "problem": ""}
    assert "too large" in Parsed(lake.get(ORDERS)).text


def test_hostile_reasons_are_shown_as_they_are(lake: Lake) -> None:
    """A reason may name a field."""
    name = HOSTILE.replace('"', "")
    land(lake, "r1", b"{}", layout=replace(LETTERS, partitioner=ByField(names=(name,))))
    (reason,) = topic(lake)["dead_letters"]["reasons"]
    assert name in reason["reason"]
    page = Parsed(lake.get(ORDERS))
    assert reason["reason"] in page.text
    assert "script" not in {tag for tag, _ in page.elements}


def test_the_age_of_the_newest_record_is_the_lag_of_a_batch(lake: Lake) -> None:
    """When it was planned, and until it was decided; as a bar and in words."""
    land(lake, "r1", b"1", at=int(time.time() * 1_000) - 3_600_000)
    land(lake, "r2", b"2", at=int(time.time() * 1_000) + 3_600_000)
    first, second = topic(lake)["last"]
    assert first["times"]["newest"] < first["times"]["planned"] <= first["times"]["decided"]
    assert second["times"]["newest"] > second["times"]["decided"]
    page = Parsed(lake.get(ORDERS))
    assert "batch 1: 1.0 h when planned, decided" in page.text
    assert "batch 2: 0.0 s when planned, decided" in page.text
    bars = [attributes["class"] for tag, attributes in page.elements if tag == "rect"]
    assert (bars.count("waited"), bars.count("took")) == (2, 2)


@pytest.mark.parametrize("timestamp", [-1, 10**15, 2**63 - 1])
def test_a_record_without_a_time_of_a_calendar_stops_no_page(lake: Lake, timestamp: int) -> None:
    """A producer may write microseconds, or nothing."""
    land(lake, "r1", b"1", layout=Layout(topics_dir="topics", format=RawBytes()), at=timestamp)
    assert [lake.get(path).status for path in ("", ORDERS, "batch/0/shop/orders/1")] == [200, 200, 200]
    (batch,) = topic(lake)["last"]
    assert batch["times"]["newest"] is None
    assert "batch 1: unknown" in Parsed(lake.get(ORDERS)).text


def test_the_layout_comes_with_the_batch_since_which_it_holds(lake: Lake) -> None:
    """And with what that batch changed; a layout that comes back holds since it is back."""

    def layout(record_format: Format) -> Layout:
        return Layout(topics_dir="topics", format=record_format)

    for n, record_format in enumerate((RawBytes(), RawBytes(compression="gzip"), RawBytes(), RawBytes())):
        land(lake, f"r{n}", b"1", layout=layout(record_format))
        if n == 0:
            assert (topic(lake)["layout_since"], topic(lake)["layout_changes"]) == (1, [])
    view = topic(lake)
    assert view["layout_since"] == 3
    assert "format.compression: 'gzip' -> 'none'" in view["layout_changes"]
    page = Parsed(lake.get(ORDERS))
    assert "../../../batch/0/shop/orders/3" in page.links
    assert "format.compression: 'gzip' -> 'none'" in page.text


TASK = PlannerTask(dag_id="d/" + HOSTILE, task_id="group.land?", run_id="a+b:c%2F#", map_index=3)


@pytest.mark.parametrize(
    ("task_path", "expected"),
    [
        (task_path_3, "../dags/d%2F{0}/runs/a%2Bb%3Ac%252F%23/tasks/group.land%3F/mapped/3"),
        (task_path_2, "../dags/d%2F{0}/grid?dag_run_id=a%2Bb%3Ac%252F%23&task_id=group.land%3F&map_index=3"),
        (None, None),
    ],
)
def test_batches_lead_to_their_tasks_in_airflow(
    lake: Lake, task_path: Callable[[PlannerTask], str] | None, expected: str | None
) -> None:
    """Every character of an id is a part of it; on a machine without Airflow there is no such link."""
    land(lake, "r1", b"1", task=TASK)
    lake.pages = Pages(lambda: [lake.place], lambda: lake.now, task_path=task_path)
    for path, up in ((ORDERS, "../../../"), ("batch/0/shop/orders/1", "../../../../")):
        page = Parsed(lake.get(path))
        assert f"{TASK.dag_id} / group.land? [3]" in page.text
        links = [link for link in page.links if "dags/" in link]
        if expected is None:
            assert links == []
            continue
        (link,) = links
        assert link == up + expected.format(urllib.parse.quote(HOSTILE, safe=""))
        # Airflow is above the app.
        assert urllib.parse.urljoin(f"http://host/any/kafka-s3/{path}", link).startswith("http://host/any/dags/")


def test_objects_have_times_and_lead_to_the_console_of_their_store(lake: Lake) -> None:
    """A store without one has no links."""
    land(lake, "r1", b"1", b"2", b"{", at=86_400_000)
    page = Parsed(lake.get("batch/0/shop/orders/1"))
    assert page.text.count("1970-01-02 00:00:00") == 4
    assert not any(attributes.get("target") for _, attributes in page.elements)
    connected = dataclasses.replace(
        lake.connect(), browser_url=lambda key: browser_url(S3Settings(region="eu-west-1"), "lake", key)
    )
    lake.place.connect, lake.place._connected = (lambda: connected), None
    page = Parsed(lake.get("batch/0/shop/orders/1"))
    out = [attributes for _, attributes in page.elements if attributes.get("target")]
    manifest = lake.topic("orders").log.read_manifest(1)
    assert manifest is not None
    assert [each["href"] for each in out] == [connected.browser_url(entry.key) for entry in manifest.objects]
    assert {(each["target"], each["rel"]) for each in out} == {("_blank", "noopener noreferrer")}


def test_a_batch_has_its_offsets_and_why_it_was_abandoned(lake: Lake) -> None:
    """First and last ones, by Kafka partition."""
    land(lake, "r1", b"1", b"2")
    lake.kafka.append("orders", 0, b"{")
    with pytest.raises(Exception, match="not a JSON document"):
        land(lake, "r2", layout=replace(LETTERS, errors="fail"))
    assert "undecided" in Parsed(lake.get("batch/0/shop/orders/2")).text
    lake.topic("orders").abandon(2, release="lost", reason="no use <b>", operator="me")
    page = Parsed(lake.get("batch/0/shop/orders/2"))
    assert "abandoned" in page.text
    assert "no use <b> (me)" in page.text
    assert "Partition First Last Offsets 0 2 2 1" in " ".join(page.text.split())


def test_a_batch_of_many_objects_shows_the_first(lake: Lake) -> None:
    """A page of a hundred thousand would not open."""
    for day in range(501):
        lake.kafka.append("orders", 0, b"1", timestamp=day * 86_400_000)
    land(lake, "r1", layout=replace(LETTERS, partitioner=Daily()))
    page = Parsed(lake.get("batch/0/shop/orders/1"))
    assert "The first 500 of 501; all objects are in the manifest." in page.text
    assert len(json.loads(lake.get("api/batch/0/shop/orders/1").body)["manifest"]["objects"]) == 501


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, ""),
        (0, "0.0 s"),
        (9.96, "10.0 s"),
        (59, "59 s"),
        (60, "1.0 min"),
        (5_400, "1.5 h"),
        (86_400 * 1_500, "1,500 d"),
    ],
)
def test_durations_have_one_unit(seconds: float | None, expected: str) -> None:
    """The largest one that they reach."""
    assert duration(seconds) == expected


HOURLY: Final = Layout(topics_dir="topics", format=JsonLines(compression="gzip"), partitioner=Hourly())


@pytest.mark.parametrize(
    "layout",
    [
        HOURLY,
        replace(HOURLY, content=Envelope(), errors="dead_letter"),
        replace(HOURLY, format=Parquet(), value_converter=JsonConverter(schema='"long"')),
        replace(HOURLY, partitioner=ByPartition()),
    ],
)
def test_many_small_objects_have_a_task_that_makes_few_large_ones(lake: Lake, layout: Layout) -> None:
    """The text is Python, and makes an operator that reads the pipeline; few small objects have none."""
    land(lake, "first", b"1", layout=layout)
    assert topic(lake)["compaction"] == ""
    land(lake, "many", *(b"%d" % n for n in range(100)), layout=replace(layout, rotation=Rotation(max_bytes=1)))
    text = topic(lake)["compaction"]
    if isinstance(layout.partitioner, Hourly):
        assert "Daily(" in text
    names = {name: getattr(airflow_provider_kafka_s3, name) for name in airflow_provider_kafka_s3.__all__}
    operator = eval(text, names)
    assert operator.source == Landed(pipeline="shop", topics_dir="topics")
    assert text in html.unescape(lake.get(ORDERS).body)


def test_values_that_are_not_read_again_have_no_task(lake: Lake) -> None:
    """An envelope of decoded values; the page has no section about it."""
    layout = replace(HOURLY, content=Envelope(), value_converter=JsonConverter(schema='"long"'))
    land(lake, "many", *(b"%d" % n for n in range(101)), layout=replace(layout, rotation=Rotation(max_bytes=1)))
    assert topic(lake)["compaction"] == ""
