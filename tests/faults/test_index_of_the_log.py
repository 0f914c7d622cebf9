"""The requests with which a run writes the index of the log: no fault of theirs is one of the run.

The run that resolves the last batch of a hundred sends them; here a hundred has one or two batches.
"""

from __future__ import annotations

from typing import Final

import pytest

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.maintenance.repair import repair
from dev.faults import Fault
from tests.faults.conftest import Site
from tests.faults.process import Topic
from tests.faults.test_every_fault import Request
from tests.faults.test_rare_requests import LOOKS, WRITES

LIST: Final = Request("ListObjectsV2", "_kafka_s3/*/index/*")
GET: Final = Request("GetObject", "_kafka_s3/*/index/*")
PUT: Final = Request("PutObject", "_kafka_s3/*/index/*", "if-none-match")
CASES: Final = [
    *(pytest.param(LIST, fault, id=f"LIST, {name}") for name, fault in LOOKS.items() if name != "flipped"),
    *(pytest.param(GET, fault, id=f"GET, {name}") for name, fault in LOOKS.items()),
    *(pytest.param(PUT, fault, id=f"PUT, {name}") for name, fault in WRITES.items()),
]


def names(site: Site, topic: Topic) -> list[str]:
    """The indexes that exist."""
    prefix = addresses.indexes_prefix(topic.control)
    return [info.key.removeprefix(prefix) for info in site.observer(topic).store.list(prefix)]


@pytest.mark.parametrize("site", ["versitygw-http"], indirect=True)
@pytest.mark.parametrize(("request_of_index", "fault"), CASES)
def test_a_fault_of_the_index_is_not_one_of_the_run(site: Site, request_of_index: Request, fault: Fault) -> None:
    """Once, the index is written all the same. In a whole run, that run succeeds; a repair writes what is missing."""
    topic = Topic("bytes", index_sizes=(1, 2))
    pattern = request_of_index.pattern(topic)
    for run, times in (("first", None), ("second", None), ("third", 1), ("fourth", 1)):
        topic.records_arrive()
        rule = site.proxy.add(
            fault,
            operation=request_of_index.operation,
            key=pattern,
            condition=request_of_index.condition,
            times=times,
        )
        assert site.process(topic).run(run).status == "ok"
        assert rule.struck or request_of_index is GET
        site.proxy.clear()
    process = site.process(topic)
    assert repair(process.committer, start={0: 0}).was == "right"
    assert names(site, topic) == [
        f"{first:010d}-{last:010d}.json" for first, last in ((1, 1), (1, 2), (2, 2), (3, 3), (3, 4), (4, 4))
    ]
    assert repair(site.process(topic).committer, start={0: 0}, every_document=True).indexes == 0
    site.observer(topic).check()
