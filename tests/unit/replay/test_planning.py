"""What is sent, and in which order, is what was landed: each record once, or an error before anything is sent."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch import log_index
from airflow_provider_kafka_s3.batch.expiry import swap_expiry
from airflow_provider_kafka_s3.batch.request import RequestedWindow, RunRequest
from airflow_provider_kafka_s3.config import (
    BlockGzip,
    ByField,
    BytesConverter,
    Daily,
    Envelope,
    Hourly,
    JsonConverter,
    JsonLines,
    RawBytes,
    Rotation,
    SiblingObjects,
    StringConverter,
)
from airflow_provider_kafka_s3.documents import log_index as log_index_documents
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects, Expiry
from airflow_provider_kafka_s3.documents.manifest import Amend
from airflow_provider_kafka_s3.documents.replay import ReplayPlan
from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError, NothingToReplayError
from airflow_provider_kafka_s3.formats.block_offsets import BlockOffsets
from airflow_provider_kafka_s3.reading.record import Record
from airflow_provider_kafka_s3.replay.source import ReplaySource
from tests.unit.batch.simulated_topic import Topic
from tests.unit.replay.landed import layout_of, planned, read, replayed, request

START = 1_700_000_000_000
HOUR = 3_600_000
VALUES = ("key", "headers", "timestamp")
"""What objects of values do not keep."""


def land_windows(topic: Topic, *windows: RequestedWindow) -> None:
    """Land these windows, of times or of offsets, each by a run."""
    for window in windows:
        topic.pipeline.land(
            RunRequest(
                run=f"{window}",
                offsets="data_interval",
                layout=topic.layout,
                starting=None,
                window=window,
                adopt_wait=0,
            )
        )


@pytest.mark.parametrize("with_offsets", [True, False])
def test_an_object_with_several_slices_of_a_partition_gives_each_record_once_and_in_order(with_offsets: bool) -> None:
    """Whole, and continued behind any record."""
    content = {"content": Envelope(), "value_converter": BytesConverter()} if with_offsets else {}
    layout = layout_of(
        JsonLines() if with_offsets else RawBytes(),
        partitioner=Daily(),
        rotation=Rotation(merge_partitions=True),
        **content,
    )
    topic = Topic(layout, 2)
    for partition in (0, 1):
        for n in range(10):
            topic.append(b"%d" % n, partition=partition, timestamp=START + n)
    # Some offsets first, so that a later object has several slices of a Kafka partition.
    land_windows(topic, {0: (4, 6)}, {0: (1, 2)}, {0: (0, 10), 1: (0, 10)})
    accepted = () if with_offsets else VALUES
    found = replayed(topic, without=accepted)
    expected = [(partition, n, b"%d" % n) for partition in (0, 1) for n in range(10)]
    assert [(r.partition, r.offset, r.value) for some in found.values() for r in some] == expected
    plan = planned(topic, without=accepted)
    assert plan.records == {0: 10, 1: 10}
    for skip in range(11):
        assert read(topic, plan, 0, skip, without=accepted) == found[0][skip:]


def envelopes(**more: Any) -> Topic:
    """A topic of whole records, whose bytes are not looked at."""
    return Topic(layout_of(JsonLines(), content=Envelope(), value_converter=BytesConverter(), **more), 2)


def numbered(topic: Topic, count: int, start: int = 0, **more: Any) -> None:
    """Append documents with a number, one every millisecond."""
    for n in range(start, start + count):
        topic.append(b'{"n":%d,"f":%d}' % (n, n % 2), timestamp=START + n, **more)


def offsets_of(found: dict[int, list[Record]]) -> dict[int, list[int | None]]:
    """The offsets by partition."""
    return {partition: [record.offset for record in records] for partition, records in found.items()}


def time(n: int) -> dt.datetime:
    """That of a numbered record."""
    return dt.datetime.fromtimestamp((START + n) / 1000, dt.UTC)


@pytest.mark.parametrize(
    "selection",
    [
        {"partitions": (7,)},
        {"generation": 3},
        {"offsets": {0: (100, 200)}, "without": ("gaps",)},
        {"since": time(1_000)},
        {"offsets": {0: (0, 1)}, "partitions": (1,)},
        {"at": 0},
    ],
    ids=str,
)
def test_a_selection_without_records_is_refused_with_what_there_is(selection: dict[str, Any]) -> None:
    """It would be a replay that has succeeded for ever; nothing is written."""
    topic = envelopes()
    numbered(topic, 6)
    topic.land()
    before = [info.key for info in topic.bucket.list("")]
    with pytest.raises(NothingToReplayError) as refused:
        planned(topic, **selection)
    for part in ("no record of topic 'orders'", "the id is free", "Nothing was sent"):
        assert part in str(refused.value)
    if "at" not in selection and "generation" not in selection:
        assert "0: [0, 6)" in str(refused.value)
    assert [info.key for info in topic.bucket.list("")] == before


def test_a_topic_that_no_run_has_begun_to_land_is_no_empty_selection() -> None:
    """A name may be wrong, so a task that skips without records fails."""
    topic = envelopes()
    with pytest.raises(ConfigurationError, match="there is no pipeline below") as caught:
        planned(topic)
    assert not isinstance(caught.value, NothingToReplayError)
    topic.land("nothing")
    with pytest.raises(NothingToReplayError):
        planned(topic)


def test_null_values_that_were_left_out_are_named() -> None:
    """Of the selected slices; sent are the others if that is accepted."""
    layout = layout_of(
        JsonLines(on_null="ignore"),
        content=Envelope(),
        key_converter=StringConverter(),
        value_converter=JsonConverter(),
    )
    topic = Topic(layout, 2)
    topic.append(b'{"n":1}', None, b'{"n":2}', timestamp=START)
    topic.append(b'{"n":3}', partition=1, timestamp=START)
    topic.land()
    with pytest.raises(ConfigurationError, match=r"nulls: up to 1 null value were left out by on_null='ignore'"):
        planned(topic)
    assert offsets_of(replayed(topic, partitions=(1,))) == {1: [0]}
    assert offsets_of(replayed(topic, without=("nulls",), partitions=(0,))) == {0: [0, 2]}


def topic_with_a_gap(others: int = 0) -> Topic:
    """Offsets 4 to 7 were abandoned as lost, and 8 to 9 landed; of another Kafka partition some, with the first."""
    topic = envelopes()
    numbered(topic, 4)
    topic.append(*[b"{}"] * others, partition=1, timestamp=START)
    topic.land("a")
    numbered(topic, 4, 4)
    topic.pipeline.run(topic.request("b")).advance()
    topic.pipeline.abandon(2, release="lost", reason="test", operator="test")
    numbered(topic, 2, 8)
    topic.land("c")
    return topic


@pytest.fixture(params=["claims", "hulls"])
def _in_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a snapshot has in memory: the claims of batches, or their hulls, as of topics of many Kafka partitions."""
    if request.param == "hulls":
        monkeypatch.setattr(log_index, "MAX_HULL", 0)


