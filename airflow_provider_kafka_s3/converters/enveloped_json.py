"""The converter of JSON values with their schemas: those of Kafka Connect's JsonConverter, ``schemas.enable=true``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_kafka_s3.arrays import Array, Bools, Int64Array, int64_array, true_rows
from airflow_provider_kafka_s3.config import DecimalFormat
from airflow_provider_kafka_s3.converters.connect_json import USUAL_PRECISION, connect_schema, split_envelopes
from airflow_provider_kafka_s3.converters.declared_json import decoded_group
from airflow_provider_kafka_s3.converters.json_decode import JsonDecoder
from airflow_provider_kafka_s3.converters.json_grammar import are_empty
from airflow_provider_kafka_s3.converters.port import Invalid, TypedGroup, TypedValues, ValueSchema
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.avro_text import node_text
from airflow_provider_kafka_s3.schemas.nodes import ArrayOf, MapOf, Node, Primitive, Record, Union, only_branch

__all__ = ["EnvelopedJsonConverter"]

_REMEDY = "correct the producer, or use errors='dead_letter' to set such records aside"


_NULL_PAYLOAD: Final = r'"payload"\s*:\s*null'


class EnvelopedJsonConverter:
    """JSON values of the form ``{"schema": …, "payload": …}``.

    The schemas of values are not optional: a null payload of an optional schema is a null value, see :meth:`nulls`.

    Args:
        decimal_format: what strings are where a schema has a decimal.
        names_and_versions: whether schemas that differ in name or version only are different ones.
    """

    def __init__(self, decimal_format: DecimalFormat, *, names_and_versions: bool = False) -> None:
        self.schemas: list[ValueSchema] = []
        self._format = decimal_format
        self._names_and_versions = names_and_versions
        # Texts differ where schemas do not: objects are those of equal schemas.
        self._by_text: dict[str, tuple[int, JsonDecoder] | str] = {}
        self._optional: set[str] = set()
        # With the columns, since names that Avro does not allow may become the same ones, and units of times.
        self._by_schema: dict[
            tuple[str, pa.DataType, tuple[str | None, ...], str, int | None], tuple[int, JsonDecoder]
        ] = {}

    def nulls(self, values: Array) -> Bools:
        """Which values are null values to Kafka Connect.

        These are the values of no bytes, and the envelopes with the payload null whose schema is null or optional. A
        payload that is null for another reason is one that does not have its schema.

        Args:
            values: binary or large_binary; null rows are none of them.
        """
        are_null = are_empty(values)
        maybe = np.flatnonzero(true_rows(pc.match_substring_regex(values, pattern=_NULL_PAYLOAD)))
        if len(maybe):
            envelopes = split_envelopes(values.take(int64_array(maybe)))
            for text, rows in envelopes.rows.items():
                self._decoder(text)
                if text == "null" or text in self._optional:
                    payloads = envelopes.payloads.take(int64_array(rows)).to_pylist()
                    are_null[maybe[rows[[payload == b"null" for payload in payloads]]]] = True
        return are_null

    def convert(self, values: Array, *, decode: bool) -> TypedValues:  # noqa: ARG002 - decoding is the check
        """See :class:`~airflow_provider_kafka_s3.converters.port.ValueConverter`."""
        envelopes = split_envelopes(values)
        invalid = [
            Invalid(row, f"the value is no envelope of a schema and a payload ({reason})", _REMEDY)
            for row, reason in envelopes.reasons.items()
        ]
        rows_of: dict[int, list[Int64Array]] = {}
        decoders: dict[int, JsonDecoder] = {}
        for text, rows in envelopes.rows.items():
            decoder_or_reason = self._decoder(text)
            if isinstance(decoder_or_reason, str):
                invalid += [Invalid(int(row), decoder_or_reason, _REMEDY) for row in rows]
                continue
            rows_of.setdefault(decoder_or_reason[0], []).append(rows)
            decoders[decoder_or_reason[0]] = decoder_or_reason[1]
        groups: list[TypedGroup] = []
        for index, parts in rows_of.items():
            rows = np.sort(np.concatenate(parts))
            decoded = decoders[index].decode(envelopes.payloads.take(int64_array(rows)))
            invalid += [
                Invalid(
                    int(rows[row]), f"the payload does not have the schema of its envelope ({_noted(reason)})", _REMEDY
                )
                for row, reason in decoded.reasons.items()
            ]
            groups += decoded_group(index, self.schemas[index].node, rows, decoded)
        return TypedValues(groups, sorted(invalid, key=lambda i: i.row))

    def _decoder(self, text: str) -> tuple[int, JsonDecoder] | str:
        """Index of the schema of a text, and its decoder; or why records with it are invalid."""
        decoder_or_reason = self._by_text.get(text)
        if decoder_or_reason is None:
            try:
                decoder_or_reason = self._make_decoder(text)
            except ConfigurationError as e:
                decoder_or_reason = f"the schema of the envelope cannot be used: {e}"
            self._by_text[text] = decoder_or_reason
        return decoder_or_reason

    def _make_decoder(self, text: str) -> tuple[int, JsonDecoder]:
        try:
            schema = json.loads(text)
        except ValueError:  # Python reads no integers of more than some thousand digits
            raise ConfigurationError("it has a number with too many digits") from None
        node = connect_schema(schema, decimal_format=self._format)
        optional = isinstance(node, Union)  # of null and one type
        if isinstance(node, Union):
            node = cast("Node", only_branch(node))
        avro = node_text(node)
        name, version = (_name(schema), _version(schema)) if self._names_and_versions else ("", None)
        key = (avro, arrow_type(node), _time_names(node), name, version)
        if key not in self._by_schema:
            decoder = JsonDecoder(node, decimal_format=self._format, null_is_default=True)
            versions = {} if version is None else {"": version}
            self.schemas.append(ValueSchema("the schema of the envelope", node, avro, versions, name))
            self._by_schema[key] = (len(self.schemas) - 1, decoder)
        if optional and schema.get("default") is None:
            self._optional.add(text)
        return self._by_schema[key]


def _time_names(node: Node) -> tuple[str | None, ...]:
    """The names of Debezium's types of times, in the order of the primitive types of a schema."""
    parts: Sequence[Node] = ()
    match node:
        case Primitive(time_name=name):
            return (name,)
        case ArrayOf(items=part) | MapOf(values=part):
            parts = [part]
        case Union(branches=branches):
            parts = branches
        case Record(fields=fields):
            parts = [field.type for field in fields]
    return tuple(name for part in parts for name in _time_names(part))


def _noted(reason: str) -> str:
    """The reason; that a decimal has too many digits may be due to what its schema leaves open."""
    if not reason.endswith(f"precision of {USUAL_PRECISION}"):
        return reason
    return f"{reason}, which is that of a decimal without the parameter connect.decimal.precision, up to 76"


def _name(schema: Mapping[str, Any]) -> str:
    """The name of a schema as a part of folders, which the producer must not choose freely."""
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        return "null"
    return re.sub(r"[^A-Za-z0-9._$-]", "_", name)


def _version(schema: Mapping[str, Any]) -> int | None:
    version = schema.get("version")
    return version if isinstance(version, int) and not isinstance(version, bool) else None
