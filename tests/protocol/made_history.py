"""A bucket after any number of batches, whose documents and objects are made when they are read.

So a history of a million batches takes no memory, and what is measured is the reader alone. The documents are those of
:mod:`tests.protocol.history`, with times. What is written is kept, and comes first.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, NONCE_METADATA
from airflow_provider_kafka_s3.config import Layout, RawBytes
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import Document, canonical, encode
from airflow_provider_kafka_s3.documents.log_index import INDEX_SIZES, LogIndex, indexed_batch
from airflow_provider_kafka_s3.documents.manifest import ContentHash, Manifest
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.owner import Owner
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import PreconditionFailed
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectInfo, StoredObject
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.protocol.history import RECORD, batch_of, checksum_of, marker_of

__all__ = ["LongTopic", "MadeHistory"]

T = TypeVar("T")

_Batch: TypeAlias = tuple[Plan, Manifest, list[tuple[str, bytes, dict[str, str]]]]
"""Plan, decision, and objects as (key, body, metadata)."""

_SAMPLE: Final = 7_777_777
"""Number of the batch that the documents of all others are made from; no digest has its digits."""

_PAGE: Final = 1_000
"""Keys of a page of a listing."""

_ETAG: Final = '"made"'


def _with_names(text: str, fields: Mapping[str, str]) -> str:
    """A text with names in place of values."""
    assert "%" not in text
    for value, name in fields.items():
        text = text.replace(value, f"%({name})s")
    return text


class _Template:
    """A document with numbers to be filled in, and its checksum."""

    def __init__(self, document: Document, fields: Mapping[str, str]) -> None:
        body = json.loads(encode(document, {}))
        del body["sha256"]
        self._without = _with_names(canonical(body).decode(), fields)
        named = canonical({**body, "sha256": "the checksum"}).decode()
        self._with = _with_names(named, {"the checksum": "sha256", **fields})

    def make(self, values: Mapping[str, object]) -> tuple[str, str]:
        """The text, and its checksum."""
        sha256 = hashlib.sha256((self._without % values).encode()).hexdigest()
        return self._with % {**values, "sha256": sha256}, sha256


class MadeHistory(MemoryStore):
    """The bucket.

    Attributes:
        batches: number of batches of two records each; those of batch n have the times 1000 n and 1000 n + 1.
        pages: of listings, that were read.
        seconds: CPU time that documents were made in, of all threads.
    """

    def __init__(
        self,
        batches: int,
        *,
        topics_dir: str,
        pipeline: str,
        topic: str,
        sizes: tuple[int, ...] = INDEX_SIZES,
        step: int = 1,
    ) -> None:
        """Make a bucket; nothing but the marker and the owner is stored.

        Args:
            batches: number of batches.
            topics_dir: of the pipeline.
            pipeline: its name.
            topic: name of the topic.
            sizes: batches of an index.
            step: windows from one batch to the next one, which has no divisor in common with ``batches``. 1: offsets
                were landed in order, -1: backward behind the first one, others: in any order.
        """
        super().__init__("made")
        self.batches = batches
        self.pages = 0
        self.seconds = 0.0
        self.topic_id = LongTopic(topic, 0).topic_id(topic)
        self._topic = topic
        self._sizes = sizes
        self._step = step
        self._layout = Layout(topics_dir=topics_dir, format=RawBytes())
        prefix = addresses.control_prefix(topics_dir, pipeline, topic)
        self._batches, self._indexes = addresses.batches_prefix(prefix), addresses.indexes_prefix(prefix)
        self._data = keys.data_prefix(self._layout, topic)
        self._counting = threading.Lock()
        self._make_templates()
        super().put_new(addresses.owner_key(topics_dir, topic), encode(Owner(pipeline=pipeline, topic=topic), {}))
        super().put_new(
            addresses.marker_key(prefix), encode(marker_of(batches, topic=topic, topic_id=self.topic_id), {})
        )

    def _make_templates(self) -> None:
        n = _SAMPLE
        first = 2 * n - 2
        plan, decision, ((key, _, _),) = self._batch(n, first)
        # Longer texts first, since the numbers are parts of some of them.
        fields = {
            decision.objects[0].content: "content",
            decision.plan_sha256: "plan",
            f"{first:010d}": "padded",
            str(first): "first",
            str(first + 1): "last",
            str(first + 2): "end",
            str(n): "n",
        }
        self._plan, self._manifest = _Template(plan, fields), _Template(decision, fields)
        self._key = _with_names(key, fields)
        sha256 = checksum_of(decision)
        one = indexed_batch(plan, decision.plan_sha256, decision, sha256, same_layout_as=n)
        index = LogIndex(topic=self._topic, first=n, batches=(one,))
        entry = canonical(json.loads(encode(index, {}))["batches"][0]).decode().removesuffix("\n")
        self._index = _Template(index, {entry: "batches", str(n): "first_batch"})
        self._entry = _with_names(entry, {f'"same_layout_as":{n}': "like", sha256: "manifest", **fields})

    def batch(self, n: int) -> _Batch:
        """A batch of the history: its plan, its decision, and its objects as (key, body, metadata)."""
        return self._batch(n, self.first_offset(n))

    def _batch(self, n: int, first: int) -> _Batch:
        claim, times = Offsets({0: [(first, first + 2)]}), (1000 * n, 1000 * n + 1)
        return batch_of(n, claim, topic=self._topic, topic_id=self.topic_id, layout=self._layout, times=times)

    def first_offset(self, n: int) -> int:
        """The first of the two offsets of a batch."""
        return 2 * ((n - 1) * self._step % self.batches)

    def _of_offset(self, offset: int) -> int:
        return offset // 2 * pow(self._step, -1, self.batches) % self.batches + 1 if offset < 2 * self.batches else 0

    def _values(self, n: int) -> dict[str, object]:
        first = self.first_offset(n)
        content = ContentHash(self.topic_id, 0)
        content.update((first, first + 1))
        return {
            "n": n,
            "first": first,
            "last": first + 1,
            "end": first + 2,
            "padded": f"{first:010d}",
            "content": content.hexdigest(),
        }

    # -- what is at a key ---------------------------------------------------------------------------------------------

    def _made(self, key: str) -> tuple[bytes, dict[str, str]] | None:
        """The body and the metadata of what the history has at a key."""
        if key.startswith(self._batches):
            name = re.fullmatch(r"(\d{10})\.(plan|manifest)\.json", key.removeprefix(self._batches))
            return None if name is None or not self._has(int(name[1])) else (self._document(int(name[1]), name[2]), {})
        if key.startswith(self._indexes):
            name = re.fullmatch(r"(\d{10})-(\d{10})\.json", key.removeprefix(self._indexes))
            numbers = range(int(name[1]), int(name[2]) + 1) if name is not None else range(0)
            is_one = len(numbers) in self._sizes and numbers[0] % len(numbers) == 1 and self._has(numbers[-1])
            return (self._index_of(numbers), {}) if is_one else None
        name = re.search(r"\+(\d{10})\.bin$", key) if key.startswith(self._data) else None
        batch = self._of_offset(int(name[1])) if name is not None else 0
        if not self._has(batch) or key != self._key % self._values(batch):
            return None
        return (RECORD + b"\n") * 2, {BATCH_METADATA: str(batch), NONCE_METADATA: f"{batch}-0"}

    def _has(self, batch: int) -> bool:
        return 1 <= batch <= self.batches

    def _document(self, n: int, kind: str) -> bytes:
        values = self._values(n)
        text, values["plan"] = self._plan.make(values)
        return (text if kind == "plan" else self._manifest.make(values)[0]).encode()

    def _index_of(self, numbers: range) -> bytes:
        entries = []
        for n in numbers:
            values = {**self._values(n), "like": f'"same_layout_as":{numbers[0]}'}
            _, values["plan"] = self._plan.make(values)
            _, values["manifest"] = self._manifest.make(values)
            entries.append(self._entry % values)
        return self._index.make({"batches": ",".join(entries), "first_batch": numbers[0]})[0].encode()

    def _keys(self, prefix: str, after: str) -> Iterator[tuple[str, int]]:
        """The keys of the history below a prefix, and their sizes: of an index, about what it has."""
        digits = re.match(r"\d{1,10}", after.removeprefix(prefix))
        begin = max(1, int(digits[0].ljust(10, "0"))) if digits is not None else 1
        found = self._keys_of_batches(begin) if prefix == self._batches else self._keys_of_indexes(begin)
        return itertools.dropwhile(lambda one: one[0] <= after, found)

    def _keys_of_batches(self, begin: int) -> Iterator[tuple[str, int]]:
        for n in range(begin, self.batches + 1):
            yield f"{self._batches}{n:010d}.manifest.json", 1_000
            yield f"{self._batches}{n:010d}.plan.json", 1_000

    def _keys_of_indexes(self, begin: int) -> Iterator[tuple[str, int]]:
        each = len(self._entry % {**self._values(self.batches), "like": "", "plan": "0" * 64, "manifest": "0" * 64})
        smallest = self._sizes[0]
        for first in range((begin - 1) // smallest * smallest + 1, self.batches + 1, smallest):
            for size in self._sizes:
                if (first - 1) % size == 0 and first + size - 1 <= self.batches:
                    yield f"{self._indexes}{first:010d}-{first + size - 1:010d}.json", size * each

    # -- the port -----------------------------------------------------------------------------------------------------

    def _timed(self, make: Callable[[], T]) -> T:
        started = time.thread_time()
        try:
            return make()
        finally:
            with self._counting:
                self.seconds += time.thread_time() - started

    def get(self, key: str, *, start: int | None = None, end: int | None = None) -> StoredObject | None:
        """See the port."""
        stored = super().get(key, start=start, end=end)
        made = self._timed(lambda: self._made(key)) if stored is None else None
        if made is None:
            return stored
        return StoredObject(key, made[0][start:end], _ETAG, made[1])

    def head(self, key: str) -> ObjectInfo | None:
        """See the port."""
        made = self._timed(lambda: self._made(key))
        return super().head(key) if made is None else ObjectInfo(key, len(made[0]), _ETAG, made[1], 0.0)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """See the port; below the prefix of batches, or of indexes, nothing that was written is listed."""
        self.pages += 1
        if prefix not in (self._batches, self._indexes):
            yield from super().list(prefix, after=after)
            return
        for count, (key, size) in enumerate(self._keys(prefix, after), start=1):
            yield ObjectInfo(key, size, _ETAG)
            if count % _PAGE == 0:
                self.pages += 1

    def put_new(self, key: str, body: bytes, **more: Any) -> str:
        """See the port."""
        if self._made(key) is not None:
            raise PreconditionFailed(f"{key} exists")
        return super().put_new(key, body, **more)


class LongTopic(SimulatedKafka):
    """A topic of one partition whose records are not kept."""

    def __init__(self, topic: str, records: int) -> None:
        super().__init__()
        self.create_topic(topic)
        self.records = records

    def _end(self, topic: str, partition: int, isolation: Any) -> int:
        return self.records
