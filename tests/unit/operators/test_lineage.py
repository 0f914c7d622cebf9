"""OpenLineage events of a run."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - after AIRFLOW_HOME is set, see conftest
    AirflowFailException,
)

from tests.unit.operators.conftest import CANARY

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench


@pytest.fixture
def openlineage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of the OpenLineage provider and client that are used, as plain namespaces."""
    import attrs

    class RunFacet:
        pass

    def module(name: str, **members: Any) -> None:
        made = ModuleType(name)
        made.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, made)

    module("airflow.providers.openlineage")
    module("airflow.providers.openlineage.extractors", OperatorLineage=SimpleNamespace)
    module(
        "airflow.providers.common.compat.openlineage.facet",
        Dataset=SimpleNamespace,
        OutputDataset=SimpleNamespace,
        OutputStatisticsOutputDatasetFacet=SimpleNamespace,
        RunFacet=attrs.define(RunFacet),
    )
    from airflow_provider_kafka_s3.airflow import lineage

    lineage._facet_class.cache_clear()
    monkeypatch.setattr(lineage, "_facet_class", lineage._facet_class.__wrapped__)


def test_lineage_leads_from_topics_to_prefixes(topics: Bench, openlineage: None) -> None:
    """With counts per topic and of the run; of the connections only the broker's address."""
    task = topics.task(topics="orders,clicks")
    assert task.get_openlineage_facets_on_complete(None) is None
    returned = topics.run(task)
    lineage = task.get_openlineage_facets_on_complete(None)
    assert [(d.namespace, d.name) for d in lineage.inputs] == [
        ("kafka://broker:9092", "orders"),
        ("kafka://broker:9092", "clicks"),
    ]
    assert [(d.namespace, d.name) for d in lineage.outputs] == [
        ("s3://lake", "topics/orders"),
        ("s3://lake", "topics/clicks"),
    ]
    counts = lineage.outputs[0].outputFacets["outputStatistics"]
    assert (counts.rowCount, counts.fileCount) == (2, 1)
    facet = lineage.run_facets["kafkaToS3"]
    assert (facet.records, facet.objects, facet.status) == (3, 2, returned["status"])
    assert CANARY not in repr(lineage)


def test_lineage_of_a_failed_run_has_no_counts(topics: Bench, openlineage: None) -> None:
    """It has inputs and outputs all the same."""
    task = topics.task()
    topics.spark.failing["orders"] = ("record", "offset 0 is no JSON")
    with pytest.raises(AirflowFailException):
        topics.run(task)
    lineage = task.get_openlineage_facets_on_complete(None)
    assert ([d.name for d in lineage.inputs], lineage.run_facets) == (["orders"], {})
