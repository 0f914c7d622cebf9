"""The fields in docs/monitoring.md are those of ``kafka-s3 status --json``."""

from __future__ import annotations

import re

from tests.documentation import ROOT
from tests.unit.docs.lake import filled_lake


def test_every_field_of_the_page_is_in_the_output_of_status() -> None:
    """Fields of a topic, of a batch and of a partition."""
    found = filled_lake().pipeline.status(last=2)
    assert found is not None
    topic = found.to_json()
    page = (ROOT / "docs" / "monitoring.md").read_text()
    table = page.split("| field of a topic | meaning |")[1].split("\n\n")[0]
    rows = {
        row[0]: set(re.findall(r"`(\w+)`", row[1]))
        for row in re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)
    }
    assert set(rows) == {"lag", "open", "last", "partitions", "recreated"} & set(topic)
    batch, partition = topic["last"][0], topic["partitions"][0]
    assert rows["open"] | rows["last"] <= set(batch)
    assert rows["partitions"] < set(partition)
    watched = set(re.findall(r"^\| .*?`(\w+)`.* \| `kafka-s3 status --json`", page, re.MULTILINE))
    assert {"lag", "gone", "recreated", "open", "debt"} <= watched <= set(topic) | set(partition) | set(batch)
