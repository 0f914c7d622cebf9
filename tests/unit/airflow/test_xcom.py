"""The XCom of a task is bounded, whatever it verifies."""

from __future__ import annotations

import json

from airflow_provider_kafka_s3.airflow.run_window import RunWindow
from airflow_provider_kafka_s3.airflow.xcom import to_xcom
from airflow_provider_kafka_s3.batch.request import BatchSummary, TopicResult, Verification
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets


def test_a_verification_lists_the_last_batches_and_the_numbers_of_all() -> None:
    """A topic may have any number; a run that lands lists all of its own, which consumers read by their numbers."""
    counts = dict.fromkeys(("objects", "records", "tombstones", "ignored", "dead_letters", "size"), 1)
    batches = tuple(
        BatchSummary(n, f"s3://lake/{n}", mine=True, landed=True, offsets=Offsets({0: [(n, n + 1)]}), **counts)
        for n in range(10_000)
        if n != 7
    )
    missing = tuple(f"key-{n}" for n in range(10_000))

    def topic(verification: Verification | None) -> dict[str, object]:
        result = TopicResult("orders", "ok", NO_OFFSETS, batches, NO_OFFSETS, verification=verification)
        returned = to_xcom({"orders": result}, RunWindow(action="verify", source="stored offsets"))
        found: dict[str, object] = returned["topics"]["orders"]
        return found

    found = topic(Verification(1, 1, missing=missing))
    assert len(json.dumps(found)) < 50_000
    assert [batch["batch"] for batch in found["batches"]] == [*range(9_900, 10_000)]  # type: ignore[attr-defined]
    assert (found["batch_ranges"], found["records"]) == ([[0, 6], [8, 9_999]], 9_999)
    report: dict[str, object] = found["verification"]  # type: ignore[assignment]
    assert (report["missing"], report["counts"]) == (
        [*missing[:100]],
        {"restored": 0, "missing": 10_000, "accepted": 0, "given": 0},
    )
    assert len(topic(None)["batches"]) == 9_999  # type: ignore[arg-type]
