"""Avro datums to Arrow arrays, all records of a batch at once.

The records are read field by field: each step reads one field of every record, with NumPy over one buffer. The state is
a position per record, which only grows. So a read beyond the end of a record need not be noticed at once: the position
is behind the end afterwards, and at the end of the schema it has to be equal to it. Until then such a record yields
values without a meaning, which are null in the end.
"""

from __future__ import annotations

import functools
from array import array
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from airflow_provider_kafka_s3.arrays import Array, Bools, Int64Array, bounds, int64_array, parts_of_bytes
from airflow_provider_kafka_s3.converters.avro_columns import Reader, built, mask, scalar_reader
from airflow_provider_kafka_s3.converters.avro_cursor import LARGEST_BATCH, Cursor, Rows, cursor_of
from airflow_provider_kafka_s3.converters.avro_scalar import (
    MOST_EMPTY_ITEMS,
    Check,
    Datum,
    InvalidDatumError,
    block_start,
    check_block_end,
    ends_of,
    fault_of,
    least_bytes,
    scalar_check,
)
from airflow_provider_kafka_s3.converters.columns import Column, buffer, last_of_each_key
from airflow_provider_kafka_s3.schemas.arrow_types import arrow_type
from airflow_provider_kafka_s3.schemas.nodes import (
    NULL,
    ArrayOf,
    MapOf,
    Node,
    Primitive,
    Record,
    Union,
    is_recursive,
    only_branch,
)

__all__ = ["AvroDecoder", "Decoded"]

_CHUNK: Final = 2**22
"""Bytes of values that are decoded together: positions take many times the memory of items of one byte."""

_FEW_ROWS: Final = 48
"""Rows for which a step over arrays takes longer than Python for each row."""


@dataclass(frozen=True)
class Decoded:
    """A column of decoded values.

    Attributes:
        values: of the Arrow type of the schema; null where the row is null or bad.
        bad: per row, whether its bytes are not a datum of the schema.
    """

    values: Array
    bad: Bools


class AvroDecoder:
    """Decodes datums of one schema.

    A row is bad if its bytes are cut off or go on behind the datum; the index of a union or an enum, an int, a time of
    day or a decimal is out of its range; an int or an index has more than five bytes, or a long more than 64 bits; a
    boolean is neither 0 nor 1; a length is negative; a block of items is not as long as it says; a string is not UTF-8;
    its arrays have more than 1,000 items without bytes; or, with a recursive schema, more than 200 records, unions and
    arrays are inside each other.

    Of the entries of a map with the same key the last one is used, as Avro for Java does.
    """

    def __init__(self, node: Node) -> None:
        """Prepare the decoder.

        Args:
            node: the schema with which the datums were written. With a recursive one, they can only be checked.

        Raises:
            ConfigurationError: the schema has no Arrow type for another reason; see :func:`arrow_type`.
        """
        self._node = node
        self._scalar: Check | None = None
        if is_recursive(node):
            self._scalar = scalar_check(node)
        else:
            self._type = arrow_type(node)
            self._reader = _reader(node, self._type)

    def decode(self, values: Array, starts: int | Int64Array = 0) -> Decoded:
        """Decode a batch.

        Args:
            values: binary or large_binary, at most 2 GiB of data; null rows are null in the result, and not bad.
            starts: bytes before the datum in each value.

        Raises:
            ConfigurationError: the schema is recursive.
            ValueError: the data is larger than 2 GiB.
        """
        if self._scalar is not None:
            arrow_type(self._node)
        offsets = bounds(values)
        if offsets[-1] - offsets[0] > LARGEST_BATCH:
            raise ValueError("a batch of Avro values has more than 2 GiB: decode it in parts")
        parts = [self._decode(part, some) for part, some in _chunks(values, starts)]
        if len(parts) == 1:
            return parts[0]
        columns = [cast("Any", part.values) for part in parts]
        return Decoded(cast("Array", pa.concat_arrays(columns)), np.concatenate([part.bad for part in parts]))

    def _decode(self, values: Array, starts: int | Int64Array) -> Decoded:
        cursor, rows = cursor_of(values, starts)
        column = self._reader.read(cursor, rows, build=True)
        bad = cursor.finish(rows)
        usable = ~bad
        if rows is not None:
            usable &= mask(len(values), rows)
        return Decoded(built(column).array(None if usable.all() else usable), bad)

    def check(self, values: Array, starts: int | Int64Array = 0) -> Bools:
        """The rows that are bad, as :meth:`decode` returns them; also for recursive schemas."""
        return np.concatenate([self._check(part, some) for part, some in _chunks(values, starts)])

    def ends(self, data: bytes, count: int) -> Int64Array:
        """The ends of datums that follow one another.

        Args:
            data: their bytes.
            count: how many there are.

        Raises:
            InvalidDatumError: the bytes are not so many datums.
        """
        return np.array(ends_of(self._check_of_one, data, count), np.int64)

    def fault(self, datum: bytes) -> InvalidDatumError | None:
        """Why the bytes of one datum are bad; None if they are not."""
        return fault_of(self._check_of_one, datum)

    @functools.cached_property
    def _check_of_one(self) -> Check:
        return scalar_check(self._node)

    def _check(self, values: Array, starts: int | Int64Array) -> Bools:
        cursor, rows = cursor_of(values, starts)
        if self._scalar is None:
            self._reader.read(cursor, rows, build=False)
            return cursor.finish(rows)
        for row in range(len(values)) if rows is None else rows.tolist():
            datum = cursor.datum(row)
            try:
                self._scalar(datum)
            except (InvalidDatumError, IndexError):
                cursor.refuse(row)
            else:
                cursor.pos[row] += datum.position
        return cursor.finish(rows)


