"""Glue, by moto over HTTP with faults, and a real Hive metastore: tables, and what they have."""

from __future__ import annotations

import io
import itertools
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from airflow_provider_kafka_s3.config.tables import MetastoreSettings
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.clients import make_glue_client
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings
from airflow_provider_kafka_s3.tables.partitions import PartitionedTable
from airflow_provider_kafka_s3.tables.partitions.glue import GluePartitions
from airflow_provider_kafka_s3.tables.partitions.hive import HivePartitions
from dev.metastore import HiveMetastore
from dev.s3_server import ThreadedS3Server

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

CREDENTIALS = S3Credentials(access_key_id="a", secret_access_key="b")
_numbers = itertools.count()

Fault = Callable[[dict[str, Any]], dict[str, Any] | None]
"""From a request to Glue to the error of its answer; or it changes the request, and returns None."""


def no_wait() -> Retrier:
    """Two retries without waiting; time passes by itself."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Retrier(RetryPolicy(max_retries=2), sleep=sleep, monotonic=lambda: now[0])


class GlueFaults:
    """Between the network and moto's Glue.

    Attributes:
        calls: number of requests, by action.
        refusals: errors of the next requests of an action, in order; None lets a request pass.
        errors: by values of partitions, the codes with which BatchCreatePartition does not add them, in order.
        unprocessed: numbers of partitions that the next BatchGetPartition leave out.
    """

    def __init__(self, moto: WSGIApplication) -> None:
        self._moto = moto
        self.clear()

    def clear(self) -> None:
        """Forget calls and faults."""
        self.calls: Counter[str] = Counter()
        self.refusals: dict[str, list[str | None]] = {}
        self.errors: dict[tuple[str, ...], list[str]] = {}
        self.unprocessed: list[int] = []

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        action = environ.get("HTTP_X_AMZ_TARGET", "").removeprefix("AWSGlue.")
        if not action:
            return self._moto(environ, start_response)
        self.calls[action] += 1
        refusal = self.refusals[action].pop(0) if self.refusals.get(action) else None
        if refusal is not None:
            status = "500 Error" if refusal.startswith("Internal") else "400 Bad Request"
            return _answer(start_response, status, {"__type": refusal, "Message": "of the test"})
        request = json.loads(environ["wsgi.input"].read())
        more: dict[str, Any] = {}
        if action == "BatchCreatePartition":
            more["Errors"] = self._without_refused(request)
            if not request["PartitionInputList"]:
                return _answer(start_response, "200 OK", more)
        if action == "BatchGetPartition" and self.unprocessed:
            number = self.unprocessed.pop(0)
            more["UnprocessedKeys"] = request["PartitionsToGet"][:number]
            request["PartitionsToGet"] = request["PartitionsToGet"][number:]
        return self._forward(environ, start_response, request, more)

    def _without_refused(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        errors = []
        for entry in [*request["PartitionInputList"]]:
            if codes := self.errors.get(tuple(entry["Values"])):
                request["PartitionInputList"].remove(entry)
                detail = {"ErrorCode": codes.pop(0), "ErrorMessage": "of the test"}
                errors.append({"PartitionValues": entry["Values"], "ErrorDetail": detail})
        return errors

    def _forward(
        self, environ: WSGIEnvironment, start_response: StartResponse, request: dict[str, Any], more: dict[str, Any]
    ) -> Iterable[bytes]:
        from werkzeug.wrappers import Response

        body = json.dumps(request).encode()
        changed = {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        response = Response.from_app(self._moto, changed, buffered=True)
        answer = json.loads(response.get_data())
        for name, entries in more.items():
            answer[name] = [*answer.get(name, ()), *entries]
        return _answer(start_response, response.status, answer)


def _answer(start_response: StartResponse, status: str, body: dict[str, Any]) -> Iterable[bytes]:
    content = json.dumps(body).encode()
    start_response(status, [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(content)))])
    return [content]


class Catalog(ABC):
    """A catalog with a table.

    Attributes:
        table: its name, ``database.table``.
    """

    def __init__(self) -> None:
        self.table = f"lake_{next(_numbers)}.orders"
        self.database, self.name = self.table.split(".")

    @abstractmethod
    def make(self, keys: Iterable[str], location: str) -> None:
        """Make the table."""

    @abstractmethod
    def partitions(self) -> dict[tuple[str, ...], str]:
        """The partitions of the table: values -> location."""

    @abstractmethod
    def opened(self, retrier: Retrier | None = None) -> PartitionedTable:
        """The table as a process opens it."""


class Glue(Catalog):
    """Moto's Glue.

    Attributes:
        server: that serves it.
        faults: of this server.
    """

    def __init__(self, server: ThreadedS3Server, faults: GlueFaults, region: str = "us-east-1") -> None:
        super().__init__()
        self.server, self.faults = server, faults
        faults.clear()
        self.settings = S3Settings(endpoint_url=server.endpoint, region=region, read_timeout=5.0)
        self.client = make_glue_client(self.settings, CREDENTIALS)

    def make(self, keys: Iterable[str], location: str) -> None:
        self.client.create_database(DatabaseInput={"Name": self.database})
        self.client.create_table(
            DatabaseName=self.database,
            TableInput={
                "Name": self.name,
                "PartitionKeys": [{"Name": key, "Type": "string"} for key in keys],
                "StorageDescriptor": {
                    "Columns": [{"Name": "n", "Type": "bigint"}],
                    "Location": location,
                    "InputFormat": "org.apache.hadoop.mapred.TextInputFormat",
                    "SerdeInfo": {"SerializationLibrary": "org.openx.data.jsonserde.JsonSerDe"},
                },
            },
        )

    def partitions(self) -> dict[tuple[str, ...], str]:
        pages = self.client.get_paginator("get_partitions").paginate(DatabaseName=self.database, TableName=self.name)
        entries = [entry for page in pages for entry in page["Partitions"]]
        assert all(
            entry["StorageDescriptor"]["SerdeInfo"]["SerializationLibrary"] == "org.openx.data.jsonserde.JsonSerDe"
            for entry in entries
        )
        return {tuple(entry["Values"]): entry["StorageDescriptor"]["Location"] for entry in entries}

    def opened(self, retrier: Retrier | None = None) -> GluePartitions:
        return GluePartitions(self.client, self.table, retrier=retrier or no_wait())


class Hive(Catalog):
    """A table of a real metastore."""

    def __init__(self, server: HiveMetastore) -> None:
        super().__init__()
        self.settings = MetastoreSettings(hosts=("127.0.0.1",), port=server.port, user="tests", timeout=60.0)

    def _send(self, use: Callable[[Any], Any]) -> Any:
        return self.opened()._once("request", use)

    def make(self, keys: Iterable[str], location: str) -> None:
        from hive_metastore import ttypes

        storage = ttypes.StorageDescriptor(
            cols=[ttypes.FieldSchema("n", "bigint", "")],
            location=location,
            inputFormat="org.apache.hadoop.mapred.TextInputFormat",
            serdeInfo=ttypes.SerDeInfo(serializationLib="org.apache.hive.hcatalog.data.JsonSerDe", parameters={}),
            parameters={},
        )
        table = ttypes.Table(
            dbName=self.database,
            tableName=self.name,
            sd=storage,
            partitionKeys=[ttypes.FieldSchema(key, "string", "") for key in keys],
            tableType="EXTERNAL_TABLE",
            parameters={"EXTERNAL": "TRUE"},
        )
        self._send(lambda client: client.create_database(ttypes.Database(name=self.database)))
        self._send(lambda client: client.create_table(table))

    def partitions(self) -> dict[tuple[str, ...], str]:
        entries = self._send(lambda client: client.get_partitions(self.database, self.name, -1))
        assert all(entry.sd.serdeInfo.serializationLib.endswith("JsonSerDe") for entry in entries)
        # The metastore removes the last slash.
        return {tuple(entry.values): f"{entry.sd.location}/" for entry in entries}

    def opened(self, retrier: Retrier | None = None) -> HivePartitions:
        return HivePartitions(self.settings, self.table, retrier=retrier or no_wait())
