"""The second S3 server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_kafka_s3.exceptions import PreconditionFailed
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from dev import versitygw
from dev.certificates import Authority
from dev.versitygw import VersityGateway


def test_versitygw_serves_an_empty_store_over_tls_and_enforces_conditions(tmp_path: Path) -> None:
    """So conditional requests are tested on another server than moto."""
    authority, folder = Authority(tmp_path / "ca"), tmp_path / "objects"
    folder.mkdir()
    with VersityGateway(
        access_key_id="someone", secret_access_key="secret", tls=authority.server(), folder=folder
    ) as server:
        client = make_client(
            S3Settings(
                endpoint_url=server.endpoint,
                region="us-east-1",
                addressing_style="path",
                ca_bundle=str(authority.certificate),
            ),
            S3Credentials(access_key_id="someone", secret_access_key="secret"),
        )
        client.create_bucket(Bucket="bucket")
        store = S3Store(client, "bucket")
        store.put_new("folder/key", b"first")

        with pytest.raises(PreconditionFailed):
            store.put_new("folder/key", b"second")

        assert (folder / "bucket" / "folder" / "key").read_bytes() == b"first"
        client.close()


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of processes that run, and of others, stay."""
    monkeypatch.setattr(versitygw, "_MEMORY", tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (f"versitygw-{ended.pid}-left", f"versitygw-{os.getpid()}-used", "versitygw-of-others"):
        (tmp_path / name).mkdir()
    with VersityGateway():
        assert {path.name.rpartition("-")[2] for path in tmp_path.iterdir()} >= {"used", "others"}
        assert len([*tmp_path.iterdir()]) == 3
    assert sorted(path.name.rpartition("-")[2] for path in tmp_path.iterdir()) == ["others", "used"]


def test_without_a_binary_the_error_names_the_target_that_builds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tests that need a second server fail without it."""
    monkeypatch.setattr(versitygw, "BINARY", tmp_path / "versitygw")

    with pytest.raises(RuntimeError, match="run make versitygw"):
        VersityGateway().start()


def test_the_cause_of_a_failed_start_is_in_the_error(tmp_path: Path) -> None:
    """As its output has it."""
    with pytest.raises(RuntimeError, match=r"(?s)did not start \(exit status 1\); .*no such file"):
        VersityGateway(folder=tmp_path / "absent").start()