def _chunks(values: Array, starts: int | Int64Array) -> list[tuple[Array, int | Int64Array]]:
    """A batch in parts of not much more than ``_CHUNK`` bytes, or of one row."""
    parts = [*parts_of_bytes(values, _CHUNK)]
    if len(parts) <= 1:  # or there are no rows
        return [(values, starts)]
    return [(values.slice(a, b - a), starts[a:b] if isinstance(starts, np.ndarray) else starts) for a, b in parts]


class _RecordReader(Reader):
    def __init__(self, fields: list[Reader], node: Record, kind: pa.DataType) -> None:
        self._fields = fields
        self._type = kind
        self.least = least_bytes(node)
        sizes = [f.size for f in fields]
        self.size = None if None in sizes else sum(s for s in sizes if s is not None)
        self.skip_checks = all(f.skip_checks for f in fields)
        self.flat = all(f.flat for f in fields)

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        for part in self._fields:
            part.skip(cursor, rows)

    def read(self, cursor: Cursor, rows: Rows, *, build: bool) -> Column | None:
        columns = [part.read(cursor, rows, build=build) for part in self._fields]
        if not build:
            return None
        return Column(self._type, cursor.count, [], [built(c).array() for c in columns])


class _UnionReader(Reader):
    least, size = 1, None

    def __init__(self, branches: list[Reader], node: Union, kind: pa.DataType) -> None:
        self._branches = branches
        self._nodes = node.branches
        self._checks: list[Check | None] = [None] * len(branches)
        self._type = kind
        self._null = node.branches.index(NULL) if NULL in node.branches else None
        self._single = only_branch(node) is not None
        self.skip_checks = all(b.skip_checks for b in branches)
        self.flat = all(b.flat for b in branches)

    def _parts(self, cursor: Cursor, rows: Rows) -> list[Int64Array]:
        """The rows of each branch."""
        index = cursor.ints(rows)
        cursor.mark(rows, index.view(np.uint64) >= np.uint64(len(self._branches)))
        places = (np.flatnonzero(index == number) for number in range(len(self._branches)))
        return [f if rows is None else rows[f] for f in places]

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        for number, part in enumerate(self._parts(cursor, rows)):
            if number == self._null or not part.size:
                continue
            if part.size < _FEW_ROWS:
                self._skip_few(cursor, part, number)
            else:
                self._branches[number].skip(cursor, part)

    def _skip_few(self, cursor: Cursor, rows: Int64Array, number: int) -> None:
        check = self._checks[number]
        if check is None:
            check = self._checks[number] = scalar_check(self._nodes[number])
        for row in rows.tolist():
            datum = cursor.datum(row)
            try:
                check(datum)
            except (InvalidDatumError, IndexError):
                cursor.refuse(row)
            else:
                cursor.pos[row] += datum.position

    def read(self, cursor: Cursor, rows: Rows, *, build: bool) -> Column | None:
        parts = self._parts(cursor, rows)
        count = cursor.count
        columns: list[tuple[Int64Array, Column | None]] = []
        for number, (branch, part) in enumerate(zip(self._branches, parts, strict=True)):
            if number != self._null and (build or part.size):
                every = rows is None and len(part) == count
                columns.append((part, branch.read(cursor, None if every else part, build=build)))
        if not build:
            return None
        if self._null is not None and len(self._branches) == 1:
            return Column(pa.null(), count)
        if self._single:
            part, column = columns[0]
            only_column = built(column)
            valid = None if self._null is None or len(part) == count else mask(count, part)
            return Column(only_column.type, count, only_column.buffers, only_column.children, valid)
        children = [built(c).array(mask(count, part)) for part, c in columns]
        present = None
        if self._null is not None:
            present = mask(count, np.concatenate([part for part, _ in columns]))
        return Column(self._type, count, [], children, present)


