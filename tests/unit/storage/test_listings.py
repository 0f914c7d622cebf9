"""Listings of stores that leave out the position of the next page: they are read to their end, or not at all."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import UnsupportedStoreError
from airflow_provider_kafka_s3.storage.s3 import S3Store

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
UPLOADS = [("a", "1"), ("b", "1"), ("b", "2"), ("b", "3"), ("c", "1")]
"""In the order in which a store lists them."""


class Client:
    """Replaces boto3's client: a store that lists two entries per page.

    Attributes:
        omits: fields that its responses leave out.
        ignores: parameters of a request that it ignores.
        requested: positions of its requests.
    """

    meta = SimpleNamespace(config=SimpleNamespace(max_pool_connections=10))

    def __init__(self, *, omits: tuple[str, ...] = (), ignores: tuple[str, ...] = ()) -> None:
        self.omits = omits
        self.ignores = ignores
        self.requested: list[dict[str, str]] = []

    def list_multipart_uploads(self, *, Bucket: str, Prefix: str, **position: str) -> dict[str, Any]:  # noqa: N803
        heeded = self._heeded(position)
        key, upload_id = heeded.get("KeyMarker", ""), heeded.get("UploadIdMarker")
        # Without an upload id, a key marker skips all uploads of that key.
        left = [u for u in UPLOADS if u[0] > key or (upload_id is not None and u[0] == key and u[1] > upload_id)]
        page = left[:2]
        found = [{"Key": k, "UploadId": i, "Initiated": BEGUN} for k, i in page]
        ends = {"NextKeyMarker": page[-1][0], "NextUploadIdMarker": page[-1][1]} if len(left) > 2 else {}
        return self._answer({"Uploads": found, "IsTruncated": len(left) > 2, **ends})

    def list_objects_v2(self, *, Bucket: str, Prefix: str, **position: str) -> dict[str, Any]:  # noqa: N803
        heeded = self._heeded(position)
        after = heeded.get("ContinuationToken", heeded.get("StartAfter", ""))
        left = [key for key in "abcde" if key > after]
        found = [{"Key": key, "Size": 1, "ETag": '"e"'} for key in left[:2]]
        ends = {"NextContinuationToken": left[1]} if len(left) > 2 else {}
        return self._answer({"Contents": found, "IsTruncated": len(left) > 2, **ends})

    def _heeded(self, position: dict[str, str]) -> dict[str, str]:
        self.requested.append(position)
        return {name: value for name, value in position.items() if name not in self.ignores}

    def _answer(self, page: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in page.items() if name not in self.omits}


def store(client: Client) -> S3Store:
    """The package's store over a client."""
    return S3Store(client, "lake")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "omits", [(), ("NextUploadIdMarker",), ("NextKeyMarker",), ("NextKeyMarker", "NextUploadIdMarker")], ids=str
)
def test_all_uploads_are_listed_from_the_last_one_of_each_page(omits: tuple[str, ...]) -> None:
    """Also where a page ends between two uploads of one key; `gc` would miss them, or end with a KeyError."""
    client = Client(omits=omits)
    assert [(u.key, u.upload_id) for u in store(client).pending_uploads("")] == UPLOADS
    assert len(client.requested) == 3


def test_all_objects_are_listed_from_the_last_one_of_each_page() -> None:
    """A page without a token is followed by what comes after its last key."""
    client = Client(omits=("NextContinuationToken",))
    assert [o.key for o in store(client).list("")] == list("abcde")
    assert client.requested == [{}, {"StartAfter": "b"}, {"StartAfter": "d"}]


@pytest.mark.parametrize(("ignores", "pages"), [((), 2), (("StartAfter",), 3)], ids=str)
def test_a_listing_behind_a_key_has_only_greater_ones(ignores: tuple[str, ...], pages: int) -> None:
    """Also of a store that begins with the first key all the same."""
    client = Client(ignores=ignores)
    assert [o.key for o in store(client).list("", after="b")] == list("cde")
    assert len(client.requested) == pages
    assert client.requested[0] == {"StartAfter": "b"}


@pytest.mark.parametrize("omits", [(), ("NextKeyMarker", "NextUploadIdMarker")], ids=str)
def test_a_store_that_lists_the_same_uploads_again_and_again_is_an_error(omits: tuple[str, ...]) -> None:
    """The listing ends, and a part of it is not taken for the whole."""
    listing = store(Client(omits=omits, ignores=("KeyMarker", "UploadIdMarker"))).pending_uploads("topics/")
    with pytest.raises(UnsupportedStoreError, match="ListMultipartUploads of s3://lake/topics/"):
        list(itertools.islice(listing, 100))


@pytest.mark.parametrize("omits", [(), ("NextContinuationToken",)], ids=str)
def test_a_store_that_lists_the_same_objects_again_and_again_is_an_error(omits: tuple[str, ...]) -> None:
    """As for uploads."""
    listing = store(Client(omits=omits, ignores=("ContinuationToken", "StartAfter"))).list("topics/")
    with pytest.raises(UnsupportedStoreError, match="ListObjectsV2 of s3://lake/topics/"):
        list(itertools.islice(listing, 100))


def test_an_empty_page_without_the_position_of_the_next_one_is_an_error() -> None:
    """The listing cannot be read to its end."""

    class Empty(Client):
        def list_multipart_uploads(self, **parameters: Any) -> dict[str, Any]:
            return {"IsTruncated": True}

    with pytest.raises(UnsupportedStoreError, match="a truncated listing without the position"):
        list(store(Empty()).pending_uploads(""))
