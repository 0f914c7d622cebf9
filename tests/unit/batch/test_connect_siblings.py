"""The recorded runs of Kafka Connect's S3 sink that store keys and headers: the same objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import RecordError
from airflow_provider_kafka_s3.kafka_connect.convert import convert, layout_of
from tests.unit.batch.simulated_topic import Topic

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[2] / "vectors" / "connect_corpus.json").read_text())["cases"]
    if case["config"].get("store.kafka.keys") == "true" or case["config"].get("store.kafka.headers") == "true"
}
LANDED = ["K01", "K06", "N03", "N08"]
REFUSED = {"K03": "offset 1: the key is null", "K07": "offset 0: the value of a header is null"}
WITHOUT_ROTATION_BY_TIME = {"N07"}


def land(case: dict[str, Any]) -> dict[str, bytes]:
    """The objects of a case."""
    converted = convert({**case["config"], "topics.dir": "lake"}, topics="corpus", bucket="lake", pipeline="corpus")
    layout = layout_of(converted.parameters)
    topic = Topic(layout)
    for _, timestamp, key, value, *headers in case["records"]:
        topic.append(
            None if value is None else _sent(value, case.get("envelope")),
            timestamp=timestamp,
            key=None if key is None else key.encode(),
            headers=[(name, None if text is None else text.encode()) for name, text in (headers or [[]])[0]],
        )
    topic.land()
    if "envelope" not in case:  # then lines are the values in Kafka
        topic.check(lambda _, body: body.splitlines())
    return topic.objects()


def _sent(value: str, envelope: Any) -> bytes:
    """A value as it was in Kafka."""
    return (value if envelope is None else json.dumps({"schema": envelope, "payload": json.loads(value)})).encode()


def test_every_case_with_keys_or_headers_is_run() -> None:
    """A case that is added has to be run, or named with its reason."""
    assert CASES.keys() == {*LANDED, *REFUSED, *WITHOUT_ROTATION_BY_TIME}


@pytest.mark.parametrize("name", LANDED)
def test_objects_of_keys_and_headers_are_those_of_connect(name: str) -> None:
    """The same keys of objects; the same bytes of keys; headers with their text, which Connect may write otherwise."""
    case, expected = CASES[name], {o["key"]: o["content"] for o in CASES[name]["objects"]}
    topic, found = case["topic"], land(case)
    renamed = {
        key.replace("lake/orders/", f"topics/{topic}/").replace("orders+", f"{topic}+"): b for key, b in found.items()
    }
    # Connect leaves open what a bounded batch closes.
    opened = tuple(f"+{offset:010}." for offsets in case["open_tail"].values() for offset in offsets)
    assert expected.keys() <= renamed.keys()
    assert all(any(name in key for name in opened) for key in renamed.keys() - expected.keys())
    for key, content in expected.items():
        body = renamed[key]
        if ".keys." in key:
            assert body.decode() == content
        else:
            # Connect's header converter makes the number 1.5 of the text 1.50.
            theirs = content.replace('"1.5"', '"1.50"').splitlines()
            assert [json.loads(line) for line in body.splitlines()] == [json.loads(line) for line in theirs]


@pytest.mark.parametrize("name", REFUSED)
def test_what_connect_refuses_names_the_record(name: str) -> None:
    """A key or a header that is null."""
    with pytest.raises(RecordError, match=f"partition 0, {REFUSED[name]}"):
        land(CASES[name])