@dataclass
class _Runs:
    """Items of arrays as they are found: runs of items of one row each, in the order in which a row has them."""

    batches: list[tuple[Int64Array, Int64Array | int, Int64Array | None, Int64Array]] = field(default_factory=list)
    _of_rows: list[tuple[int, int, Int64Array]] = field(default_factory=list)

    def add(self, rows: Int64Array, firsts: Int64Array | int, lengths: Int64Array | None, starts: Int64Array) -> None:
        """Add runs.

        Args:
            rows: of the runs.
            firsts: number of the first item of each, in its row.
            lengths: items of each run; None: one each.
            starts: position of the first item of each.
        """
        self.batches.append((rows, firsts, lengths, starts))

    def add_items(self, row: int, first: int, starts: Int64Array) -> None:
        """Add the positions of consecutive items of one row; ``first`` is the number of their first one."""
        self._of_rows.append((row, first, starts))

    def flat(self, offsets: Int64Array, size: int) -> Int64Array:
        """Starts of all items, row by row, if the rows have the items from ``offsets``."""
        if not self.batches and len(self._of_rows) == 1 and len(self._of_rows[0][2]) == offsets[-1]:
            return self._of_rows[0][2]
        flat = np.zeros(offsets[-1], np.int64)
        for rows, firsts, lengths, starts in self.batches:
            targets = offsets[rows] + firsts
            if lengths is None:
                flat[targets] = starts
            else:
                within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
                flat[np.repeat(targets, lengths) + within] = np.repeat(starts, lengths) + within * size
        for row, first, starts in self._of_rows:
            begin = int(offsets[row]) + first
            flat[begin : begin + len(starts)] = starts
        return flat


