"""The second S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_kafka_s3.exceptions import PreconditionFailed
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from dev import versitygw
from dev.certificates import Authority
from dev.versitygw import VersityGateway


def test_it_serves_an_empty_store_over_tls_and_enforces_conditions(tmp_path: Path) -> None:
    """What the protocol rests on does not hang on moto alone."""
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


def test_without_a_binary_the_error_names_the_target_that_builds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing takes its place: a test that means a second server has to have one."""
    monkeypatch.setattr(versitygw, "BINARY", tmp_path / "versitygw")

    with pytest.raises(RuntimeError, match="run make versitygw"):
        VersityGateway().start()


def test_what_keeps_it_from_starting_is_told(tmp_path: Path) -> None:
    """In its own words."""
    with pytest.raises(RuntimeError, match=r"(?s)did not start \(exit status 1\); .*no such file"):
        VersityGateway(folder=tmp_path / "absent").start()
