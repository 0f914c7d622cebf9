"""Folders of values: safe, readable, and never shared by two values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import JsonLines, Layout, Naming
from airflow_provider_kafka_s3.converters.field_values import Day, FieldValue, Fraction, Moment, Unusable
from airflow_provider_kafka_s3.layout.folders import NULL_FOLDER, Folders
from airflow_provider_kafka_s3.layout.keys import data_key, parse_data_key

HOSTILE = st.text(st.sampled_from("ab%/.=_ \t\n\\~25fF2eE+é😀\x85\ud800\ufffe"), max_size=8) | st.text(max_size=12)
NAMINGS = [
    Naming(),
    Naming(kafka_connect_names=True),
    Naming(directory_delim="+"),
    Naming(directory_delim="+", kafka_connect_names=True),
    Naming(directory_delim="_-", kafka_connect_names=True),
]


def folders(naming: Naming | None = None, *, alone: bool = True, most: int = 200, name: str = "f") -> Folders:
    """Folders of the field f."""
    return Folders(name, naming or Naming(), max_bytes=most, alone=alone)


def folder(value: FieldValue, **settings: Any) -> str:
    """The folder of a value of the field f."""
    made = folders(Naming(**settings)).of(value)
    assert isinstance(made, str)
    return made


@pytest.mark.parametrize(
    ("value", "named", "connect"),
    [
        ("NO", "f=NO", "f=NO"),
        (16, "f=16", "f=16"),
        (-1, "f=-1", "f=-1"),
        (True, "f=true", "f=true"),
        (False, "f=false", "f=false"),
        (None, "f=__HIVE_DEFAULT_PARTITION__", "f=null"),
        ("null", "f=null", "f=null"),
        ("", "f=__EMPTY__", "f="),
        (" ", "f=%20", "f= "),
        ("a b", "f=a b", "f=a b"),
        ("é日😀", "f=é日😀", "f=é日😀"),
        ("a/b", "f=a%2Fb", "f=a/b"),
        ("..", "f=..", "f=.."),
        ("../..", "f=..%2F..", "f=..%2f.."),
        ("/", "f=%2F", "f=%2f"),
        ("a/", "f=a%2F", "f=a%2f"),
        ("a/_kafka_s3/b", "f=a%2F_kafka_s3%2Fb", "f=a%2f_kafka_s3%2fb"),
        ("50%", "f=50%25", "f=50%"),
        ("%2F", "f=%252F", "f=%2F"),
        ("%2f", "f=%252f", "f=%252f"),
        ("k=v", "f=k%3Dv", "f=k=v"),
        ("tab\tx", "f=tab%09x", "f=tab%09x"),
        ("tab%09x", "f=tab%2509x", "f=tab%2509x"),
        ("a\n", "f=a%0A", "f=a%0a"),
        ("\x85", "f=%C2%85", "f=%c2%85"),
        ("\udcff", "f=%FF", "f=%ff"),
        ("\ud800", "f=%ED%A0%80", "f=%ed%a0%80"),
        (NULL_FOLDER, "f=%5F_HIVE_DEFAULT_PARTITION__", f"f={NULL_FOLDER}"),
        ("__EMPTY__", "f=%5F_EMPTY__", "f=%5f_EMPTY__"),
        (Decimal("1.50"), "f=1.50", "f=1.50"),
        (Decimal("1E+2"), "f=100", "f=100"),
        (Day(17227), "f=2017-03-02", "f=2017-03-02"),
        (Moment(1488477600123, "ms"), "f=2017-03-02T18%3A00%3A00.123", "f=2017-03-02T18:00:00.123"),
        (Moment(-1, "us"), "f=1969-12-31T23%3A59%3A59.999999", "f=1969-12-31T23:59:59.999999"),
    ],
)
def test_each_kind_of_value_has_its_folder(value: FieldValue, named: str, connect: str) -> None:
    """Safe by default, as in Kafka Connect on request; unsafe values are percent-encoded in both."""
    assert folder(value) == named
    assert folder(value, kafka_connect_names=True) == connect


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Fraction("1.5"), "is a number with a fraction"),
        (Unusable("is a record"), "is a record"),
        (Day(2**31 - 1), "is a date outside the years"),
        (Moment(2**62, "s"), "is a time outside the years"),
    ],
)
def test_values_without_a_text_have_no_folder(value: FieldValue, reason: str) -> None:
    """The reason follows the name of the field."""
    made = folders().of(value)
    assert isinstance(made, Unusable)
    assert made.reason.startswith(reason)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("naming", NAMINGS)
@given(first=HOSTILE, second=HOSTILE)
@example(first="tab\t", second="tab%09")
@example(first="%2f", second="/")
@example(first="a" * 300, second="a" * 301)
def test_two_texts_never_share_a_folder(naming: Naming, alone: bool, first: str, second: str) -> None:
    """Also if one is the encoded text of the other, or both are cut."""
    made = folders(naming, alone=alone, most=80)
    assert (made.of(first) == made.of(second)) == (first == second)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("naming", [*NAMINGS, Naming(lowercase_paths=True)])
@given(text=HOSTILE | st.text(min_size=200, max_size=400))
def test_every_text_makes_a_key_that_is_safe_and_parsed(naming: Naming, alone: bool, text: str) -> None:
    """Whatever a producer writes, the key is one that S3 takes and lists, in the folder of the topic."""
    layout = Layout(format=JsonLines(), naming=naming)
    made = folders(naming, alone=alone).of(text)
    assert isinstance(made, str)
    key = data_key(layout, topic="t", encoded_partition=made, partition=3, first_offset=7, generation=0)
    assert parse_data_key(layout, "t", key) == (3, 7, 0)
    assert len(made.encode()) <= len(folders(naming, alone=alone).longest.encode())
    if not alone:
        assert naming.directory_delim not in made


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_readers_of_hive_tables_get_the_value_back(text: str) -> None:
    """Percent-decoding the folder gives the text, except for the empty one."""
    name, _, value = folder(text).partition("=")
    assert name == "f"
    assert unquote(value) == (text or "__EMPTY__")


def test_a_long_value_is_cut_and_has_a_digest() -> None:
    """10 kB fit into no key; a percent-encoded character is not cut in two."""
    made = folder("é/" * 5_000)
    assert len(made.encode()) <= len("f=") + 200
    assert made.startswith("f=é%2Fé%2F")
    assert folder("é/" * 5_000) == made
    assert folder("é/" * 4_999) != made
    assert folder("v" * 200) == "f=" + "v" * 200


def test_lower_case_folds_values_before_they_are_grouped() -> None:
    """Values that differ in case only share a folder; the name that readers take for null stays."""
    made = folders(Naming(lowercase_paths=True), name="userName")
    assert made.of("Oslo/É") == made.of("OSLO/é") == "username=oslo%2fé"
    assert made.of(None) == "username=__HIVE_DEFAULT_PARTITION__"
    assert made.of("__hive_default_partition__") == made.of(NULL_FOLDER) == "username=%5f_hive_default_partition__"


def test_names_of_fields_are_safe_too() -> None:
    """A field may have any name in JSON."""
    assert folders(name="a/b=c").of(1) == "a%2Fb%3Dc=1"
    assert folders(Naming(kafka_connect_names=True), name="a/b", alone=False).of(1) == "a%2fb=1"
    assert folders(name="user.address.city").of("NYC") == "user.address.city=NYC"
