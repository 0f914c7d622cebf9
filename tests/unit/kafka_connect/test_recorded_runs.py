"""The recorded runs of Kafka Connect's S3 sink: an operator made from the same configuration lands the same objects.

``docs/differences-from-kafka-connect.md`` names each run in which something differs, with the reason. A difference that
it does not name fails, and so does one that it names and that is none.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3 import JsonLines, KafkaToS3Operator
from airflow_provider_kafka_s3.documents.manifest import ObjectEntry
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.pipeline import SimulatedPipeline
from tests.connect_corpus import SCENARIOS, Scenario
from tests.unit.operators.conftest import make_context

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs/differences-from-kafka-connect.md").read_text()
ROWS: Final[list[list[str]]] = [re.findall(r"[A-Z]\d\d", row) for row in re.findall(r"(?m)^\|.*\|([^|]*)\|$", PAGE)]
"""The runs that each row of the page names."""


@dataclass
class Landed:
    """What an operator landed.

    Attributes:
        objects: key -> bytes.
        entries: of the manifest, by key.
        partitions: the Kafka partition of each slice.
        error: why nothing was landed.
    """

    objects: dict[str, bytes]
    entries: dict[str, ObjectEntry]
    partitions: dict[int, int]
    error: Exception | None = None


def land(scenario: Scenario, *, records_per_poll: int = 500) -> Landed:
    """Land the records of a run with an operator made from its configuration."""
    from airflow.exceptions import AirflowException

    topic = scenario.topic
    with SimulatedPipeline() as simulated:
        simulated.kafka = SimulatedKafka(records_per_poll=records_per_poll)
        scenario.fill(simulated.kafka)
        try:
            task = KafkaToS3Operator.from_connect_config(scenario.connector(topic))
            task.execute(make_context())
        except (AirflowException, ConfigurationError) as e:
            return Landed(simulated.objects(), {}, {}, e)
        log = simulated.topic_pipeline(task.pipeline, topic, topics_dir=task.topics_dir).log
        plan, manifest = log.read_plan(1), log.read_manifest(1)
        assert plan is not None
        assert plan.layout is not None
        assert manifest is not None
        if isinstance(plan.layout.format, JsonLines) and not plan.layout.has_typed_values:
            simulated.check(topics_dir=task.topics_dir)  # the bytes are those in Kafka
        entries = {entry.key: entry for entry in manifest.objects}
        return Landed(simulated.objects(), entries, {s.id: s.partition for s in plan.slices})


def differences(scenario: Scenario, landed: Landed) -> list[str]:
    """What differs from the run of Kafka Connect, but for the objects of the records that it leaves open."""
    case = scenario.case
    theirs = {o["key"]: o for o in case["objects"]}
    found = [f"{key} is missing" for key in sorted(theirs.keys() - landed.objects.keys())]
    found += [f"{key} has other records" for key in theirs if key in landed.objects and not same(theirs[key], landed)]
    if (case["error"] is None) != (landed.error is None):
        found.append(f"the error is {landed.error}")
    if case["error"] is not None and landed.error is not None:
        of_settings = "ConfigException" in str(case["error"].get("chain", "ConfigException"))
        if of_settings != isinstance(landed.error, ConfigurationError):
            found.append(f"the error is of another kind: {landed.error}")
        if not of_settings and re.search(r"partition \d+, offset \d+", str(landed.error)) is None:
            found.append(f"the error names no record: {landed.error}")
    if landed.error is None:
        found += [f"{key} is not of the open records" for key in others(scenario, landed)]
    return found


def same(recorded: dict[str, Any], landed: Landed) -> bool:
    """Whether an object has the records that Connect wrote, in their order; values that are no JSON byte for byte."""
    body = landed.objects[recorded["key"]]
    body = gzip.decompress(body) if recorded["key"].endswith(".gz") else body
    if hashlib.sha256(body).hexdigest() == recorded["sha256"]:
        return True
    return ".json" in recorded["key"] and lines(body) == lines(recorded["content"].encode())


def lines(body: bytes) -> list[Any]:
    """The documents of an object."""
    return [json.loads(line) for line in body.removesuffix(b"\n").split(b"\n")]


def others(scenario: Scenario, landed: Landed) -> list[str]:
    """The objects that Connect did not write, unless they hold exactly the records that it left open."""
    extra = sorted(landed.objects.keys() - {o["key"] for o in scenario.case["objects"]})
    opened = {(int(p), offset) for p, offsets in scenario.case["open_tail"].items() for offset in offsets}
    if scenario.case["config"].get("behavior.on.null.values") == "ignore":
        opened -= {
            (p, record.offset) for p, some in scenario.records.items() for record in some if record.value is None
        }
    # Keys and headers of the same records are beside their values.
    entries = {key.partition(".")[0]: landed.entries[key] for key in extra}
    ends = {(landed.partitions[e.slices[0]], o) for e in entries.values() for o in (e.min_offset, e.max_offset)}
    return [] if ends <= opened and sum(e.records for e in entries.values()) == len(opened) else extra


def lines_of(landed: Landed) -> list[str]:
    """The lines of all objects, in the order of their keys."""
    return [line for _, body in sorted(landed.objects.items()) for line in body.decode().splitlines()]


@pytest.mark.parametrize("records_per_poll", [1, 500])
@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - {name for row in ROWS for name in row}))
def test_objects_are_those_that_connect_wrote(name: str, records_per_poll: int) -> None:
    """Same names, same records in the same order; records that Connect leaves open in further objects; same errors."""
    assert differences(SCENARIOS[name], land(SCENARIOS[name], records_per_poll=records_per_poll)) == []


def test_every_run_has_one_row_at_most() -> None:
    """So each difference has one reason."""
    named = [name for row in ROWS for name in row]
    assert sorted(named) == sorted(set(named) & SCENARIOS.keys())


@pytest.mark.parametrize("name", sorted({name for row in ROWS for name in row}))
def test_each_run_on_the_page_of_differences_differs(name: str) -> None:
    """A row that is no longer true has to go."""
    assert differences(SCENARIOS[name], land(SCENARIOS[name])) != []


@pytest.mark.parametrize("name", ["J01", "J02"])
def test_json_keeps_the_digits_that_connect_loses(name: str) -> None:
    """The names are the same, and the values those in Kafka."""
    found = land(SCENARIOS[name])
    assert found.objects.keys() == {o["key"] for o in SCENARIOS[name].case["objects"]}
    assert lines_of(found) == [record[3] for record in SCENARIOS[name].case["records"]]


def test_the_json_text_null_is_a_document() -> None:
    """Only a null in Kafka is a null value."""
    assert lines_of(land(SCENARIOS["N06"])) == ['{"seq":0}', "null"]


def test_maps_keep_the_order_of_the_document() -> None:
    """But for the order of their entries, the maps of the run are equal."""
    (expected,), (found,) = SCENARIOS["J09"].case["objects"], land(SCENARIOS["J09"]).objects.values()
    theirs, ours = lines(expected["content"].encode()), lines(found)
    assert [d["mi"] for d in ours if d["mi"]] == [[[2, "b"], [1, "a"]]]
    assert [{**d, "mi": sorted(d["mi"] or ())} for d in ours] == [{**d, "mi": sorted(d["mi"] or ())} for d in theirs]


def test_headers_are_the_text_in_kafka() -> None:
    """The header converter of Connect makes the number 1.5 of the text 1.50; all else is equal."""
    case, found = SCENARIOS["K01"].case, land(SCENARIOS["K01"])
    for expected in case["objects"]:
        theirs = expected["content"].replace('"1.5"', '"1.50"').encode()
        assert lines(found.objects[expected["key"]]) == lines(theirs)


@pytest.mark.parametrize(("name", "folders"), [("F07", {"f=a": 1, "f=b": 1}), ("F10", {"dt=2017-03-02": 1})])
def test_fields_that_connect_refuses_make_folders(name: str, folders: dict[str, int]) -> None:
    """Maps have fields, and dates have a text."""
    assert {key.split("/")[2]: len(lines(body)) for key, body in land(SCENARIOS[name]).objects.items()} == folders


def test_a_control_character_of_a_value_is_percent_encoded() -> None:
    """In one of the 14 names; the others are those of Connect."""
    expected = {o["key"].replace("tab\tx", "tab%09x") for o in SCENARIOS["F06"].case["objects"]}
    assert land(SCENARIOS["F06"]).objects.keys() == expected


@pytest.mark.parametrize("name", ["K03", "T25"])
def test_nothing_of_a_batch_with_a_record_that_cannot_be_written_is_landed(name: str) -> None:
    """Connect leaves the object of the record before it, with no committed offset."""
    found = land(SCENARIOS[name])
    assert found.objects == {}
    assert "partition 0, offset 1" in str(found.error)


def test_formats_and_converters_that_do_not_belong_together_are_refused_in_the_dag() -> None:
    """Before any record is read."""
    error = land(SCENARIOS["B09"]).error
    assert isinstance(error, ConfigurationError)
    assert "value_converter=StringConverter() does not go with format=RawBytes(" in str(error)