@pytest.mark.usefixtures("_in_memory")
def test_offsets_that_were_accepted_as_lost_are_named() -> None:
    """If they are in the selection."""
    topic = topic_with_a_gap()
    with pytest.raises(DataLossError, match=r"lost: offsets 0: \[4, 8\) were accepted as lost.*--without lost"):
        planned(topic)
    with pytest.raises(DataLossError, match=r"lost: offsets 0: \[4, 6\) were accepted as lost"):
        planned(topic, offsets={0: (3, 6)})
    assert offsets_of(replayed(topic, without=("lost",))) == {0: [0, 1, 2, 3, 8, 9]}
    assert offsets_of(replayed(topic, offsets={0: (8, 10)})) == {0: [8, 9]}
    assert offsets_of(replayed(topic, at=1)) == {0: [0, 1, 2, 3]}


def test_what_has_expired_is_not_said_to_be_lost() -> None:
    """Offsets of whole batches, and objects of a batch in part, beside what was accepted as lost."""
    topic = topic_with_a_gap()
    expired = Expiry(topic="orders", number=1, deleted=ExpiredObjects(batches=((1, 2),), before=((3, 2**50),)))
    assert swap_expiry(topic.pipeline.log, expired, None)
    with pytest.raises(DataLossError) as raised:
        planned(topic)
    text = str(raised.value)
    assert "offsets 0: [0, 4) expired on purpose (docs/expiry.md); offsets 0: [4, 8) were accepted as lost" in text
    assert re.search(r"orders\S* expired on purpose", text)
    with pytest.raises(DataLossError, match=r"lost: offsets 0: \[1, 3\) expired on purpose") as raised:
        planned(topic, offsets={0: (1, 3)})
    assert "accepted as lost" not in str(raised.value)


