"""``kafka-s3 ddl``: statements that can be pasted; it writes nothing and needs no Kafka."""

from __future__ import annotations

import pytest

from airflow_provider_kafka_s3.cli import ddl
from airflow_provider_kafka_s3.config import JsonLines, Layout, Naming, RawBytes
from airflow_provider_kafka_s3.tables.ddl import DIALECTS
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from tests.unit.cli.conftest import JSON, TOPICS_DIR, World


def test_every_dialect_is_a_choice() -> None:
    """The command line does not import their modules for its help."""
    assert tuple(DIALECTS) == ddl._DIALECTS


@pytest.mark.parametrize("dialect", [*DIALECTS])
def test_statements_are_printed_for_every_dialect(world: World, monkeypatch: pytest.MonkeyPatch, dialect: str) -> None:
    """Behind remarks that are comments; as JSON they are apart."""
    world.run("first", layout=JSON)
    before = snapshot(world.bucket)
    monkeypatch.delenv("KAFKA_S3_BOOTSTRAP_SERVER")
    options = ("--dialect", dialect, "--table", "o", "--database", "lake")
    output = world.on_topic("ddl", *options)
    assert (output.code, output.err) == (0, "")
    data = world.on_topic("ddl", *options, "--json").data
    assert data["dialect"] == dialect
    comments = "".join(f"-- {remark}\n" for remark in data["remarks"])
    assert output.out == comments + "".join(f"{statement};\n" for statement in data["statements"])
    assert data["statements"][0].startswith("CREATE ")
    check_unchanged(before, snapshot(world.bucket))


def test_only_the_last_batches_are_looked_at(world: World) -> None:
    """The layout of the newest one is that of the table, and objects of other layouts are named."""
    world.run("first", layout=Layout(topics_dir=TOPICS_DIR, format=RawBytes()))
    world.fill(3)
    world.run("second", layout=JSON)
    remarks = world.on_topic("ddl", "--dialect", "duckdb", "--json").data["remarks"]
    assert [
        text
        for text in remarks
        if "up to batch 1 have another format, other settings of it, or other folders, such as s3://lake" in text
    ]
    output = world.on_topic("ddl", "--dialect", "duckdb", "--last", "1")
    assert "by the log of batches 2 to 2." in output.out
    assert "another format" not in output.out


@pytest.mark.parametrize(
    ("layout", "options", "message"),
    [
        (JSON, ("--last", "0"), "--last 0 must be a positive number"),
        (
            Layout(topics_dir=TOPICS_DIR, format=JsonLines(), naming=Naming(directory_delim="-")),
            (),
            "Athena cannot have a table of topic 'orders'",
        ),
    ],
)
def test_what_cannot_be_is_refused(world: World, layout: Layout, options: tuple[str, ...], message: str) -> None:
    """With the code of a wrong setting."""
    world.run("first", layout=layout)
    output = world.on_topic("ddl", "--dialect", "athena", *options)
    assert output.code == 2
    assert message in output.error
