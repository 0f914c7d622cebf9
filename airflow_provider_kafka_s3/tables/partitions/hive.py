"""A table in a Hive metastore, by the Thrift client that pyiceberg has."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar

from airflow_provider_kafka_s3.config.tables import MetastoreSettings
from airflow_provider_kafka_s3.exceptions import CatalogUnavailableError, ConfigurationError, TableNotFoundError
from airflow_provider_kafka_s3.layout.folders import NULL_FOLDER
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.tables.installed import require_hive
from airflow_provider_kafka_s3.tables.partitions.port import PartitionedTable, TableDescription, Values

__all__ = ["HivePartitions"]

T = TypeVar("T")

_LOOKED_UP: Final = 300
"""Partitions of a request: as many as the metastore itself reads from its database at once."""

_ESCAPED: Final = re.compile("[\x01-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")
"""The characters that Hive percent-encodes in names of partitions."""


class HivePartitions(PartitionedTable):
    """A table of a metastore. Each request has a connection of its own, so any number of threads may share it.

    Args:
        settings: of the metastore.
        table: database and name.
        retrier: repeats requests.

    Raises:
        ConfigurationError: the extra ``hive`` is not installed.
    """

    dialect = "hive"
    catalog = "the Hive metastore"

    def __init__(self, settings: MetastoreSettings, table: str, *, retrier: Retrier) -> None:
        require_hive()
        super().__init__(table)
        self._settings = settings
        self._retrier = retrier

    @cached_property
    def _table(self) -> Any:
        from hive_metastore import ttypes

        request = ttypes.GetTableRequest(dbName=self.database, tblName=self.name)
        try:
            return self._call("get_table_req", lambda client: client.get_table_req(request).table)
        except TableNotFoundError:
            return None

    @override
    def describe(self) -> TableDescription | None:
        table = self._table
        if table is None:
            return None
        return TableDescription(tuple(key.name for key in table.partitionKeys or ()), table.sd.location or "")

    @override
    def existing(self, partitions: Sequence[Values]) -> dict[Values, str]:
        locations: dict[Values, str] = {}
        for first in range(0, len(partitions), _LOOKED_UP):
            names = [self._name(values) for values in partitions[first : first + _LOOKED_UP]]
            entries = self._call(
                "get_partitions_by_names",
                lambda client: client.get_partitions_by_names(self.database, self.name, names),  # noqa: B023
            )
            locations |= {tuple(entry.values): entry.sd.location or "" for entry in entries}
        return locations

    @override
    def add(self, partitions: Mapping[Values, str]) -> dict[Values, str]:
        from hive_metastore import ttypes

        entries = []
        for values, location in partitions.items():
            storage = copy.copy(self._table.sd)
            storage.location = location
            entries.append(
                ttypes.Partition(values=[*values], dbName=self.database, tableName=self.name, sd=storage, parameters={})
            )
        request = ttypes.AddPartitionsRequest(
            dbName=self.database, tblName=self.name, parts=entries, ifNotExists=True, needResult=False
        )
        self._call("add_partitions_req", lambda client: client.add_partitions_req(request))
        return {}

    def _name(self, values: Values) -> str:
        """The name of a partition in the metastore."""
        names = (key.name for key in self._table.partitionKeys)
        return "/".join(
            f"{name}={_ESCAPED.sub(lambda match: f'%{ord(match[0]):02X}', value) or NULL_FOLDER}"
            for name, value in zip(names, values, strict=True)
        )

    def _call(self, action: str, use: Callable[[Any], T]) -> T:
        return self._retrier.call(lambda: self._once(action, use), what=f"{action} {self.where}")

    def _once(self, action: str, use: Callable[[Any], T]) -> T:
        from hive_metastore import ThriftHiveMetastore, ttypes
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.Thrift import TApplicationException, TException

        transport = None
        try:
            transport = self._connect()
            client = ThriftHiveMetastore.Client(TBinaryProtocol(transport))
            if self._settings.user is not None:
                client.set_ugi(self._settings.user, [])
            return use(client)
        except ttypes.NoSuchObjectException as e:
            raise TableNotFoundError(f"{self.where}: {e.message}") from e
        except ttypes.InvalidObjectException as e:
            raise ConfigurationError(f"{self.where}: the metastore refuses {action}: {e.message}") from e
        except (TException, OSError) as e:
            if isinstance(e, TApplicationException) and e.type == TApplicationException.UNKNOWN_METHOD:
                raise ConfigurationError(
                    f"{self.where}: the metastore does not know {action}; use one of Hive 3"
                ) from e
            reason = " ".join(str(getattr(e, "message", None) or e).split())[:500]
            raise CatalogUnavailableError(
                f"{self.where}: {action} has no usable answer ({type(e).__name__}: {reason})"
            ) from e
        finally:
            if transport is not None:
                transport.close()

    def _connect(self) -> Any:
        """A connection to the first host that answers."""
        from thrift.transport.TSocket import TSocket
        from thrift.transport.TTransport import TBufferedTransport, TTransportException

        # It logs what it raises, with a traceback.
        logging.getLogger(TSocket.__module__).setLevel(logging.CRITICAL)
        for host in self._settings.hosts:
            socket = TSocket(host, self._settings.port)
            socket.setTimeout(self._settings.timeout * 1000)
            transport = TBufferedTransport(socket)
            try:
                transport.open()
            except TTransportException:
                if host == self._settings.hosts[-1]:
                    raise
            else:
                return transport
        raise AssertionError("there is a host")
