"""What documents have beside the declared schema is left out, rescued, or an error, and counted."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.arrays import binary_array
from airflow_provider_kafka_s3.config import OnUnknownFields
from airflow_provider_kafka_s3.converters import json_decode
from airflow_provider_kafka_s3.converters.declared_json import DeclaredJsonConverter
from airflow_provider_kafka_s3.converters.port import TypedValues
from airflow_provider_kafka_s3.converters.unknown_fields import UnknownFieldCounter
from airflow_provider_kafka_s3.exceptions import ConfigurationError

Json = Any

# -- the plain reference: what of a document has no place in the schema, as values with texts of numbers ---------------

NOTHING = object()


class Number(str):
    """The text of a number."""


def parsed(text: bytes | str) -> Json:
    """A document in which numbers are their texts."""
    return json.loads(text, parse_int=Number, parse_float=Number)


def fits(kind: Json, value: Json) -> bool:
    """Whether a value without objects inside is of a type."""
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "string":
        return type(value) is str
    if type(value) is not Number:
        return kind == "double" and value in ("NaN", "Infinity", "-Infinity")
    if kind == "long":
        return value.lstrip("-").isdigit() and -(2**63) <= int(value) < 2**63
    return abs(float(value)) != float("inf")


class Unfit(Exception):
    """A value does not fit its type."""


def rest_of(kind: Json, value: Json) -> Json:
    """What of a value has no place in its type; NOTHING if all of it has one."""
    if isinstance(kind, list):
        if value is None and "null" in kind:
            return NOTHING
        (inner,) = [branch for branch in kind if branch != "null"]
        return rest_of(inner, value)
    if isinstance(kind, str):
        if not fits(kind, value):
            raise Unfit
        return NOTHING
    if kind["type"] == "record":
        if type(value) is not dict:
            raise Unfit
        types = {field["name"]: field["type"] for field in kind["fields"]}
        if any(name not in value and "null" not in types[name] for name in types):
            raise Unfit
        parts = {n: v if n not in types else rest_or_all(types[n], v) for n, v in value.items()}
        parts = {name: part for name, part in parts.items() if part is not NOTHING}
        return parts or NOTHING
    if kind["type"] == "map":
        if type(value) is not dict:
            raise Unfit
        parts = {key: rest_or_all(kind["values"], item) for key, item in value.items()}
        return {key: part for key, part in parts.items() if part is not NOTHING} or NOTHING
    if type(value) is not list:
        raise Unfit
    items = [rest_or_all(kind["items"], item) for item in value]
    return [None if item is NOTHING else item for item in items] if any(i is not NOTHING for i in items) else NOTHING


def rest_or_all(kind: Json, value: Json) -> Json:
    """What of a value has no place: all of it, if it does not fit a type that has null."""
    try:
        return rest_of(kind, value)
    except Unfit:
        if "null" in kind:
            return value
        raise


def together(landed: Json, rescued: Json, kind: Json) -> Json:
    """The document again, from its columns and the text of the others."""
    if rescued is NOTHING:
        return landed
    if isinstance(kind, list):
        (kind,) = [branch for branch in kind if branch != "null"]
    if landed is None or isinstance(kind, str):
        return rescued
    if kind["type"] == "record":
        types = {field["name"]: field["type"] for field in kind["fields"]}
        return {
            **landed,
            **{n: together(landed[n], part, types[n]) if n in types else part for n, part in rescued.items()},
        }
    if kind["type"] == "map":
        return {**landed, **{key: together(landed[key], part, kind["values"]) for key, part in rescued.items()}}
    return [together(a, NOTHING if b is None else b, kind["items"]) for a, b in zip(landed, rescued, strict=True)]


# -- generated schemas and documents ----------------------------------------------------------------------------------

KNOWN = ("a", "b", "c")
NAMES = st.sampled_from([*KNOWN, "d", "new", "é", 'q"', "line\n"])
LEAVES = st.sampled_from(["boolean", "long", "double", "string"])
_numbers = iter(range(10**9))


def _nullable(kinds: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return kinds | kinds.map(lambda kind: ["null", kind])


def _record(kinds: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    fields = st.dictionaries(st.sampled_from(KNOWN), _nullable(kinds), min_size=1, max_size=3)
    return fields.map(
        lambda parts: {
            "type": "record",
            "name": f"R{next(_numbers)}",
            "fields": [{"name": name, "type": kind} for name, kind in parts.items()],
        }
    )


KINDS = st.recursive(
    LEAVES,
    lambda inner: (
        _record(inner)
        | _nullable(inner).map(lambda kind: {"type": "array", "items": kind})
        | _nullable(inner).map(lambda kind: {"type": "map", "values": kind})
    ),
    max_leaves=6,
)
SCHEMAS = _record(KINDS)
NUMBERS = st.sampled_from(["0", "-7", "1.10", "1e400", "9223372036854775808", "1" + "0" * 40, "1E2", "0.5"])
SPACE = st.sampled_from(["", " ", "\n"])


@st.composite
def values_of(draw: st.DrawFn, kind: Json) -> str:
    """The text of a value, mostly of a type, with fields beside those of the schema."""
    if draw(st.integers(0, 9)) == 0:
        return draw(ANY)
    if isinstance(kind, list):
        return "null" if draw(st.booleans()) else draw(values_of(kind[1]))
    match kind:
        case "boolean":
            return draw(st.sampled_from(["true", "false"]))
        case "long":
            return draw(st.integers(-(2**63), 2**63 - 1).map(str))
        case "double":
            return draw(st.sampled_from(["1.10", "-2", "1e3"]))
        case "string":
            return json.dumps(draw(st.sampled_from(["", "x", "é", '"'])))
    if kind["type"] == "array":
        return _array(draw(st.lists(values_of(kind["items"]), max_size=3)))
    if kind["type"] == "map":
        return _object(draw(st.dictionaries(NAMES, values_of(kind["values"]), max_size=3)), draw(SPACE))
    members = {f["name"]: draw(values_of(f["type"])) for f in kind["fields"] if draw(st.integers(0, 5))}
    return _object({**draw(st.dictionaries(NAMES, ANY, max_size=2)), **members}, draw(SPACE))


def _array(items: list[str]) -> str:
    return f"[{','.join(items)}]"


def _object(members: dict[str, str], space: str) -> str:
    return "{" + ",".join(f"{space}{json.dumps(n)}{space}:{space}{v}{space}" for n, v in members.items()) + "}"


ANY: st.SearchStrategy[str] = st.recursive(
    st.sampled_from(["null", "true", '"x"', '"\\u00e9"']) | NUMBERS,
    lambda inner: (
        st.lists(inner, max_size=2).map(_array)
        | st.dictionaries(NAMES, inner, max_size=2).map(lambda m: _object(m, ""))
    ),
    max_leaves=4,
)


@st.composite
def topics(draw: st.DrawFn) -> tuple[Json, list[bytes]]:
    """A schema, and documents that are mostly of it."""
    schema = draw(SCHEMAS)
    return schema, [text.encode() for text in draw(st.lists(values_of(schema), min_size=1, max_size=12))]


# -- conversion -------------------------------------------------------------------------------------------------------


def convert(
    schema: Json, texts: list[bytes], unknown_fields: OnUnknownFields, counter: UnknownFieldCounter | None = None
) -> TypedValues:
    """The values of a batch."""
    converter = DeclaredJsonConverter(json.dumps(schema), "NUMERIC", unknown_fields, counter or UnknownFieldCounter())
    return converter.convert(binary_array(texts, large=False), decode=True)


def landed_rows(typed: TypedValues) -> dict[int, dict[str, Any]]:
    """The landed values by row."""
    return {
        int(row): value.as_py(maps_as_pydicts="strict")
        for group in typed.groups
        for row, value in zip(group.rows, group.values or (), strict=True)
    }


def plain(value: Json) -> Json:
    """A landed value, or one of a document, to compare: numbers as texts of doubles."""
    if isinstance(value, Number):
        return repr(float(value))
    if type(value) in (int, float):
        return repr(float(value))
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list) else value


def without_absent(value: Json, document: Json) -> Json:
    """A value without fields that are null since the document does not have them."""
    if isinstance(value, dict) and isinstance(document, dict):
        return {n: without_absent(v, document[n]) for n, v in value.items() if n in document or v is not None}
    if isinstance(value, list) and isinstance(document, list):
        return [without_absent(a, b) for a, b in zip(value, document, strict=False)]
    return value


@given(topic=topics())
def test_columns_and_rescued_text_together_have_the_whole_document(topic: tuple[Json, list[bytes]]) -> None:
    """Of each record that is not invalid; what is rescued is what the reference has no place for, digit by digit."""
    schema, texts = topic
    typed = convert(schema, texts, "rescue")
    landed = landed_rows(typed)
    for row, text in enumerate(texts):
        document = parsed(text)
        try:
            rest = rest_of(schema, document)
        except Unfit:
            assert row not in landed
            continue
        value = landed[row]
        assert [*value][-1] == "_rescued"
        rescued = value.pop("_rescued")
        assert (NOTHING if rescued is None else parsed(rescued)) == rest
        whole = together(value, NOTHING if rescued is None else parsed(rescued), schema)
        assert plain(without_absent(whole, document)) == plain(document)


@given(topic=topics(), cut=st.integers(0, 12))
def test_the_same_values_however_they_are_cut_into_batches(topic: tuple[Json, list[bytes]], cut: int) -> None:
    """Also if names of fields were learned from other records before."""
    schema, texts = topic
    together_ = landed_rows(convert(schema, texts, "rescue"))
    counter = UnknownFieldCounter()
    converter = DeclaredJsonConverter(json.dumps(schema), "NUMERIC", "rescue", counter)
    rows: dict[int, Any] = {}
    for first, part in ((0, texts[:cut]), (cut, texts[cut:])):
        typed = converter.convert(binary_array(part, large=False), decode=True)
        rows |= {first + row: value for row, value in landed_rows(typed).items()}
    assert repr(sorted(rows.items())) == repr(sorted(together_.items()))
    alone = [landed_rows(convert(schema, [text], "rescue")).get(0) for text in texts]
    assert repr(alone) == repr([rows.get(row) for row in range(len(texts))])


@given(topic=topics())
def test_every_record_with_a_field_beside_the_schema_is_counted(topic: tuple[Json, list[bytes]]) -> None:
    """The same number with each choice, as long as values fit; an invalid record is counted by ``fail`` only."""
    schema, texts = topic
    expected = {row for row, text in enumerate(texts) if _rest_is_unknown(schema, text)}
    left_out, rescue = UnknownFieldCounter(), UnknownFieldCounter()
    values = landed_rows(convert(schema, texts, "leave_out", left_out))
    assert left_out.records == len(expected & values.keys())
    landed = landed_rows(convert(schema, texts, "rescue", rescue))
    assert rescue.records == sum(value["_rescued"] is not None for value in landed.values())
    failing = UnknownFieldCounter()
    typed = convert(schema, texts, "fail", failing)
    assert landed_rows(typed).keys() == values.keys() - expected
    assert failing.records == len(expected & values.keys())


def _rest_is_unknown(schema: Json, text: bytes) -> bool:
    """Whether a document, all of whose values fit, has a field that the schema does not have."""
    try:
        return _strict_rest(schema, parsed(text)) is not NOTHING
    except Unfit:
        return False


def _strict_rest(kind: Json, value: Json) -> Json:
    """As ``rest_of``, where a value that does not fit is never surplus."""
    before = globals()["rest_or_all"]
    globals()["rest_or_all"] = rest_of
    try:
        return rest_of(kind, value)
    finally:
        globals()["rest_or_all"] = before


@given(topic=topics())
def test_left_out_fields_change_no_value(topic: tuple[Json, list[bytes]]) -> None:
    """Values and invalid records are those of plans without the setting."""
    schema, texts = topic
    before = DeclaredJsonConverter(json.dumps(schema)).convert(binary_array(texts, large=False), decode=True)
    now = convert(schema, texts, "leave_out")
    assert now.invalid == before.invalid
    assert repr(landed_rows(now)) == repr(landed_rows(before))
    for a, b in zip(before.groups, now.groups, strict=True):
        assert a.datums().equals(b.datums())


ORDER: Json = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": ["null", "long"], "default": None},
        {
            "name": "home",
            "type": ["null", {"type": "record", "name": "Home", "fields": [{"name": "zip", "type": ["null", "int"]}]}],
            "default": None,
        },
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    ],
}


@pytest.mark.parametrize(
    ("document", "rescued"),
    [
        ('{"id": 1}', None),
        ('{"id": 1, "x": 1.10}', '{"x":1.10}'),
        ('{"id": 1, "x": 1' + "0" * 40 + "}", '{"x":1' + "0" * 40 + "}"),
        ('{"z": [1, {"a" : 2}], "id": 1, "a": null}', '{"a":null,"z":[1, {"a" : 2}]}'),
        ('{"id": 1, "n": "7"}', '{"n":"7"}'),
        ('{"id": 1, "home": {"zip": "x", "city": "Bonn"}}', '{"home":{"city":"Bonn","zip":"x"}}'),
        ('{"id": 1, "home": [1]}', '{"home":[1]}'),
        ('{"id": 1, "price": "much"}', '{"price":"much"}'),
        ('{"id": 1, "price": 1.005}', '{"price":1.005}'),
        ('{"id": 1, "day": "soon"}', '{"day":"soon"}'),
        ('{"id": 1, "x": 1, "x": 2}', '{"x":2}'),
        ('{"id": 1, "n": "a", "n": 3}', None),
        ('{"id": 1, "\\u0078": 2}', '{"x":2}'),
        ('{"id": 1, "\\ud800": 2}', '{"\\ud800":2}'),
        ('{"id": 1, "x": "\\ud800"}', '{"x":"\\ud800"}'),
        ('{"id": 1, "x": "\\ud83d\\ude00"}', '{"x":"\\ud83d\\ude00"}'),
        ('{"id": 1, "a\\"b": 2, "": 3}', '{"":3,"a\\"b":2}'),
        ('{"id": 1, "x": ' + "7" * 5000 + "}", '{"x":' + "7" * 5000 + "}"),
    ],
)
def test_the_rescued_text_is_that_of_the_document(document: str, rescued: str | None) -> None:
    """Only the parts without a place, with sorted names; numbers keep their digits."""
    twice = [document.encode()] * 2
    rows = landed_rows(convert(ORDER, twice, "rescue"))
    assert [rows[row]["_rescued"] for row in (0, 1)] == [rescued] * 2
    assert rows[0]["id"] == 1


@pytest.mark.parametrize("document", ["[1]", "1", "", "{", '{"id": "x"}', "{}", '{"x": 1}', '{"id": 1} 2'])
def test_what_is_no_document_of_the_schema_stays_invalid(document: str) -> None:
    """With each choice, with the same reason."""
    reasons = [
        [i.reason for i in convert(ORDER, [document.encode()], choice).invalid]
        for choice in ("leave_out", "rescue", "fail")
    ]
    assert len(reasons[0]) == 1
    assert reasons[1:] == reasons[:1] * 2


def test_an_unknown_field_fails_with_its_name() -> None:
    """The path of the first one by name, cut and printable."""
    texts = [b'{"id": 1}', b'{"id": 1, "home": {"b\\n": 1, "c": 2}}', b'{"id": 1, "%s": 1}' % (b"y" * 1000)]
    typed = convert(ORDER, texts, "fail")
    assert [invalid.row for invalid in typed.invalid] == [1, 2]
    assert "(field home.b\\x0a is not in the schema)" in typed.invalid[0].reason.replace("\\n", "\\x0a")
    assert len(typed.invalid[1].reason) < 250


def test_many_unknown_names_are_all_rescued() -> None:
    """More than are learned, a new one in each record."""
    texts = [b'{"id": %d, "f%d": %d}' % (n, n, n) for n in range(300)]
    counter = UnknownFieldCounter()
    rows = landed_rows(convert(ORDER, texts, "rescue", counter))
    assert [rows[n]["_rescued"] for n in range(300)] == [f'{{"f{n}":{n}}}' for n in range(300)]
    assert counter.take() == (300, tuple(f"f{n}" for n in range(280, 300)))


def test_the_names_are_those_that_appeared_last() -> None:
    """In the order of their appearance, with paths, and without keys of maps."""
    schema = {**ORDER, "fields": [*ORDER["fields"], _list_of_maps()]}
    texts = [b'{"id": 1, "b": 1, "home": {"c": 1}}', b'{"id": 1, "m": [{"key": {"x": 1}}], "a": 2}']
    for choice in ("leave_out", "rescue"):
        counter = UnknownFieldCounter()
        convert(schema, texts, choice, counter)
        records, names = counter.take()
        assert records == 2
        assert sorted(names) == ["a", "b", "home.c", "m[][*].x"]
        assert counter.take() == (0, ())


def _list_of_maps() -> Json:
    record = {"type": "record", "name": "M", "fields": [{"name": "y", "type": ["null", "long"]}]}
    kind = {"type": "array", "items": {"type": "map", "values": record}}
    return {"name": "m", "type": ["null", kind]}


def test_records_in_unions_of_several_types_are_looked_into() -> None:
    """The unknown fields of the branch that fits are rescued, or fail."""
    record = {"type": "record", "name": "U", "fields": [{"name": "a", "type": "long"}]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["null", "string", record]}]}
    texts = [b'{"u": "x"}', b'{"u": {"a": 1, "b": 2}}', b'{"u": {"b": 2}}']
    rows = landed_rows(convert(schema, texts, "rescue"))
    assert [rows[n]["_rescued"] for n in range(3)] == [None, '{"u":{"b":2}}', '{"u":{"b": 2}}']
    assert [invalid.row for invalid in convert(schema, texts, "fail").invalid] == [1, 2]
    counter = UnknownFieldCounter()
    assert [invalid.row for invalid in convert(schema, texts, "leave_out", counter).invalid] == [2]
    assert counter.records == 0  # it would cost time


@pytest.mark.parametrize("choice", ["leave_out", "rescue", "fail"])
def test_a_recursive_schema_is_refused(choice: OnUnknownFields) -> None:
    """With the error of other converters."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}
    with pytest.raises(ConfigurationError, match="recursive"):
        convert(schema, [b"{}"], choice)