@pytest.mark.usefixtures("_in_memory")
def test_offsets_that_were_lost_outside_of_a_window_of_times_are_not_named() -> None:
    """They have no times, but lie between offsets that do."""
    topic = topic_with_a_gap()
    assert offsets_of(replayed(topic, until=time(4), offsets={0: (0, 4)})) == {0: [0, 1, 2, 3]}
    numbered(topic, 2, 10)
    topic.land("d")
    assert offsets_of(replayed(topic, since=time(10))) == {0: [10, 11]}
    with pytest.raises(DataLossError, match=r"offsets 0: \[4, 8\)"):
        planned(topic, since=time(3))


@pytest.fixture
def _one_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hull of a batch is one box around all of its Kafka partitions, as of topics of more than a hundred."""
    monkeypatch.setattr(log_index, "MAX_HULL", 0)
    monkeypatch.setattr(log_index_documents, "MAX_HULL", 1)


@pytest.mark.usefixtures("_one_box")
def test_what_a_batch_has_of_many_partitions_hides_no_lost_offsets_and_covers_all_of_its_own() -> None:
    """The box around its partitions has offsets that none of them has."""
    topic = topic_with_a_gap(others=20)
    with pytest.raises(DataLossError, match=r"lost: offsets 0: \[4, 8\) were accepted as lost"):
        planned(topic, since=time(4))
    selected = {0: (0, 4), 1: (0, 20)}
    assert offsets_of(replayed(topic, at=1, offsets=selected)) == {p: [*range(*ends)] for p, ends in selected.items()}


def land_offsets(topic: Topic, *ranges: tuple[int, int]) -> None:
    """Land these offsets of the first Kafka partition, each range by a run."""
    land_windows(topic, *({0: bounds} for bounds in ranges))


def landed_apart() -> Topic:
    """Offsets 0 to 3, and 8 to 9, are landed, by two batches each; there are others."""
    topic = envelopes()
    numbered(topic, 12)
    land_offsets(topic, (8, 9), (9, 10), (0, 2), (2, 4))
    return topic


@pytest.mark.usefixtures("_in_memory")
def test_offsets_that_are_not_landed_yet_are_named() -> None:
    """Those between landed ones, and those that are selected; they are landed later, and sent by another id."""
    topic = landed_apart()
    with pytest.raises(ConfigurationError, match=r"gaps: offsets 0: \[4, 8\) are in no complete batch.*without gaps"):
        planned(topic)
    assert offsets_of(replayed(topic, without=("gaps",))) == {0: [0, 1, 2, 3, 8, 9]}
    for offsets, missing in (((2, 6), r"\[4, 6\)"), ((9, 12), r"\[10, 12\)"), ((1, 11), r"\[4, 8\) \[10, 11\)")):
        with pytest.raises(ConfigurationError, match=rf"gaps: offsets 0: {missing} are"):
            planned(topic, offsets={0: offsets})
    assert offsets_of(replayed(topic, offsets={0: (2, 4)})) == {0: [2, 3]}
    assert offsets_of(replayed(topic, offsets={0: (9, 12)}, without=("gaps",))) == {0: [9]}
    for without, error in (((), "gaps: offsets 0: "), (("gaps",), r"offsets of generation 0: 0: \[0, 4\) \[8, 10\)")):
        with pytest.raises(ConfigurationError, match=error):
            planned(topic, offsets={0: (4, 8)}, without=without)
    land_offsets(topic, (4, 8))
    assert offsets_of(replayed(topic)) == {0: [*range(10)]}


@pytest.mark.usefixtures("_in_memory")
def test_offsets_that_are_not_landed_are_named_in_windows_that_they_may_be_in() -> None:
    """By the times of the objects around them."""
    topic = landed_apart()
    for since, until in ((0, 2), (9, 20), (9, 10)):
        assert planned(topic, since=time(since), until=time(until)).partitions
    for since, until in ((0, 9), (3, 20), (2, 4), (8, 9)):
        with pytest.raises(ConfigurationError, match=r"gaps: offsets 0: \[4, 8\)"):
            planned(topic, since=time(since), until=time(until))


def land_hours(topic: Topic, *windows: tuple[int, int]) -> None:
    """Land these hours of the records, one each, each window by a run."""
    land_windows(topic, *((START + start * HOUR, START + end * HOUR) for start, end in windows))


@pytest.mark.usefixtures("_in_memory")
def test_a_window_that_runs_have_landed_is_sent_before_those_around_it_are_landed() -> None:
    """As a backfill does that replays each window after it is landed: the runs have recorded what they landed."""
    topic = envelopes()
    for n in range(12):
        topic.append(b"%d" % n, timestamp=START + n * HOUR)
    land_hours(topic, (10, 11), (2, 3), (5, 7))
    hours = {n: dt.datetime.fromtimestamp((START + n * HOUR) / 1000, dt.UTC) for n in range(13)}
    for start, end in ((2, 3), (5, 7), (10, 11)):
        assert offsets_of(replayed(topic, since=hours[start], until=hours[end])) == {0: [*range(start, end)]}
    for start, end in ((1, 3), (2, 7), (5, 8), (4, 7), (3, 5)):
        with pytest.raises(ConfigurationError, match=r"gaps: offsets 0: .* Land them first, if Kafka has them"):
            planned(topic, since=hours[start], until=hours[end])


@pytest.mark.usefixtures("_in_memory")
@pytest.mark.parametrize("selection", [{}, {"offsets": {0: (0, 12)}}, {"since": time(8)}, {"since": time(2)}], ids=str)
def test_what_an_open_batch_holds_back_is_named(selection: dict[str, Any]) -> None:
    """It and the landed ones behind it; also if nothing else is selected."""
    topic = envelopes()
    numbered(topic, 4)
    topic.land("a")
    numbered(topic, 4, 4)
    topic.pipeline.run(topic.request("b")).advance()
    numbered(topic, 4, 8)
    land_offsets(topic, (8, 12))
    message = (
        r"gaps: offsets 0: \[8, 12\) are landed, but batch 2 before them is open. Complete it by the run that planned "
        r"it, or by `kafka-s3 recover .*`; offsets 0: \[4, 8\) are in no complete batch"
    )
    with pytest.raises(ConfigurationError, match=message):
        planned(topic, **selection)
    assert offsets_of(replayed(topic, since=time(0), until=time(2), without=("gaps",))) == {0: [0, 1]}
    topic.land("d", adopt_wait=0)
    assert offsets_of(replayed(topic)) == {0: [*range(12)]}


@pytest.mark.usefixtures("_in_memory")
def test_what_later_batches_have_landed_in_between_is_named_for_an_earlier_one() -> None:
    """A batch may have several ranges of a Kafka partition."""
    topic = envelopes()
    numbered(topic, 9)
    land_offsets(topic, (8, 9), (0, 1))
    land_offsets(topic, (4, 6))
    behind = r"gaps: offsets 0: \[4, 6\) are in batches behind batch 2; offsets 0: \[1, 4\) \[6, 8\) are in no complete"
    with pytest.raises(ConfigurationError, match=behind):
        planned(topic, at=2)
    land_offsets(topic, (1, 8))
    with pytest.raises(ConfigurationError, match=r"gaps: offsets 0: \[1, 4\) \[6, 8\) are in batches behind batch 3"):
        planned(topic, at=3)
    assert offsets_of(replayed(topic, at=4)) == {0: [*range(9)]}


@pytest.mark.usefixtures("_in_memory")
def test_offsets_of_a_batch_that_is_planned_again_are_named() -> None:
    """Until they are landed."""
    topic = envelopes()
    numbered(topic, 4)
    topic.land("a")
    numbered(topic, 4, 4)
    topic.pipeline.run(topic.request("b")).advance()
    numbered(topic, 4, 8)
    topic.pipeline.abandon(2, release="debt", reason="test", operator="test")
    land_offsets(topic, (8, 12))
    with pytest.raises(ConfigurationError, match=r"gaps: offsets 0: \[4, 8\)"):
        planned(topic)
    topic.land("d")
    assert offsets_of(replayed(topic)) == {0: [*range(12)]}


def test_what_some_records_have_otherwise_is_a_note_of_the_plan() -> None:
    """It need not be accepted, and is shown."""
    topic = Topic(layout_of(JsonLines(), content=Envelope(), value_converter=JsonConverter()))
    numbered(topic, 2)
    topic.land()
    (note,) = planned(topic).notes
    assert note.startswith("value: a document with newlines was rewritten in one line")


BLOCKS = BlockGzip(lines=JsonLines())


def test_the_order_of_blocks_is_named_before_anything_is_sent_unless_their_index_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Indices of earlier versions have no ranges of blocks with thousands of gaps."""
    layout = layout_of(BLOCKS, partitioner=ByField(names=("f",)), value_converter=JsonConverter())
    few, many, earlier = Topic(layout), Topic(layout), Topic(layout)
    numbered(few, 100)
    few.land()
    for topic in (many, earlier):
        numbered(topic, 50)
        topic.land("a")
        numbered(topic, 5_000, 50)
    many.land("b")
    with monkeypatch.context() as patch:
        patch.setattr(BlockOffsets, "found", lambda self: (None, None))
        earlier.land("b")
    assert offsets_of(replayed(few, without=VALUES)) == {0: [*range(100)]}
    assert offsets_of(replayed(many, without=VALUES)) == {0: [*range(5_050)]}
    with pytest.raises(ConfigurationError, match=r"order: objects of several folders have offsets in turn.*f=[01]/"):
        planned(earlier, without=VALUES)
    assert len(replayed(earlier, without=(*VALUES, "order"))[0]) == 5_050