class _ItemsReader(Reader):
    """Arrays and maps: blocks of items, which end with an empty block."""

    least, size, flat = 1, None, False

    def __init__(self, parts: list[Reader], node: ArrayOf | MapOf, kind: pa.DataType) -> None:
        self._parts = parts
        self._type = kind
        self._item_least = sum(p.least for p in parts)
        sizes = [p.size for p in parts]
        self._item_size = None if None in sizes else sum(s for s in sizes if s is not None)
        self._varints = len(parts) == 1 and parts[0].varint
        self._items_skip_checks = all(p.skip_checks for p in parts)
        self._checked_one_by_one = self._item_size is None and all(p.flat for p in parts)
        self.skip_checks = self._items_skip_checks and self._item_size != 0
        self._checks = (
            [scalar_check(node.items)]
            if isinstance(node, ArrayOf)
            else [scalar_check(Primitive("string")), scalar_check(node.values)]
        )

    def skip(self, cursor: Cursor, rows: Rows) -> None:
        self._find(cursor, rows, None, check=False)

    def read(self, cursor: Cursor, rows: Rows, *, build: bool) -> Column | None:
        if not build and (self._checked_one_by_one or (self._items_skip_checks and self._item_size != 0)):
            self._find(cursor, rows, None, check=self._checked_one_by_one)
            return None
        runs = _Runs()
        counts = self._find(cursor, rows, runs, check=False)
        if self._item_size == 0:
            self._bound_empty_items(cursor, counts)
        offsets = np.zeros(cursor.count + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        if self._item_size == 0:
            nothing = np.zeros(0, np.int64)
            items = cursor.inside(nothing, nothing)
            items.count = int(offsets[-1])
        else:
            parents = np.repeat(np.arange(cursor.count, dtype=np.int64), counts)
            items = cursor.inside(parents, runs.flat(offsets, self._item_size or 0))
            del runs  # positions take eight times the memory of items of one byte
        columns = [part.read(items, None, build=build) for part in self._parts]
        if items.bad.any():
            cursor.bad[parents[items.bad]] = True
        if not build:
            return None
        children = [built(c).array() for c in columns]
        if isinstance(self._type, pa.MapType):
            if (kept := last_of_each_key(parents, children[0])) is not None:
                children = [child.take(int64_array(kept)) for child in children]
                np.cumsum(np.bincount(parents[kept], minlength=cursor.count), out=offsets[1:])
            entry = pa.struct([self._type.key_field, self._type.item_field])
            children = [Column(entry, int(offsets[-1]), [], children).array()]
        return Column(self._type, cursor.count, [buffer(offsets.astype(np.int32))], children)

    @staticmethod
    def _bound_empty_items(cursor: Cursor, counts: Int64Array) -> None:
        """Mark the rows whose record has too many items without bytes, and let them have none."""
        np.subtract.at(cursor.empty_items, cursor.root, counts)
        wrong = cursor.empty_items[cursor.root] < 0
        if cursor.mark(None, wrong):
            counts[wrong] = 0

    def _find(self, cursor: Cursor, rows: Rows, runs: _Runs | None, *, check: bool) -> Int64Array:
        """Move behind the arrays, and check their items or not; the number of items of each row."""
        counts = np.zeros(cursor.count, np.int64)
        rows = np.arange(cursor.count, dtype=np.int64) if rows is None else rows
        if self._item_size is None:
            self._find_items(cursor, rows, runs, counts, check=check)
        else:
            self._find_blocks(cursor, rows, runs, counts, self._item_size)
        return counts

    def _block_starts(self, cursor: Cursor, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Items of the next blocks, and where these end; -1 where a block does not give it, see :func:`block_start`.

        The count is 0 at the end of an array, and for a count that cannot be.
        """
        counts, ends = cursor.longs(rows), np.full(len(rows), -1, np.int64)
        negative = np.flatnonzero(counts < 0)
        if negative.size:
            counts[negative] = -counts[negative]
            sized_rows = rows[negative]
            sizes = cursor.lengths(sized_rows)
            ends[negative] = cursor.pos[sized_rows] + sizes
        if self._item_least:
            most = (cursor.end[rows] - cursor.pos[rows]) // self._item_least
        else:
            most = np.full(len(rows), MOST_EMPTY_ITEMS, np.int64)
        wrong = (counts < 0) | (counts > most)
        if cursor.mark(rows, wrong):
            counts[wrong] = 0
        return counts, ends

    @staticmethod
    def _check_block_ends(cursor: Cursor, rows: Int64Array, ends: Int64Array) -> None:
        """Mark the rows whose block gave another end."""
        cursor.mark(rows, (ends != -1) & (ends != cursor.pos[rows]))

    def _find_blocks(self, cursor: Cursor, rows: Int64Array, runs: _Runs | None, counts: Int64Array, size: int) -> None:
        """Items of the same size: one step for each block."""
        while rows.size >= _FEW_ROWS:
            block, ends = self._block_starts(cursor, rows)
            more = block > 0
            rows, block = rows[more], block[more]
            if runs is not None:
                runs.add(rows, counts[rows], block, cursor.pos[rows])
            counts[rows] += block
            cursor.pos[rows] += block * size
            self._check_block_ends(cursor, rows, ends[more])
        for row in rows.tolist():
            self._finish_row(cursor, row, (0, None), runs, counts, check=False)

    def _find_items(
        self, cursor: Cursor, rows: Int64Array, runs: _Runs | None, counts: Int64Array, *, check: bool
    ) -> None:
        """Items of different sizes: one step for each item of the longest array."""
        left, ends = np.zeros(len(rows), np.int64), np.full(len(rows), -1, np.int64)
        step = 0
        while rows.size >= _FEW_ROWS:
            empty = np.flatnonzero(left == 0)
            if empty.size:
                self._check_block_ends(cursor, rows[empty], ends[empty])
                left[empty], ends[empty] = self._block_starts(cursor, rows[empty])
                more = left > 0
                if not more.all():
                    rows, left, ends = rows[more], left[more], ends[more]
            if runs is not None:
                runs.add(rows, step, None, cursor.pos[rows])
            step += 1
            counts[rows] = step
            for part in self._parts:
                if check and not part.skip_checks:
                    part.read(cursor, rows, build=False)
                else:
                    part.skip(cursor, rows)
            left -= 1
            beyond = cursor.pos[rows] > cursor.end[rows]
            if cursor.mark(rows, beyond):
                rows, left, ends = rows[~beyond], left[~beyond], ends[~beyond]
        for row, remaining, end in zip(rows.tolist(), left.tolist(), ends.tolist(), strict=True):
            self._finish_row(cursor, row, (remaining, None if end == -1 else end), runs, counts, check=check)

    def _take_varints(self, datum: Datum, count: int) -> Int64Array | None:
        """Take many ints or longs at once; their positions, or None if that was not possible."""
        if not self._varints or count < _FEW_ROWS:
            return None
        window = min(10 * count, len(datum.data) - datum.position)
        stops = np.flatnonzero(np.frombuffer(datum.data, np.uint8, window, datum.position) < 0x80)[:count]
        if len(stops) < count:
            return None
        starts = np.zeros(count, np.int64)
        np.add(stops[:-1], 1, out=starts[1:])
        if (stops - starts).max() > 8:
            return None
        starts += datum.position
        datum.position += int(stops[-1]) + 1
        return starts

    def _finish_row(
        self,
        cursor: Cursor,
        row: int,
        block: tuple[int, int | None],
        runs: _Runs | None,
        counts: Int64Array,
        *,
        check: bool,
    ) -> None:
        """The rest of one array, item by item, or many numbers at once.

        Args:
            cursor: of all rows.
            row: that has the array.
            block: items that are left of a block, and the end that it gives.
            runs: of items that are found.
            counts: of items per row.
            check: whether to check the items.
        """
        datum = cursor.datum(row)
        begin, first = int(cursor.pos[row]), int(counts[row])
        left, end = block[0], None if block[1] is None else block[1] - begin
        starts: list[Int64Array] = []
        lengths: list[int] = []
        total = 0
        try:
            while True:
                if not left:
                    check_block_end(datum, end)
                    left, end = block_start(datum, self._item_least)
                if not left:
                    break
                if self._item_size is not None:
                    starts.append(np.array([datum.position], np.int64))
                    lengths.append(left)
                    datum.position += left * self._item_size
                elif (taken := self._take_varints(datum, left)) is not None:
                    if check:
                        self._check_varints(cursor, row, taken + begin)
                    starts.append(taken)
                else:
                    starts.append(self._take_items(datum, left))
                total += left
                left = 0
            cursor.pos[row] = begin + datum.position
        except (InvalidDatumError, IndexError):
            cursor.refuse(row)
        counts[row] += total
        if runs is None:
            return
        if lengths:
            run_lengths = np.array(lengths, np.int64)
            firsts = first + np.cumsum(run_lengths) - run_lengths
            runs.add(np.full(len(starts), row), firsts, run_lengths, np.concatenate(starts) + begin)
            return
        for positions in starts:
            runs.add_items(row, first, np.add(positions, begin, out=positions))
            first += len(positions)

    def _check_varints(self, cursor: Cursor, row: int, starts: Int64Array) -> None:
        """Mark the row if one of its numbers is out of its range."""
        if not self._items_skip_checks:
            items = cursor.inside(np.full(len(starts), row), starts)
            self._parts[0].read(items, None, build=False)
            if items.bad.any():
                cursor.bad[row] = True

    def _take_items(self, datum: Datum, count: int) -> Int64Array:
        """Take items one by one; their positions."""
        starts = array("q")
        for _ in range(count):
            starts.append(datum.position)
            for check in self._checks:
                check(datum)
        return np.frombuffer(starts, np.int64)


def _reader(node: Node, kind: pa.DataType) -> Reader:
    match node:
        case ArrayOf(items=items):
            return _ItemsReader([_reader(items, cast("pa.ListType[Any]", kind).value_type)], node, kind)
        case MapOf(values=values):
            value = _reader(values, cast("pa.MapType[Any, Any]", kind).item_type)
            return _ItemsReader([_reader(Primitive("string"), pa.string()), value], node, kind)
        case Record(fields=fields):
            parts = [_reader(f.type, kind.field(i).type) for i, f in enumerate(fields)]
            return _RecordReader(parts, node, kind)
        case Union():
            return _union_reader(node, kind)
    return scalar_reader(node, kind)


def _union_reader(node: Union, kind: pa.DataType) -> Reader:
    single = only_branch(node)
    kinds = iter([kind] if single is not None else [kind.field(i).type for i in range(kind.num_fields)])
    readers: list[Reader] = [_reader(branch, pa.null() if branch == NULL else next(kinds)) for branch in node.branches]
    return _UnionReader(readers, node, kind)
