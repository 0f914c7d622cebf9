"""A landing run and a real Hive metastore; that of Glue is in tests/unit/operators/test_partitions_in.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_kafka_s3 import HiveTable
from airflow_provider_kafka_s3.cli import main
from dev.metastore import HiveMetastore
from dev.ports import free_ports
from tests.tables.catalogs import Hive
from tests.unit.cli.conftest import commands_in
from tests.unit.operators.conftest import Bench, bench, connections, topics  # noqa: F401 - fixtures


@pytest.fixture(scope="module")
def hive() -> Iterator[Hive]:
    """A metastore with a table by ``n``; it starts before ``bench`` replaces Java."""
    with HiveMetastore() as server:
        made = Hive(server)
        made.make(["n"], "s3a://lake/topics/orders/")
        yield made


def test_a_run_adds_partitions_and_the_command_of_its_warning_makes_good_what_it_could_not(
    topics: Bench,  # noqa: F811 - the fixture
    hive: Hive,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """First a metastore that is down, then one that has the partitions already, then one more folder."""

    def connect(port: int) -> None:
        connection = {"conn_type": "hive_metastore", "host": "127.0.0.1", "port": port}
        monkeypatch.setenv("AIRFLOW_CONN_METASTORE_DEFAULT", json.dumps(connection))

    def land(run_id: str) -> Any:
        table = HiveTable(table=f"{hive.database}.{{topic}}")
        by_n = {"kind": "field", "names": ["n"]}
        return topics.run(topics.task(partitioner=by_n, partitions_in=table), run_id=run_id)

    connect(*free_ports(1))
    assert land("first")["landed"]["records"] == 2
    (command,) = commands_in(caplog.text)
    assert hive.partitions() == {}
    connect(hive.settings.port)
    capsys.readouterr()
    assert main.main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == ["n=1", "n=2"]
    caplog.clear()
    topics.fill("orders", [{"n": 3}])
    assert land("second")["landed"]["records"] == 1
    assert not commands_in(caplog.text)
    assert hive.partitions() == {(str(n),): f"s3a://lake/topics/orders/n={n}/" for n in (1, 2, 3)}
