"""Files of connectors are read as Connect and Java read them, and errors quote none of their values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka_connect.reading import read_config
from tests.unit.kafka_connect.connectors import MINIMAL, SECRET

REST = {"name": "orders-to-s3", "config": {k: v for k, v in MINIMAL.items() if k != "name"}, "tasks": [{"task": 0}]}
PROPERTIES = "# a comment\n! another\n\n" + "".join(f"{name} = {value}\n" for name, value in MINIMAL.items())


@pytest.mark.parametrize(
    "given", [MINIMAL, REST, json.dumps(MINIMAL), json.dumps(REST), PROPERTIES, "\ufeff" + PROPERTIES]
)
def test_all_forms_have_the_same_settings(given: Any, tmp_path: Path) -> None:
    """Mappings, JSON and properties, as text or in a file."""
    assert read_config(given) == MINIMAL
    if isinstance(given, str):
        path = tmp_path / "connector"
        path.write_text(given, encoding="utf-8")
        assert read_config(path) == MINIMAL


def test_values_of_json_are_texts_as_in_connect() -> None:
    """Numbers and truth values too; null is no value."""
    given = '{"flush.size": 5, "s3.wan.mode": true, "store.kafka.keys": false, "store.url": null}'
    assert read_config(given) == {"flush.size": "5", "s3.wan.mode": "true", "store.kafka.keys": "false"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a: b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a  =  b c ", {"a": "b c "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        (r"a\=b\:c=d=e", {"a=b:c": "d=e"}),
        ("a=b,\\\n    c", {"a": "b,c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (r"a=\t\n\u0041\q", {"a": "\t\nAq"}),
        ("a=b\r\nc=d\r", {"a": "b", "c": "d"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_properties_are_read_as_java_reads_them(line: str, expected: dict[str, str]) -> None:
    """Separators, escapes and lines that go on."""
    assert read_config(line) == expected


@pytest.mark.parametrize(
    "given",
    [
        "",
        " \n",
        f'{{"s3.proxy.password": "{SECRET}"',
        f'["{SECRET}"]=\n =x',
        {"flush.size": {"x": SECRET}},
        {"flush.size": 1.5},
        {1: SECRET},
        [SECRET],
        f"a={SECRET}\na=b",
        f'{{"a": "{SECRET}", "a": "b"}}',
        Path("absent"),
    ],
)
def test_what_is_no_configuration_is_an_error(given: Any) -> None:
    """Its values are not quoted."""
    with pytest.raises(ConfigurationError) as caught:
        read_config(given)
    assert SECRET not in str(caught.value)


def test_a_file_of_another_encoding_is_an_error(tmp_path: Path) -> None:
    """Which names the file."""
    (tmp_path / "c.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(ConfigurationError, match=r"c\.json' cannot be read: it is not UTF-8"):
        read_config(tmp_path / "c.json")
