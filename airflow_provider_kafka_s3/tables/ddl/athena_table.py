"""Athena: an external table whose partitions are projected from the names of folders."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_kafka_s3.config import AvroContainer, Parquet
from airflow_provider_kafka_s3.overriding import override
from airflow_provider_kafka_s3.tables.ddl.dialect import Remark
from airflow_provider_kafka_s3.tables.ddl.hive_statement import HiveStatement, HiveTypes, TableParts
from airflow_provider_kafka_s3.tables.ddl.model import Choices, Dates, Folder, LandedTable, Numbers

__all__ = ["Athena"]


class _Types(HiveTypes):
    engine = "Athena"


class Athena(HiveStatement):
    """No catalog has to be updated for new folders."""

    name = "athena"
    engine = "Athena"
    types = _Types()
    json_storage = "ROW FORMAT SERDE 'org.openx.data.jsonserde.JsonSerDe'\nSTORED AS TEXTFILE"
    example = "json_extract_scalar(value, '$.field')"
    file_name = '"$path"'

    @override
    def parts(self, table: LandedTable, remark: Remark) -> TableParts:
        match table.layout.record_format:
            case Parquet(compression="brotli"):
                self.refuse(table, "Athena's manual does not list Parquet with Brotli", _COMPRESSION)
            case AvroContainer(codec="xz"):
                self.refuse(table, "Athena's manual does not list Avro with xz", _COMPRESSION)
        return super().parts(table, remark)

    @override
    def properties(self, table: LandedTable, folders: Sequence[Folder], remark: Remark) -> dict[str, str]:
        if not folders:
            return {}
        properties = {"projection.enabled": "true"}
        for folder in folders:
            column = folder.name.lower()
            for key, value in _projection(column, folder, remark).items():
                properties[f"projection.{column}.{key}"] = value
        path = "".join(f"{folder.raw}=${{{folder.name.lower()}}}/" for folder in folders)
        properties["storage.location.template"] = f"{table.location()}{path}"
        if table.layout.on_bad_timestamp != "fail":
            remark(
                f"Records without a time are in folders {table.layout.on_bad_timestamp}, which are not projected: "
                f"the table does not show them."
            )
        return properties

    @override
    def more(self, table: LandedTable, name: str, folders: Sequence[Folder], remark: Remark) -> Sequence[str]:
        if table.ending:
            remark(
                "Athena's manual advises against underscores in a LOCATION, as that of dead letters has: if the table "
                "shows no rows, use another engine."
            )
        if folders:
            remark("Give each query a filter on the partition columns, which are texts, as month = '01'.")
        return ()


_COMPRESSION = "Land the topic with another compression, or use --dialect duckdb or spark"


def _projection(column: str, folder: Folder, remark: Remark) -> dict[str, str]:
    match folder.values:
        case Numbers(low=low, high=high, digits=digits, grows=grows):
            if grows:
                remark(f"`{column}` is projected from {low} to {high}: alter projection.{column}.range for {grows}.")
            return {"type": "integer", "range": f"{low},{high}", **({"digits": str(digits)} if digits else {})}
        case Dates(format=text, first=first, interval=interval, unit=unit, is_utc=is_utc):
            remark(f"`{column}` is projected from {first}, the first one in the log, to now: later ones are not shown.")
            # NOW is that of UTC, and the folders of another zone may be a day ahead.
            return {
                "type": "date",
                "format": text,
                "range": f"{first},{'NOW' if is_utc else 'NOW+1DAYS'}",
                "interval": str(interval),
                "interval.unit": unit,
            }
        case Choices(values=values):
            return {"type": "enum", "values": ",".join(values)}
    remark(f"`{column}` is injected: each query has to name its values, as {column} = '…'.")
    return {"type": "injected"}