def test_the_order_of_null_values_beside_blocks_is_named_before_anything_is_sent() -> None:
    """They are in objects of keys, which have no index."""
    layout = layout_of(
        BlockGzip(lines=JsonLines(on_null="write")),
        content=SiblingObjects(keys=JsonLines()),
        key_converter=StringConverter(),
    )
    topic = Topic(layout)
    for n in range(12):
        topic.append(None if n % 3 == 0 else b'{"n":%d}' % n, timestamp=START + n, key=b"k%d" % n)
    topic.land()
    accepted = ("headers", "timestamp")
    with pytest.raises(ConfigurationError, match="order: objects of several folders"):
        planned(topic, without=accepted)
    with pytest.raises(ConfigurationError, match=r"begin or end inside of .* with gaps, and does not keep them"):
        planned(topic, without=accepted, offsets={0: (2, 7)})
    found = replayed(topic, without=(*accepted, "order"), offsets={0: (0, 12)})
    assert sorted(r.key or b"" for r in found[0]) == sorted(b"k%d" % n for n in range(12))


def test_offsets_that_cut_objects_without_offsets_are_refused_before_anything_is_sent() -> None:
    """Those that have whole objects are sent, whatever the gaps."""
    layout = layout_of(RawBytes(), partitioner=Hourly())
    topic = Topic(layout)
    for n in range(12):
        topic.append(b"%d" % n, timestamp=START + n % 2 * 3_600_000)
    topic.land()
    with pytest.raises(ConfigurationError, match=r"begin or end inside of .* with gaps, and does not keep them"):
        planned(topic, without=(*VALUES, "order"), offsets={0: (2, 7)})
    assert len(replayed(topic, without=(*VALUES, "order"), offsets={0: (0, 12)})[0]) == 12


