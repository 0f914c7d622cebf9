"""Tasks with partitioners and formats of another package, which nothing but ``py_files`` ships."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3 import Chain, CustomFormat, CustomPartitioner, Daily
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.testing.pipeline import SimulatedPipeline
from tests.outside.shelf import packed
from tests.unit.operators.conftest import make_context, make_operator

DAY = datetime(2026, 1, 1, tzinfo=UTC)
TENANTS = CustomPartitioner(import_path="shelf_layouts.tenants:TenantPartitioner", options={"tiers": {"a": "gold"}})


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The other package."""
    import sys

    monkeypatch.syspath_prepend(packed(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("shelf_layouts")]:
        del sys.modules[name]


def prefixed(body: bytes) -> list[bytes]:
    """The values in an object with lengths."""
    assert body[:4] == b"SHLF"
    values, at = [], 4
    while at < len(body) - 4:
        (length,) = struct.unpack_from(">I", body, at)
        values.append(body[at + 4 : at + 4 + length])
        at += 4 + length
    assert struct.unpack(">I", body[-4:]) == (len(values),)
    return values


def test_a_task_lands_with_classes_of_another_package(shelf: None) -> None:
    """Folders of the class, then of the time; its own objects; a rerun and a restore make the same ones."""
    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"tenant": "a", "n": 1}, {"tenant": "b"}, {"tenant": "a", "n": 2}, at=DAY)
        task = make_operator(
            partitioner=Chain(partitioners=(TENANTS, Daily())),
            format=CustomFormat(import_path="shelf_layouts.lengths:LengthPrefixed", extension=".shelf"),
            value_converter="json",
        )
        assert task.execute(make_context())["landed"]["records"] == 3
        day, landed = "year=2026/month=01/day=01", simulated.objects()
        assert {key: prefixed(body) for key, body in landed.items()} == {
            f"topics/orders/shelf=gold/tenant=a/{day}/orders+0+0000000000.shelf": [
                b'{"tenant": "a", "n": 1}',
                b'{"tenant": "a", "n": 2}',
            ],
            f"topics/orders/shelf=other/tenant=b/{day}/orders+0+0000000001.shelf": [b'{"tenant": "b"}'],
        }
        task.execute(make_context())
        assert simulated.objects() == landed
        simulated.bucket.delete(next(iter(landed)))
        task.execute(make_context(conf={"kafka_s3": {"action": "restore"}}))
        assert simulated.objects() == landed
        plan, _ = simulated.topic_pipeline("orders-to-lake", "orders").log.require_plan(1)
        stored = msgspec.to_builtins(plan.layout)
        assert stored["partitioner"]["partitioners"][0]["pinned"] == {
            "version": "1",
            "reads": (),
            "fields": ("tenant",),
        }
    simulated.check(decoder=lambda _, body: prefixed(body))


def test_a_refused_record_fails_the_batch_or_is_a_dead_letter(shelf: None) -> None:
    """With the reason of the class, and what to do."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"tenant": "a"}, {"tenant": 5})
        with pytest.raises(AirflowFailException, match="offset 1: the tenant is no text; correct the producer or your"):
            make_operator(partitioner=TENANTS).execute(make_context())
        assert simulated.objects() == {}
        # Another run, since the batch is planned with the layout of the first one.
        simulated.append("clicks", {"tenant": "a"}, {"tenant": 5})
        task = make_operator(topics="clicks", partitioner=TENANTS, errors="dead_letter")
        assert task.execute(make_context(run_id="manual__2"))["landed"]["dead_letters"] == 1
        letters = [body for key, body in simulated.objects().items() if "_dead_letters" in key]
    assert json.loads(letters[0])["reason"] == "the tenant is no text"


def test_a_plan_of_another_version_is_refused_with_what_to_install(
    shelf: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is landed by other code; with the code of the plan, the batch is landed."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    task = make_operator(partitioner=TENANTS)
    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"tenant": "a"})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("airflow_provider_kafka_s3.testing.pipeline._SimulatedJob.run", _raise)
            with pytest.raises(RuntimeError, match="killed"):
                task.execute(make_context())
        from shelf_layouts import tenants  # type: ignore[import-not-found]

        monkeypatch.setattr(tenants.TenantPartitioner, "version", "2")
        with pytest.raises(
            AirflowFailException, match=r"batch 1 of topic 'orders' was planned with version '1' of shelf_layouts"
        ):
            task.execute(make_context())
        assert simulated.objects() == {}
        monkeypatch.setattr(tenants.TenantPartitioner, "version", "1")
        assert task.execute(make_context())["landed"]["records"] == 1
    simulated.check()


def _raise(*_: object) -> None:
    raise RuntimeError("killed")


def test_a_class_is_checked_when_the_dag_is_parsed_if_it_can_be_imported(shelf: None) -> None:
    """A wrong name or option is an error there."""
    for settings, message in (
        ({"import_path": "shelf_layouts.tenants:Tenant"}, "is no class that derives from"),
        ({"import_path": "shelf_layouts.tenants:TenantPartitioner", "options": {"feild": "a"}}, "'feild'"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            make_operator(partitioner={"kind": "custom", **settings})
    with pytest.raises(ConfigurationError, match="looks at the fields tenant, and BytesConverter"):
        make_operator(partitioner=TENANTS, format="bytes")


def test_a_class_that_only_tasks_can_import_is_checked_there() -> None:
    """The process that parses DAGs need not have it; the task needs it, and fails before anything is planned."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    task = make_operator(partitioner=TENANTS)
    with SimulatedPipeline() as simulated:
        simulated.append("orders", {"tenant": "a"})
        with pytest.raises(
            AirflowFailException, match=r"cannot be imported in .*ModuleNotFoundError.*or ship it to them by py_files"
        ):
            task.execute(make_context())
        assert [*simulated.bucket.list("")] == []
