"""By tenant, in the order of a company's own rules."""

from __future__ import annotations

import numpy as np

from airflow_provider_kafka_s3.extensions import (
    REFUSED,
    Batch,
    Encoded,
    Partitioner,
    PerRecordPartitioner,
    Record,
    Refused,
    Unusable,
    safe_name,
)


class TenantPartitioner(Partitioner):
    """``shelf=<tier>/tenant=<tenant>``: the tier is looked up once for each distinct tenant of a batch."""

    version = "1"
    max_path_bytes = 150

    def __init__(self, *, field: str = "tenant", tiers: dict[str, str] | None = None) -> None:
        self.fields = [field]
        self._tiers = tiers or {}

    def encode(self, batch: Batch) -> Encoded:
        """The paths of a batch."""
        (values,) = batch.fields.values()
        used, of_record = np.unique(values.codes, return_inverse=True)
        paths: list[str] = []
        codes, reasons = np.full(len(used), REFUSED, np.intp), {}
        for i, code in enumerate(used.tolist()):
            tenant = values.values[code]
            if isinstance(tenant, str):
                codes[i] = len(paths)
                paths.append(f"shelf={safe_name(self._tiers.get(tenant, 'other'))}/tenant={safe_name(tenant)}")
            else:
                reasons[i] = tenant.reason if isinstance(tenant, Unusable) else "is no text"
        refused = {row: f"the tenant {reasons[i]}" for row, i in enumerate(of_record.tolist()) if i in reasons}
        return Encoded(codes[of_record], paths, refused)


class RegionPartitioner(PerRecordPartitioner):
    """``region=<header>``, one record at a time."""

    version = "2026-01"
    reads = ("headers", "key")

    def path(self, record: Record) -> str | Refused:
        """By the header ``region``, or by whether there is a key."""
        for name, value in record.headers:
            if name == "region" and value:
                return f"region={safe_name(value.decode())}"
        return Refused("no header 'region', and no key") if record.key is None else "region=unknown"