def test_objects_that_keep_offsets_are_in_order_also_if_that_of_others_is_not_known() -> None:
    """Accepted is what is not known, and no more."""
    topic = Topic(layout_of(RawBytes(), partitioner=Hourly()))
    for n in range(6):
        topic.append(b"%d" % n, timestamp=START + n % 2 * 3_600_000)
    topic.land("a")
    topic.layout = layout_of(JsonLines(), content=Envelope(), partitioner=Hourly(), value_converter=BytesConverter())
    for n in range(6, 12):
        topic.append(b"%d" % n, timestamp=START + n % 2 * 3_600_000)
    topic.land("b")
    found = [record.value for record in replayed(topic, without=(*VALUES, "order"))[0]]
    assert found == [b"0", b"2", b"4", b"1", b"3", b"5", b"6", b"7", b"8", b"9", b"10", b"11"]


def test_a_lost_object_of_keys_is_named_and_its_records_are_sent_without_keys() -> None:
    """The keys of other objects are sent."""
    layout = layout_of(
        JsonLines(), content=SiblingObjects(keys=JsonLines(), headers=None), key_converter=StringConverter()
    )
    topic = Topic(layout)
    for run in range(2):
        for n in range(2):
            topic.append(b'{"n":%d}' % n, timestamp=START, key=b"k%d" % run)
        topic.land(str(run))
    lost = next(key for key in topic.objects() if ".keys" in key)
    topic.bucket.delete(lost)
    topic.pipeline.log.create_amend(Amend(batch=1, keys=(lost,), reason="gone", operator="test"), 1)
    with pytest.raises(ConfigurationError, match=r"key: .*\.keys\.json was accepted as lost"):
        planned(topic, without=("headers", "timestamp"))
    found = replayed(topic, without=("headers", "timestamp", "key"))
    assert [record.key for record in found[0]] == [None, None, b"k1", b"k1"]
    assert [record.value for record in found[0]] == [b'{"n":0}', b'{"n":1}'] * 2


