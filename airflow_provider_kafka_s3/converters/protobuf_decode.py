"""Protobuf messages to Arrow arrays, all messages of a batch at once."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import (
    Array,
    Bools,
    Int64Array,
    binary_array,
    bounds,
    int64_array,
    parts_of_bytes,
)
from airflow_provider_kafka_s3.converters.columns import Column, buffer, last_of_each_key
from airflow_provider_kafka_s3.converters.protobuf_scan import (
    FIXED32,
    FIXED64,
    GROUP,
    PADDING,
    SIZED,
    VARINT,
    Data,
    Found,
    Spans,
    scan,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.nodes import Node
from airflow_provider_kafka_s3.schemas.proto_file import ProtoEnum, ProtoField, ProtoMessage
from airflow_provider_kafka_s3.schemas.protobuf import WRAPPERS, Mapping, column_default, has_null

__all__ = ["Decoded", "ProtobufDecoder"]

_CHUNK: Final = 2**22
"""Bytes of values that are decoded together: positions take many times the memory of fields of one byte."""

_LARGEST_LONG: Final = 2**63 - 1
_LARGEST_BATCH: Final = 2**31 - 1 - PADDING
_NANOS: Final = 10**9
_FIRST_SECOND: Final = -62_135_596_800  # 0001-01-01
_LAST_SECOND: Final = 253_402_300_799  # 9999-12-31T23:59:59


@dataclass(frozen=True)
class Decoded:
    """A column of decoded values.

    Attributes:
        values: of the Arrow type of the message; without a meaning where the row is bad.
        bad: per row, whether its bytes are no message that the schema can hold.
        reasons: of some of the bad rows, why they are; without any content.
    """

    values: Array
    bad: Bools
    reasons: MappingOf[int, str]


class ProtobufDecoder:
    """Decodes messages of one type.

    A row is bad if its bytes are no message, if a required field is absent, a string is not UTF-8, the number of an
    enum has no name, a timestamp is outside the years 1 to 9999, or a number of 64 bits without a sign is above
    2^63 - 1 and has to be a long. Fields that the message does not declare are left out.
    """

    def __init__(self, message: ProtoMessage, mapping: Mapping, node: Node) -> None:
        """Prepare the decoder.

        Args:
            message: the type.
            mapping: as which types the values are decoded.
            node: of the message, by this mapping.

        Raises:
            ConfigurationError: the node has no Arrow type, see
                :func:`~airflow_provider_kafka_s3.schemas.arrow_types.arrow_type`, or a default does not fit its type.
        """
        self._message = message
        self._mapping = mapping
        self._type = arrow_type(node)

    def decode(self, values: Array, starts: Int64Array) -> Decoded:
        """Decode a batch.

        Args:
            values: binary or large_binary without nulls, at most 2 GiB of data.
            starts: bytes before the message in each value.

        Raises:
            ValueError: the data is larger than 2 GiB.
        """
        offsets = bounds(values)
        if offsets[-1] - offsets[0] > _LARGEST_BATCH:
            raise ValueError("a batch of Protobuf values has more than 2 GiB: decode it in parts")
        edges = [*parts_of_bytes(values, _CHUNK)] or [(0, 0)]
        parts = [self._decode(values, offsets[a : b + 1], starts[a:b]) for a, b in edges]
        if len(parts) == 1:
            return parts[0]
        reasons = {a + row: why for (a, _), part in zip(edges, parts, strict=True) for row, why in part.reasons.items()}
        columns = [cast("Any", part.values) for part in parts]
        return Decoded(cast("Array", pa.concat_arrays(columns)), np.concatenate([part.bad for part in parts]), reasons)

    def _decode(self, values: Array, offsets: Int64Array, starts: Int64Array) -> Decoded:
        first, last, count = int(offsets[0]), int(offsets[-1]), len(offsets) - 1
        padded = np.zeros(last - first + PADDING, np.uint8)
        buffer = values.buffers()[2]
        if buffer is not None and last > first:
            padded[:-PADDING] = np.frombuffer(memoryview(buffer), np.uint8)[first:last]
        rows = np.arange(count, dtype=np.int64)
        spans = Spans(offsets[:-1] - first + starts, offsets[1:] - first, rows)
        batch = _Batch(self._mapping, np.zeros(count, np.bool_))
        column = batch.message(Data(padded), spans, None, self._message, self._type)
        return Decoded(column.array(), batch.bad, batch.reasons)


@dataclass(frozen=True)
class _Wanted:
    """A field to be decoded: what is in the messages, and what becomes of it.

    Attributes:
        data: with the messages.
        spans: the messages.
        present: per message, whether there is one; None: all are.
        part: the field.
        type: of its column.
        name: of the field in messages.
    """

    data: Data
    spans: Spans
    present: Bools | None
    part: ProtoField
    type: pa.DataType
    name: str


class _Batch:
    """Decodes one batch of values, and keeps which of them are bad."""

    def __init__(self, mapping: Mapping, bad: Bools) -> None:
        self._mapping = mapping
        self.bad = bad
        self.reasons: dict[int, str] = {}

    def _refuse(self, roots: Int64Array, why: str) -> None:
        """Mark rows of the batch as bad; the reason counts for those that have none."""
        for root in roots.tolist():
            if not self.bad[root]:
                self.reasons[root] = why
        self.bad[roots] = True

    # -- messages -----------------------------------------------------------------------------------------------------

    def message(
        self,
        data: Data,
        spans: Spans,
        present: Bools | None,
        message: ProtoMessage,
        kind: pa.DataType,
        *,
        name: str = "",
    ) -> Column:
        """The column of messages.

        Args:
            data: with the messages.
            spans: where they are.
            present: whether each is there; None: all are.
            message: their type.
            kind: type of the column: a struct with the fields of the message, or what a well-known type becomes.
            name: of the field that has them, for reasons.
        """
        if message.full_name in WRAPPERS and not pa.types.is_struct(kind):
            part, scanned = message.fields[0], scan(data, spans, self.bad)
            return self._field(scanned, _Wanted(data, spans, present, part, kind, f"{message.full_name}.value"))
        if pa.types.is_timestamp(kind):
            return self._timestamp(data, spans, present, message, kind, name=name)
        scanned = self._without_replaced(data, spans, message)
        children = []
        for index, part in enumerate(message.fields):
            child = kind.field(index)
            wanted = _Wanted(data, spans, present, part, child.type, f"{message.full_name}.{part.name}")
            children.append(self._child(scanned, wanted))
        return Column(kind, len(spans), [], children)

    def _without_replaced(self, data: Data, spans: Spans, message: ProtoMessage) -> dict[tuple[int, int], Found]:
        """What is in messages, without the fields of a oneof that a later one of it has replaced."""
        scanned = scan(data, spans, self.bad)
        members: dict[int, list[tuple[ProtoField, Found]]] = {}
        for part in message.fields:
            events = scanned.get((part.number, _kinds(part, packed=False)[0]))
            if part.oneof is not None and events is not None:
                members.setdefault(part.oneof, []).append((part, events))
        for several in members.values():
            if len(several) < 2:
                continue
            for part, mine in several:
                latest = np.full(len(spans), -1, np.int64)
                for other, events in several:
                    if other is not part:
                        np.maximum.at(latest, events.rows, events.steps)
                kept = mine.steps > latest[mine.rows]
                if not kept.all():
                    name = f"{message.full_name}.{part.name}"
                    self._check(data, part, mine.some(~kept), spans.root, name)
                    scanned[part.number, _kinds(part, packed=False)[0]] = mine.some(kept)
        return scanned

    def _check(self, data: Data, part: ProtoField, events: Found, root: Int64Array, name: str) -> None:
        """Mark the rows with a field that is malformed, for fields that are not decoded by themselves.

        They are those of some rows only: the reason of a row must not depend on the rows around it.
        """
        inside = root[events.rows]
        if part.kind == "string":
            wanted = _Wanted(data, Spans(events.first, events.last, inside), None, part, pa.string(), name)
            self._texts(wanted, events.first, events.last, inside)
        elif part.message is not None:
            scanned = scan(data, Spans(events.first, events.last, inside), self.bad)
            for deeper in part.message.fields:
                if (below := scanned.get((deeper.number, _kinds(deeper, packed=False)[0]))) is not None:
                    self._check(data, deeper, below, inside, f"{part.message.full_name}.{deeper.name}")

    def _child(self, found: MappingOf[tuple[int, int], Found], wanted: _Wanted) -> Array:
        part = wanted.part
        if part.is_map:
            return self._map(found, wanted)
        if part.repeated:
            return self._list(found, wanted)
        column = self._field(found, wanted)
        if not has_null(part):
            return column.array()
        valid = np.zeros(len(wanted.spans), np.bool_)
        for kind in _kinds(part, packed=False):
            if (events := found.get((part.number, kind))) is not None:
                valid[events.rows] = True
        return column.array(valid)

    def _field(self, found: MappingOf[tuple[int, int], Found], wanted: _Wanted) -> Column:
        """The column of a field that is not repeated, without nulls."""
        part, spans = wanted.part, wanted.spans
        (kind,) = _kinds(part, packed=False)
        events = found.get((part.number, kind))
        if part.presence == "required":
            absent = np.ones(len(spans), np.bool_) if wanted.present is None else wanted.present.copy()
            if events is not None:
                absent[events.rows] = False
            if absent.any():
                self._refuse(spans.root[absent], f"the required field {wanted.name} is absent")
        if part.message is not None:
            return self._submessage(events, wanted, part.message)
        if events is not None and part.kind == "string" and not _mask(events, len(spans))[1]:
            self._check(wanted.data, part, _repeated(events, len(spans)), spans.root, wanted.name)
        if events is not None and _is_whole(events, len(spans)):
            return self._scalars(wanted, events.first, events.last, spans.root)
        default = column_default(part)
        if part.kind in ("string", "bytes"):
            return self._texts_with_default(events, wanted, default)
        # The default is encoded like the values that are there, and takes the place of those that are not.
        firsts = np.full(len(spans), _raw(part, default), np.int64)
        if events is not None:
            firsts[events.rows] = self._raw_values(wanted.data, part, events.first)
        return self._numbers(wanted, firsts, spans.root)

    def _texts_with_default(self, events: Found | None, wanted: _Wanted, default: Any) -> Column:
        count = len(wanted.spans)
        text = default.encode() if isinstance(default, str) else bytes(default)
        first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
        data = wanted.data
        if text:
            begin = len(data.bytes) - PADDING
            data = Data(
                np.concatenate([data.bytes[:-PADDING], np.frombuffer(text.ljust(len(text) + PADDING, b"\0"), np.uint8)])
            )
            first[:], last[:] = begin, begin + len(text)
        if events is not None:
            first[events.rows], last[events.rows] = events.first, events.last
        return self._texts(replace(wanted, data=data), first, last, wanted.spans.root)

    def _submessage(self, events: Found | None, wanted: _Wanted, message: ProtoMessage) -> Column:
        """Messages of a field that is not repeated. Several of one message are merged: decoded as one."""
        count, root, data = len(wanted.spans), wanted.spans.root, wanted.data
        begin, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
        present = np.zeros(count, np.bool_)
        if events is not None:
            present, once = _mask(events, count)
            if not once:
                # One that is cut off would continue in the next one.
                self._check(data, wanted.part, _repeated(events, count), root, wanted.name)
                data, begin, end = _merged(data, events, count)
            else:
                begin[events.rows], end[events.rows] = events.first, events.last
        there: Bools | None = present
        if wanted.part.presence == "implicit":  # the value of a map, which is empty if it is absent
            there = wanted.present
        return self.message(data, Spans(begin, end, root), there, message, wanted.type, name=wanted.name)

    def _timestamp(
        self, data: Data, spans: Spans, present: Bools | None, message: ProtoMessage, kind: pa.DataType, *, name: str
    ) -> Column:
        scanned = scan(data, spans, self.bad)
        parts = []
        for part, stored in zip(message.fields, (pa.int64(), pa.int32()), strict=True):
            wanted = _Wanted(data, spans, present, part, stored, f"{message.full_name}.{part.name}")
            parts.append(self._field(scanned, wanted).buffers[0])
        seconds = np.frombuffer(cast("Any", parts[0]), np.int64)
        nanos = np.frombuffer(cast("Any", parts[1]), np.int32)
        outside = (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)
        no_nanos = (nanos < 0) | (nanos >= _NANOS)
        if outside.any() or no_nanos.any():
            subject = f"the field {name}" if name else f"the {message.full_name}"
            self._refuse(spans.root[outside], f"{subject} is a time outside the years 1 to 9999")
            self._refuse(spans.root[no_nanos], f"the nanos of {subject} are not 0 to 999999999")
            seconds = np.where(outside | no_nanos, 0, seconds)
        micros = seconds * 1_000_000 + nanos // 1_000
        return Column(kind, len(spans), [buffer(micros)])

    # -- several values -----------------------------------------------------------------------------------------------

    def _list(self, found: MappingOf[tuple[int, int], Found], wanted: _Wanted) -> Array:
        part, count = wanted.part, len(wanted.spans)
        kinds = _kinds(part, packed=True)
        single = found.get((part.number, kinds[0]))
        packed = found.get((part.number, kinds[1])) if len(kinds) > 1 else None
        if packed is not None:
            rows, firsts = self._unpacked(wanted, single, packed)
            lasts = firsts
        elif single is not None:
            rows, firsts, lasts = _by_row(single)
        else:
            rows = firsts = lasts = np.zeros(0, np.int64)
        root = wanted.spans.root[rows]
        item = cast("pa.ListType[Any]", wanted.type).value_type
        inside = replace(wanted, type=item)
        if part.message is not None:
            spans = Spans(firsts, lasts, root)
            column = self.message(wanted.data, spans, None, part.message, item, name=wanted.name)
        elif packed is not None:
            column = self._numbers(inside, firsts, root)
        else:
            column = self._scalars(inside, firsts, lasts, root)
        return Column(wanted.type, count, [_offsets(rows, count)], [column.array()]).array()

    def _unpacked(self, wanted: _Wanted, single: Found | None, packed: Found) -> tuple[Int64Array, Int64Array]:
        """Messages and raw values of a repeated field, some of whose values are packed; message by message."""
        data, part = wanted.data, wanted.part
        rows, firsts, lasts = _by_row(packed)
        lengths = lasts - firsts
        within = np.repeat(np.cumsum(lengths) - lengths, lengths)
        places = np.arange(int(lengths.sum())) - within + np.repeat(firsts, lengths)
        size = _size(part)
        if size is None:
            stops = data.bytes[places] < 0x80
            # The last byte of each run has to end a number.
            open_end = (lengths > 0) & ~stops[np.maximum(np.cumsum(lengths) - 1, 0)] if len(stops) else lengths < 0
            begins = np.ones(len(stops), np.bool_)
            begins[1:] = stops[:-1]
            begins[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
            starts = places[begins]
            owners = np.repeat(np.arange(len(rows)), lengths)[begins]
            numbers, sizes = data.varints(starts)
            wrong = owners[sizes > 10]
            values = numbers.view(np.int64)
        else:
            open_end = lengths % size != 0
            whole = places[: len(places)][((places - np.repeat(firsts, lengths)) % size) == 0]
            owners = np.repeat(np.arange(len(rows)), -(-lengths // size))
            wrong = np.zeros(0, np.int64)
            values = self._raw_values(data, part, whole)
        for malformed in (open_end, wrong):
            self.bad[wanted.spans.root[rows[malformed]]] = True
        owner_rows = rows[owners]
        if single is None:
            return owner_rows, values
        # The order of both kinds in a message is that of their steps.
        _, steps, _ = _by_row(replace(packed, first=packed.steps))
        every_row = np.concatenate([owner_rows, single.rows])
        every_step = np.concatenate([steps[owners], single.steps])
        every = np.concatenate([values, self._raw_values(data, part, single.first)])
        order = np.lexsort((np.arange(len(every)), every_step, every_row))
        return every_row[order], every[order]

    def _map(self, found: MappingOf[tuple[int, int], Found], wanted: _Wanted) -> Array:
        part, count = wanted.part, len(wanted.spans)
        assert part.message is not None, "a map has entries"
        events = found.get((part.number, SIZED))
        rows = firsts = lasts = np.zeros(0, np.int64)
        if events is not None:
            rows, firsts, lasts = _by_row(events)
        if isinstance(wanted.type, pa.MapType):
            kind: pa.DataType = pa.struct([wanted.type.key_field, wanted.type.item_field])
        else:
            kind = cast("pa.ListType[Any]", wanted.type).value_type
        root = wanted.spans.root
        bad, reasons = self.bad.copy(), dict(self.reasons)
        items = self.message(wanted.data, Spans(firsts, lasts, root[rows]), None, part.message, kind).array()
        if (kept := last_of_each_key(rows, cast("pa.StructArray", items).field(0))) is not None:
            # Nothing but the form of an entry matters if a later one replaces it.
            self.bad[:], self.reasons = bad, reasons
            replaced = np.ones(len(rows), np.bool_)
            replaced[kept] = False
            self._check(wanted.data, part, Found(rows, rows, firsts, lasts).some(replaced), root, wanted.name)
            rows, firsts, lasts = rows[kept], firsts[kept], lasts[kept]
            items = self.message(wanted.data, Spans(firsts, lasts, root[rows]), None, part.message, kind).array()
        return Column(wanted.type, count, [_offsets(rows, count)], [items]).array()

    # -- scalars ------------------------------------------------------------------------------------------------------

    def _scalars(self, wanted: _Wanted, first: Int64Array, last: Int64Array, root: Int64Array) -> Column:
        """The column of values that are all there."""
        if wanted.part.kind in ("string", "bytes"):
            return self._texts(wanted, first, last, root)
        return self._numbers(wanted, self._raw_values(wanted.data, wanted.part, first), root)

    @staticmethod
    def _raw_values(data: Data, part: ProtoField, first: Int64Array) -> Int64Array:
        """The bits of numbers: those of varints are found already."""
        size = _size(part)
        if size is None:
            return first
        words = data.words.take(first, mode="clip")
        if size == 4:
            words = words & np.uint64(0xFFFFFFFF)
        return words.view(np.int64)

    def _numbers(self, wanted: _Wanted, raw: Int64Array, root: Int64Array) -> Column:
        part, kind, count = wanted.part, wanted.type, len(raw)
        match part.kind:
            case "bool":
                return Column(kind, count, [buffer(np.packbits(raw != 0, bitorder="little"))])
            case "enum":
                assert part.enum is not None, "the type of an enum is resolved"
                return self._symbols(wanted, part.enum, raw.astype(np.int32), root)
            case "int32" | "sfixed32":
                return Column(kind, count, [buffer(raw.astype(np.int32))])
            case "float":
                return Column(kind, count, [buffer(raw.astype(np.uint32))])
            case "sint32":
                low = raw.astype(np.uint32)
                return Column(kind, count, [buffer((low >> np.uint32(1)) ^ (~(low & np.uint32(1)) + np.uint32(1)))])
            case "sint64":
                bits = raw.view(np.uint64)
                return Column(kind, count, [buffer((bits >> np.uint64(1)) ^ (~(bits & np.uint64(1)) + np.uint64(1)))])
            case "uint32" | "fixed32":
                return Column(kind, count, [buffer(raw & 0xFFFFFFFF)])
            case "uint64" | "fixed64" if pa.types.is_decimal(kind):
                wide = np.zeros((count, 2), np.int64)
                wide[:, 0] = raw
                return Column(kind, count, [buffer(wide)])
            case "uint64" | "fixed64" if (raw < 0).any():
                self._refuse(
                    root[raw < 0],
                    f"the field {wanted.name} is above 2^63 - 1 (ProtobufConverter(unsigned='decimal') holds it)",
                )
        return Column(kind, count, [buffer(raw)])

    def _symbols(self, wanted: _Wanted, enum: ProtoEnum, raw: npt.NDArray[np.int32], root: Int64Array) -> Column:
        names: dict[int, str] = {}
        for name, number in enum.values:
            names.setdefault(number, name)
        numbers = np.array(sorted(names), np.int64)
        index = np.minimum(np.searchsorted(numbers, raw), len(numbers) - 1)
        unknown = numbers[index] != raw
        if unknown.any():
            self._refuse(root[unknown], f"the field {wanted.name} has a number that {enum.full_name} does not name")
        texts = binary_array([names[number].encode() for number in numbers.tolist()], large=False).cast(pa.string())
        return Column(wanted.type, len(raw), cast("Array", texts.take(int64_array(index))).buffers()[1:])

    def _texts(self, wanted: _Wanted, first: Int64Array, last: Int64Array, root: Int64Array) -> Column:
        """Strings and bytes. Their array has the bytes of each one after the other."""
        kind, count = wanted.type, len(first)
        lengths = last - first
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        gathered = wanted.data.bytes[np.repeat(first - offsets[:-1], lengths) + np.arange(int(offsets[-1]))]
        column = Column(kind, count, [buffer(offsets.astype(np.int32)), buffer(gathered)])
        if not pa.types.is_string(kind) or (gathered < 0x80).all():
            return column
        try:
            column.array().validate(full=True)
        except pa.ArrowInvalid:
            wrong = np.zeros(count, np.bool_)
            for index, (begin, end) in enumerate(pairwise(offsets.tolist())):
                try:
                    gathered[begin:end].tobytes().decode()
                except UnicodeDecodeError:
                    wrong[index] = True
            self._refuse(root[wrong], f"the field {wanted.name} is not UTF-8")
            return self._texts(wanted, first, np.where(wrong, first, last), root)
        return column


def _kinds(part: ProtoField, *, packed: bool) -> tuple[int, ...]:
    """How the values of a field are encoded, and then how several in one are, if they may be."""
    match part.kind:
        case "group":
            return (GROUP,)
        case "message" | "string" | "bytes":
            return (SIZED,)
        case "fixed64" | "sfixed64" | "double":
            kind = FIXED64
        case "fixed32" | "sfixed32" | "float":
            kind = FIXED32
        case _:
            kind = VARINT
    return (kind, SIZED) if packed else (kind,)


def _size(part: ProtoField) -> int | None:
    """Bytes of a number; None for a varint."""
    (kind,) = _kinds(part, packed=False)
    return {FIXED64: 8, FIXED32: 4}.get(kind)


def _raw(part: ProtoField, default: Any) -> int:
    """The bits of a default."""
    match part.kind:
        case "enum":
            assert part.enum is not None, "the type of an enum is resolved"
            return next(number for name, number in part.enum.values if name == default)
        case "float":
            return int(np.float32(default).view(np.uint32))
        case "double":
            return int(np.float64(default).view(np.int64))
        case "sint32" | "sint64":
            number = 2 * default if default >= 0 else -2 * default - 1
        case _:
            number = int(default)
    return _signed(number, part)


def _signed(number: int, part: ProtoField) -> int:
    """The number with the same 64 bits and a sign."""
    if not -(2**63) <= number < 2**64:
        raise ConfigurationError(f"the default of field {part.name!r} is no {part.kind}")
    return number - 2**64 if number > _LARGEST_LONG else number


def _offsets(rows: Int64Array, count: int) -> pa.Buffer:
    """The offsets of the lists of all messages, if the items are those of ``rows``."""
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return buffer(offsets)


def _mask(events: Found, count: int) -> tuple[Bools, bool]:
    """Whether each message has a field, and whether none has it several times."""
    mask = np.zeros(count, np.bool_)
    mask[events.rows] = True
    return mask, np.count_nonzero(mask) == len(events.rows)


def _repeated(events: Found, count: int) -> Found:
    """The fields that a message has several times."""
    return events.some(np.bincount(events.rows, minlength=count)[events.rows] > 1)


def _is_whole(events: Found, count: int) -> bool:
    """Whether there is one value of each message, in their order."""
    return len(events.rows) == count and bool((events.rows == np.arange(count)).all())


def _by_row(events: Found) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Messages, first and last of fields, message by message."""
    if len(events.rows) > 1 and (np.diff(events.rows) < 0).any():
        order = np.argsort(events.rows, kind="stable")
        return events.rows[order], events.first[order], events.last[order]
    return events.rows, events.first, events.last


def _merged(data: Data, events: Found, count: int) -> tuple[Data, Int64Array, Int64Array]:
    """The messages of a field that some messages have several times, one after the other."""
    rows, first, last = _by_row(events)
    lengths = last - first
    total = int(lengths.sum())
    padded = np.zeros(total + PADDING, np.uint8)
    padded[:total] = data.bytes[np.repeat(first - (np.cumsum(lengths) - lengths), lengths) + np.arange(total)]
    sizes = np.bincount(rows, weights=lengths, minlength=count).astype(np.int64)
    end = np.cumsum(sizes)
    return Data(padded), end - sizes, end
