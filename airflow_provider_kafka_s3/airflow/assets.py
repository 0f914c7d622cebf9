"""Events of the outlet assets of a successful run: its window is complete, with counts and offsets.

A DAG that is scheduled by such an asset (a dataset, in Airflow 2) reads them as ``extra`` of the asset's event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS, Offsets

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.airflow.run_context import RunContext

__all__ = ["announce", "event_extra"]

_FIELDS: Final = (
    "status",
    "records",
    "tombstones",
    "ignored",
    "dead_letters",
    "objects",
    "size",
    "landed",
    "unknown_fields",
)


def event_extra(run: RunContext, returned: Mapping[str, Any]) -> dict[str, Any]:
    """The ``extra`` of an asset event; JSON, and nothing secret.

    ::

        {"bucket": "lake", "pipeline": "orders-to-lake",
         "action": "land",           # or "verify", "restore"
         # None: a run that continues from the stored offsets
         "window": {"source": "data interval", "start": "2026-01-01T00:00:00+00:00", "end": "2026-01-01T01:00:00+0…"},
         "status": "ok",             # "empty" if there was nothing to do for any topic
         # Batches that this run landed; no other run counts them:
         "landed": {"batches": 1, "records": 40000, "tombstones": 0, "ignored": 0, "dead_letters": 0, "objects": 12,
                    "size": 5242880},
         # Batches that cover the window, whichever run landed them, and those that this run landed:
         "topics": {"orders": {"status": "ok", "records": 40000, "tombstones": 0, "ignored": 0, "dead_letters": 0,
                               "objects": 12, "size": 5242880,
                               "landed": {"batches": 1, "records": 40000, "tombstones": 0, "ignored": 0,
                                          "dead_letters": 0, "objects": 12, "size": 5242880},
                               "unknown_fields": {"records": 0, "landed": 0, "names": []},
                               "batches": [7], "landed_batches": [7], "offsets": {"0": [[100, 150]]}, "skipped": {}}}}

    Args:
        run: of the task.
        returned: XCom of the task, see :func:`airflow_provider_kafka_s3.airflow.xcom.to_xcom`.
    """
    topics = {}
    for topic, result in returned["topics"].items():
        offsets = NO_OFFSETS
        for batch in result["batches"]:
            offsets |= Offsets.from_json(batch["offsets"])
        topics[topic] = {
            **{name: result[name] for name in _FIELDS},
            "batches": [batch["batch"] for batch in result["batches"]],
            # For consumers that read each record once.
            "landed_batches": [batch["batch"] for batch in result["batches"] if batch["landed_here"]],
            "offsets": offsets.to_json(),
            "skipped": result["skipped"],
        }
    return {
        "bucket": run.bucket,
        "pipeline": run.settings.pipeline,
        "action": returned["action"],
        "window": returned["window"],
        "status": returned["status"],
        # No sums over the batches that cover the window: one batch may cover two runs, and a sum over events would
        # count it twice.
        "landed": returned["landed"],
        "topics": topics,
    }


def announce(context: Context, outlets: Sequence[Any], extra: Mapping[str, Any]) -> None:
    """Attach an ``extra`` to the events of a task's outlets, which Airflow creates when the task succeeds.

    Args:
        context: of the task.
        outlets: of the task. Aliases are skipped: their assets are unknown here.
        extra: JSON.
    """
    if not outlets:
        return
    from airflow.providers.common.compat.sdk import Asset

    for outlet in outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra = dict(extra)