def lose(topic: Topic, key: str, batch: int) -> None:
    """Delete an object, and accept that."""
    topic.bucket.delete(key)
    topic.pipeline.log.create_amend(Amend(batch=batch, keys=(key,), reason="gone", operator="test"), 1)


@pytest.mark.parametrize("selection", [{}, {"offsets": {0: (5, 6)}}, {"since": time(7)}, {"until": time(5)}], ids=repr)
def test_an_object_that_was_accepted_as_lost_is_named_if_some_of_it_is_selected(selection: dict[str, Any]) -> None:
    """And its records are left out if that is accepted; a selection of others needs no word."""
    topic = envelopes()
    for run in range(3):
        numbered(topic, 4, run * 4)
        topic.land(str(run))
    gone = sorted(topic.objects())[1]
    lose(topic, gone, 2)
    with pytest.raises(DataLossError, match=rf"lost: .*{re.escape(gone)} was accepted as lost.*--without lost"):
        planned(topic, **selection)
    if "offsets" not in selection:
        found = offsets_of(replayed(topic, without=("lost",), **selection))
        assert not {4, 5, 6, 7} & {*found[0]}
    assert offsets_of(replayed(topic, offsets={0: (0, 4)})) == {0: [0, 1, 2, 3]}


def until_lost(topic: Topic, plan: ReplayPlan, skip: int = 0) -> tuple[list[int | None], str]:
    """The offsets that are given before an error, and its message."""
    given: list[int | None] = []
    try:
        for some in ReplaySource(topic.pipeline.log, request(), plan).records(0, skip):
            given += [record.offset for record in some]
    except DataLossError as e:
        return given, str(e)
    raise AssertionError("nothing is lost")


def test_an_object_that_is_lost_after_the_plan_is_an_error_with_the_way_to_send_the_rest() -> None:
    """What is before it is given, and another id sends exactly what is behind it."""
    topic = envelopes()
    for run in range(3):
        numbered(topic, 4, run * 4)
        topic.land(str(run))
    plan = planned(topic)
    lose(topic, sorted(topic.objects())[1], 2)
    given, message = until_lost(topic, plan)
    assert given == [0, 1, 2, 3]
    for part in (
        "4 records with offsets from 4 to 7",
        "4 records of the partition were sent: all with lower offsets, and none behind this object",
        "use another id with the same settings, and --offsets 0:4-12 --without lost",
    ):
        assert part in message
    assert "6 records of the partition were sent" in until_lost(topic, plan, 6)[1]
    assert offsets_of(replayed(topic, offsets={0: (4, 12)}, without=("lost",))) == {0: [8, 9, 10, 11]}


def test_an_object_that_is_lost_among_others_is_an_error_where_its_offsets_begin() -> None:
    """Of objects of several folders; those that were sent before are named, also by an earlier process."""
    topic = envelopes(partitioner=Hourly())
    for n, hour in enumerate((0, 0, 1, 0, 1, 2)):
        topic.append(b"%d" % n, timestamp=START + hour * 3_600_000)
    topic.land()
    plan = planned(topic)
    lose(topic, sorted(topic.objects())[1], 1)
    given, message = until_lost(topic, plan)
    assert given == [0, 1]
    assert "2 records of the partition were sent: all with lower offsets, and none behind this object" in message
    assert "--offsets 0:2-6 --without lost" in message
    assert offsets_of(replayed(topic, offsets={0: (2, 6)}, without=("lost",))) == {0: [3, 5]}
    message = until_lost(topic, plan, 4)[1]
    assert "4 records of the partition were sent: all with lower offsets, and some with higher ones" in message
    assert "--offsets 0:START-6 --without lost" in message


def test_the_ages_of_the_records_of_a_plan_are_those_of_its_window() -> None:
    """An object may have other records as well; they are not sent."""
    topic = envelopes(partitioner=Daily())
    numbered(topic, 6)
    topic.land()
    plan = planned(topic)
    assert (plan.oldest, plan.newest) == (START, START + 5)
    plan = planned(topic, since=time(2), until=time(4))
    assert (plan.oldest, plan.newest) == (START + 2, START + 3)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigurationError, match=f"records_per_second={rate} must be a number above 0"):
        request(records_per_second=rate)


def test_a_window_without_a_time_is_refused() -> None:
    """Both bounds are named."""
    with pytest.raises(ConfigurationError, match=r"no time is at 2023-.* or later and before 2023-.*: since, until"):
        request(since=time(4), until=time(4))