@pytest.mark.parametrize("schema", ["long", {"type": "array", "items": "long"}, ["null", "string", "long"]])
def test_values_that_are_no_records_have_no_unknown_fields(schema: Json) -> None:
    """They are converted with the other choices as before."""
    values = binary_array([b"1", b"[1]", b"{}"], large=False)
    before = DeclaredJsonConverter(json.dumps(schema)).convert(values, decode=True)
    for choice in ("leave_out", "fail"):
        counter = UnknownFieldCounter()
        typed = DeclaredJsonConverter(json.dumps(schema), "NUMERIC", choice, counter).convert(values, decode=True)
        assert typed.invalid == before.invalid
        assert [group.values for group in typed.groups] == [group.values for group in before.groups]
        assert counter.records == 0


def test_blocks_of_a_large_batch_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are learned in a later block change nothing in an earlier one."""
    monkeypatch.setattr(json_decode, "_BLOCK", 16)
    texts = [b'{"id": %d%s}' % (n, b', "new": [%d]' % n if n > 40 else b"") for n in range(100)]
    counter = UnknownFieldCounter()
    rows = landed_rows(convert(ORDER, texts, "rescue", counter))
    assert [rows[n]["_rescued"] for n in range(100)] == [f'{{"new":[{n}]}}' if n > 40 else None for n in range(100)]
    assert counter.take() == (59, ("new",))


def test_the_column_is_the_last_one_and_may_be_null() -> None:
    """In Arrow and in the text of the schema."""
    converter = DeclaredJsonConverter(json.dumps(ORDER), unknown_fields="rescue")
    fields = json.loads(converter.schemas[0].text)["fields"]
    assert fields[-1] == {"name": "_rescued", "type": ["null", "string"], "default": None}
    (group,) = converter.convert(binary_array([b'{"id": 1}'], large=False), decode=True).groups
    assert group.values is not None
    kind = group.values.type
    assert pa.types.is_struct(kind)
    assert kind.field(kind.num_fields - 1) == pa.field("_rescued", pa.string())
