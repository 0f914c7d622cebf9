"""OpenLineage events of a run: topics as inputs, prefixes as outputs, and counts.

Airflow calls this only if the OpenLineage provider is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_provider_kafka_s3.layout.keys import data_prefix

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.airflow.run_context import RunContext

__all__ = ["RunLineage"]


@dataclass(frozen=True)
class RunLineage:
    """Lineage of a run. Names follow OpenLineage's conventions.

    Attributes:
        broker: address of the first broker of the cluster.
        bucket: name of the bucket.
        prefixes: per topic, the prefix of the keys of its objects; several topics may have the same.
        returned: XCom of the task; None: the task has not succeeded.
    """

    broker: str
    bucket: str
    prefixes: Mapping[str, str]
    returned: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, run: RunContext, returned: Mapping[str, Any] | None = None) -> RunLineage:
        """The lineage of a task."""
        return cls(
            # Most clients name a cluster by the first of its brokers, so the names agree.
            broker=str(run.kafka["bootstrap.servers"]).partition(",")[0].strip(),
            bucket=run.bucket,
            prefixes={
                # The bucket itself has the name "/".
                topic: data_prefix(topic_run.request.layout, topic).removesuffix("/") or "/"
                for topic, topic_run in run.runs.items()
            },
            returned=returned,
        )

    def to_openlineage(self) -> Any:
        """Convert to ``OperatorLineage`` of the OpenLineage provider."""
        from airflow.providers.common.compat.openlineage.facet import (
            Dataset,
            OutputDataset,
            OutputStatisticsOutputDatasetFacet,
        )
        from airflow.providers.openlineage.extractors import OperatorLineage

        topics = self.returned["topics"] if self.returned is not None else {}
        outputs = []
        for prefix in dict.fromkeys(self.prefixes.values()):
            facets = {}
            landed = [topics[t]["landed"] for t, where in self.prefixes.items() if where == prefix and t in topics]
            if landed:
                facets["outputStatistics"] = OutputStatisticsOutputDatasetFacet(
                    rowCount=sum(counts["records"] for counts in landed),
                    size=sum(counts["size"] for counts in landed),
                    fileCount=sum(counts["objects"] for counts in landed),
                )
            outputs.append(OutputDataset(namespace=f"s3://{self.bucket}", name=prefix, outputFacets=facets))
        return OperatorLineage(
            inputs=[Dataset(namespace=f"kafka://{self.broker}", name=topic) for topic in self.prefixes],
            outputs=outputs,
            run_facets={} if self.returned is None else {"kafkaToS3": _run_facet(self.returned)},
        )


def _run_facet(returned: Mapping[str, Any]) -> Any:
    fields = {name: returned[name] for name in ("action", "window", "status")}
    return _facet_class()(**fields, **returned["landed"])


@cache
def _facet_class() -> type:
    import attrs
    from airflow.providers.common.compat.openlineage.facet import RunFacet

    @attrs.define
    class KafkaToS3RunFacet(RunFacet):  # type: ignore[misc]  # Any without the client
        """Fields of the task's XCom; the counts are those of its ``landed``."""

        action: str
        window: dict[str, Any] | None
        status: str
        batches: int
        records: int
        tombstones: int
        ignored: int
        dead_letters: int
        objects: int
        size: int

    return KafkaToS3RunFacet
