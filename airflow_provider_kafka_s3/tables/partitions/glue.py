"""A table in the Glue Data Catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    CatalogUnavailableError,
    KafkaS3Error,
    TableNotFoundError,
    ThrottledError,
)
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.s3_errors import translate
from airflow_provider_kafka_s3.tables.partitions.port import PartitionedTable, TableDescription, Values

__all__ = ["GluePartitions"]

_LOOKED_UP: Final = 1000
"""Partitions of a BatchGetPartition at most."""

_THROTTLED: Final = {"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"}
_PASSING: Final = {
    "ConcurrentModificationException",
    "FederationSourceRetryableException",
    "InternalFailure",
    "InternalServiceException",
    "OperationTimeoutException",
    "ResourceNotReadyException",
    "ServiceUnavailable",
    "ServiceUnavailableException",
}
_NO_TABLE: Final = "EntityNotFoundException"
_THERE: Final = "AlreadyExistsException"


class GluePartitions(PartitionedTable):
    """A table of Glue. Any number of threads may share the client.

    Args:
        client: of Glue, with one try per request.
        table: database and name.
        catalog_id: of the catalog; None: that of the account.
        retrier: repeats requests.
    """

    dialect = "athena"
    catalog = "Glue"

    def __init__(self, client: Any, table: str, *, catalog_id: str | None = None, retrier: Retrier) -> None:
        super().__init__(table)
        self._client = client
        self._of_catalog = {} if catalog_id is None else {"CatalogId": catalog_id}
        self._retrier = retrier

    @cached_property
    def _table(self) -> dict[str, Any] | None:
        try:
            answer = self._retrier.call(
                lambda: self._send("GetTable", self._client.get_table, Name=self.name), what=f"GetTable {self.where}"
            )
        except TableNotFoundError:
            return None
        table: dict[str, Any] = answer["Table"]
        return table

    @override
    def describe(self) -> TableDescription | None:
        table = self._table
        if table is None:
            return None
        names = tuple(key["Name"].lower() for key in table.get("PartitionKeys", ()))
        return TableDescription(names, table.get("StorageDescriptor", {}).get("Location", ""))

    @override
    def existing(self, partitions: Sequence[Values]) -> dict[Values, str]:
        locations: dict[Values, str] = {}
        for first in range(0, len(partitions), _LOOKED_UP):
            waiting = [*partitions[first : first + _LOOKED_UP]]

            def look_up(waiting: list[Values] = waiting) -> None:
                answer = self._send(
                    "BatchGetPartition",
                    self._client.batch_get_partition,
                    TableName=self.name,
                    PartitionsToGet=[{"Values": [*values]} for values in waiting],
                )
                for entry in answer.get("Partitions", ()):
                    locations[tuple(entry["Values"])] = entry.get("StorageDescriptor", {}).get("Location", "")
                waiting[:] = [tuple(entry["Values"]) for entry in answer.get("UnprocessedKeys", ())]
                if waiting:
                    raise ThrottledError(f"{self.where}: Glue did not look up {len(waiting):,} partitions")

            self._retrier.call(look_up, what=f"BatchGetPartition {self.where}")
        return locations

    @override
    def add(self, partitions: Mapping[Values, str]) -> dict[Values, str]:
        assert self._table is not None, "it was described"
        storage = self._table.get("StorageDescriptor", {})
        waiting, refused = dict(partitions), dict[Values, str]()

        def create() -> None:
            answer = self._send(
                "BatchCreatePartition",
                self._client.batch_create_partition,
                TableName=self.name,
                PartitionInputList=[
                    {"Values": [*values], "StorageDescriptor": {**storage, "Location": location}}
                    for values, location in waiting.items()
                ],
            )
            again: dict[Values, str] = {}
            passing: KafkaS3Error | None = None
            for entry in answer.get("Errors", ()):
                values, detail = tuple(entry["PartitionValues"]), entry.get("ErrorDetail", {})
                code, message = detail.get("ErrorCode", ""), detail.get("ErrorMessage", "")
                if code == _THERE:
                    continue
                if code in _THROTTLED | _PASSING:
                    again[values] = waiting[values]
                    passing = self._error("BatchCreatePartition", code, message)
                else:
                    refused[values] = f"{code}: {message}"
            waiting.clear()
            waiting.update(again)
            if passing is not None:
                raise passing

        self._retrier.call(create, what=f"BatchCreatePartition {self.where}")
        return refused

    def _send(self, action: str, method: Any, **arguments: Any) -> Any:
        try:
            return method(DatabaseName=self.database, **self._of_catalog, **arguments)
        except Exception as e:
            response = getattr(e, "response", None)
            described = response.get("Error", {}) if isinstance(response, dict) else {}
            error = self._error(action, str(described.get("Code", "")), str(described.get("Message", "")))
            error = error or translate(e, kind="other", action=action, where=self.where)
            if error is None:
                raise
            raise error from e

    def _error(self, action: str, code: str, message: str) -> KafkaS3Error | None:
        """The error of an answer of Glue; None for one that any service may give."""
        text = f"{self.where}: {action} is answered by {code}: {message}"
        if code in _THROTTLED:
            return ThrottledError(text)
        if code in _PASSING:
            return CatalogUnavailableError(text)
        if code.startswith("AccessDenied"):
            return AccessDeniedError(f"{text}. Allow glue:{action} to the credentials, or correct the connection")
        if code == _NO_TABLE:
            return TableNotFoundError(text)
        return None
