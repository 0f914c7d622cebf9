"""Every request of the protocol with every fault: records land once, and every fault has its own error.

A case lands two runs of one topic. One request of the first run meets the fault once: the run succeeds. In the second
run all requests of that kind meet it: the run succeeds by reading back, or fails with the error that fits, and succeeds
when it is tried again without faults. Then the bucket is compared with Kafka, record by record.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, ThrottledError, TransientError, UnknownOutcomeError
from dev.faults import (
    Answer,
    Call,
    Delay,
    Fault,
    Flip,
    Hang,
    Lose,
    Reset,
    ResetInBody,
    Truncate,
    Twice,
)
from tests.faults.conftest import Site
from tests.faults.process import LARGE, SMALL, Size, Topic
from tests.kinds import KINDS, KindName

REFUSALS: Final = {
    "503": Answer(503, "SlowDown"),
    "429": Answer(429, "TooManyRequests"),
    "500": Answer(500, "InternalError"),
    "409": Answer(409, "ConditionalRequestConflict"),
    "expired": Answer(403, "ExpiredToken"),
    "reset": Reset(),
    "reset in body": ResetInBody(),
}
LOSSES: Final = {
    "lost by RST": Lose("RST"),
    "lost by FIN": Lose("FIN"),
    "500 though applied": Answer(500, "InternalError", applied=True),
    "hang": Hang(),
    "cut off": Truncate(),
    "late": Delay(),
    "twice": Twice(),
}
ODD_COMPLETES: Final = {
    "200 with an error": Answer(200, "InternalError"),
    "200 with an error, though applied": Answer(200, "InternalError", applied=True),
    "404 though applied": Answer(404, "NoSuchUpload", applied=True),
}
READS: Final = {
    "503": REFUSALS["503"],
    "429": REFUSALS["429"],
    "500": REFUSALS["500"],
    "expired": REFUSALS["expired"],
    "reset": REFUSALS["reset"],
    "lost by RST": LOSSES["lost by RST"],
    "lost by FIN": LOSSES["lost by FIN"],
    "hang": LOSSES["hang"],
    "cut off": LOSSES["cut off"],
    "late": LOSSES["late"],
}


@dataclass(frozen=True)
class Request:
    """A kind of request of the protocol.

    Attributes:
        operation: S3's name.
        key: pattern of the key below ``topics_dir``.
        condition: that it bears.
        first_run_only: it is part of making the marker.
    """

    operation: str
    key: str
    condition: str | None = None
    first_run_only: bool = False

    def pattern(self, topic: Topic) -> str:
        """Pattern of its keys."""
        return f"{topic.topics_dir}/{self.key}"

    def faults(self) -> dict[str, Fault]:
        """All its faults, by name."""
        if self.operation == "HeadObject":
            # The answer to HEAD has no body, so neither a code nor bytes; AWS answers 400 for expired credentials.
            return {**READS, "expired": Answer(400, "ExpiredToken")}
        if self.operation == "GetObject":
            return {**READS, "flipped": Flip()}
        found: dict[str, Fault] = {**REFUSALS, **LOSSES}
        return {**found, **ODD_COMPLETES} if self.operation == "CompleteMultipartUpload" else found


CONTROL: Final = {
    "GET run": Request("GetObject", "_kafka_s3/*/runs/*"),
    "PUT run": Request("PutObject", "_kafka_s3/*/runs/*"),
    "GET marker": Request("GetObject", "_kafka_s3/*/marker.json"),
    "PUT owner": Request("PutObject", "_kafka_s3/_owners/*", "if-none-match", first_run_only=True),
    "probe If-Match": Request("PutObject", "_kafka_s3/_owners/*", "if-match", first_run_only=True),
    "PUT marker": Request("PutObject", "_kafka_s3/*/marker.json", "if-none-match", first_run_only=True),
    "swap marker": Request("PutObject", "_kafka_s3/*/marker.json", "if-match"),
    "GET plan": Request("GetObject", "_kafka_s3/*.plan.json"),
    "PUT plan": Request("PutObject", "_kafka_s3/*.plan.json"),
    "GET manifest": Request("GetObject", "_kafka_s3/*.manifest.json"),
    "PUT manifest": Request("PutObject", "_kafka_s3/*.manifest.json"),
}
DATA: Final = {
    "Create": Request("CreateMultipartUpload", "events/*"),
    "UploadPart": Request("UploadPart", "events/*"),
    "Complete": Request("CompleteMultipartUpload", "events/*"),
    "HEAD": Request("HeadObject", "events/*"),
}
BESIDE: Final = {
    f"{label} of {name}": Request(request.operation, key)
    for name, key in (("keys", "events/partition=*.keys.*"), ("null values", "events/tombstone/*"))
    for label, request in DATA.items()
}
DEAD: Final = {
    f"{label} of dead letters": Request(request.operation, "events/_dead_letters/*") for label, request in DATA.items()
}
SCHEMAS: Final = {
    "GET schema": Request("GetObject", "_kafka_s3/*/schemas/*"),
    "PUT schema": Request("PutObject", "_kafka_s3/*/schemas/*", "if-none-match"),
}
INDICES: Final = {
    f"{label} of index": Request(request.operation, "events/partition=*.index.json") for label, request in DATA.items()
}
ONLY_OF: Final[dict[str, dict[str, Request]]] = {
    "siblings": BESIDE,
    "blocks": INDICES,
    "dead letters": DEAD,
    "registry": SCHEMAS,
}
"""The requests that only one kind of topic needs."""

SERVERS_DIFFER: Final = {
    label: {**CONTROL, **DATA}[label] for label in ("PUT plan", "swap marker", "Create", "UploadPart", "Complete")
}
CLIENTS_DIFFER: Final = {
    label: {**CONTROL, **DATA}[label] for label in ("GET marker", "PUT manifest", "Complete", "UploadPart")
}
BROKEN_CONNECTIONS: Final = ("reset", "reset in body", "lost by RST", "lost by FIN", "cut off", "hang")


def cases(
    site: str, requests: dict[str, Request], kind: KindName, size: Size = SMALL, only: Collection[str] = ()
) -> Iterator[object]:
    """Every fault, or only some, for each of the requests."""
    for label, request in requests.items():
        for name, fault in request.faults().items():
            if not only or name in only:
                yield pytest.param(site, request, name, fault, kind, size, id=f"{label}, {name}, {size} {kind}, {site}")


def expected(request: Request, name: str, fault: Fault) -> set[type[KafkaS3Error] | None]:
    """The error of a run whose every such request has the fault; None: it succeeds by reading back."""
    if name in ("late", "twice"):
        return {None}
    if name in ("503", "429"):
        return {ThrottledError}
    if name == "expired":
        return {TransientError}
    if name == "flipped":
        # In an answer about an absent object some bytes matter, and others do not.
        return {TransientError, UnknownOutcomeError, None}
    if name == "409":
        uploads = request.operation in ("CreateMultipartUpload", "UploadPart")
        return {TransientError if uploads else UnknownOutcomeError}
    applied = isinstance(fault, Lose | Hang | Truncate) or (isinstance(fault, Answer) and fault.applied)
    if request.operation not in ("PutObject", "CompleteMultipartUpload") or not applied:
        return {UnknownOutcomeError}
    # The probe has to see a refusal; the beginning of the answer is enough.
    probes = request.key.startswith("_kafka_s3/_owners")
    return {UnknownOutcomeError} if probes and name != "cut off" else {None}


UNANSWERED: Final = (*LOSSES, *ODD_COMPLETES)
"""Faults of writes that may have been applied."""

SELECTED: Final = (
    *cases("versitygw-http", CONTROL | DATA, "bytes", only=[*UNANSWERED, "flipped"]),
    *itertools.islice(cases("versitygw-http", CONTROL | DATA, "bytes", only=REFUSALS), 0, None, 2),
    *cases("versitygw-http", DATA, "json", LARGE, only=[*UNANSWERED, "503"]),
    *cases("versitygw-http", {"Complete": DATA["Complete"]}, "avro", LARGE, only=UNANSWERED),
    *cases("versitygw-http", {"Complete": DATA["Complete"]}, "parquet", LARGE, only=["lost by RST"]),
    *cases("versitygw-http", {"Complete": DATA["Complete"]}, "csv", LARGE, only=["lost by RST"]),
    *cases("versitygw-http", {"Complete": DATA["Complete"]}, "envelope", LARGE, only=["lost by RST"]),
    *cases("versitygw-http", {label: BESIDE[label] for label in ("Complete of keys",)}, "siblings", only=UNANSWERED),
    *cases("versitygw-http", BESIDE, "siblings", LARGE, only=["lost by FIN"]),
    *cases("versitygw-http", {"Complete of index": INDICES["Complete of index"]}, "blocks", only=UNANSWERED),
    *cases("versitygw-http", DEAD, "dead letters", only=["lost by RST"]),
    *cases("versitygw-http", SCHEMAS, "registry", only=[*LOSSES, "503", "409", "flipped"]),
    *cases("moto-http", SERVERS_DIFFER, "json", only=["lost by RST", "cut off", "twice", *ODD_COMPLETES, "409"]),
    *cases("moto-http", {"GET marker": CONTROL["GET marker"]}, "bytes", only=["flipped"]),
    *cases("versitygw-https", CLIENTS_DIFFER, "json", only=BROKEN_CONNECTIONS),
)
"""Every request of small objects with every fault after which it may have been applied, and with every second refusal;
and what depends on the server, the connection, the size or the kind of objects, for the requests and faults of which it
does."""

ALONE: Final = tuple(kind for kind in KINDS if kind != "together")
SITES: Final = ("versitygw-http", "versitygw-https", "moto-http", "moto-https")
EVERYTHING: Final = (
    *(case for site, size in itertools.product(SITES, (SMALL, LARGE)) for case in cases(site, CONTROL, "bytes", size)),
    *(case for kind in ALONE if kind != "bytes" for case in cases("versitygw-http", CONTROL, kind)),
    *(
        case
        for site, kind, size in itertools.product(SITES, ALONE, (SMALL, LARGE))
        for case in cases(site, DATA | ONLY_OF.get(kind, {}), kind, size)
    ),
)
"""All combinations, for `make faults`; the requests for control documents are the same for all kinds of objects."""


@pytest.mark.parametrize(
    ("site", "kind_of_request", "name", "fault", "kind", "size"),
    EVERYTHING if "EVERY_FAULT" in os.environ else SELECTED,
    indirect=["site"],
)
def test_a_fault_neither_loses_nor_doubles_a_record_and_has_its_own_error(
    site: Site,
    kind_of_request: Request,
    name: str,
    fault: Fault,
    kind: KindName,
    size: Size,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, and for a whole run."""
    topic = Topic(kind, size)
    allowed = once(site, topic, kind_of_request, fault)
    # A run without any answer only takes long.
    if name != "hang":
        if kind_of_request.first_run_only:
            topic, allowed = Topic(kind, size), set()
        for_a_whole_run(site, topic, kind_of_request, fault, expected(kind_of_request, name, fault), allowed)
    site.observer(topic).check()
    assert_no_false_cause(caplog)


def once(site: Site, topic: Topic, request: Request, fault: Fault) -> set[str]:
    """The first run, one of whose requests has the fault; returns the uploads that may stay pending."""
    topic.records_arrive()
    pattern = request.pattern(topic)
    rule = site.proxy.add(fault, operation=request.operation, key=pattern, condition=request.condition)

    hasty = isinstance(fault, Hang)
    assert site.process(topic, hasty=hasty).run("first").status == "ok"

    assert rule.struck == 1
    site.proxy.wait_until_idle()
    allowed = orphans(site.proxy.calls, hasty=hasty)
    assert site.observer(topic).pending() <= allowed
    site.proxy.clear()
    return allowed


def for_a_whole_run(
    site: Site,
    topic: Topic,
    request: Request,
    fault: Fault,
    outcomes: Collection[type[KafkaS3Error] | None],
    allowed: set[str],
) -> None:
    """The second run, all of whose requests of the kind have the fault, and then the same run without faults."""
    topic.records_arrive()
    pattern = request.pattern(topic)
    rule = site.proxy.add(fault, operation=request.operation, key=pattern, condition=request.condition, times=None)

    outcome: type[KafkaS3Error] | None = None
    try:
        assert site.process(topic).run("second").status == "ok"
    except KafkaS3Error as e:
        outcome = type(e)

    assert outcome in outcomes
    assert rule.struck
    allowed = allowed | orphans(site.proxy.calls)
    if outcome and any(
        call.operation == "PutObject" and call.key.endswith(".manifest.json") for call in site.proxy.calls
    ):
        # Until a decision was read, one that lists these uploads may still arrive, so they must not be aborted.
        allowed |= site.observer(topic).pending()
    assert site.observer(topic).pending() <= allowed
    site.proxy.clear()
    assert site.process(topic).run("second").status == "ok"
    assert site.observer(topic).pending() <= allowed


def orphans(calls: list[Call], *, hasty: bool = False) -> set[str]:
    """Uploads whose id no client has: the answer to Create was lost, or the request was sent twice.

    A hasty client may also have given up a request that was only slow: then it has sent another one.
    """
    last = {call.key: call.number for call in calls if call.created}
    given_up = {call.number for call in calls if hasty and call.number < last.get(call.key, 0)}
    return {
        id_
        for call in calls
        for id_ in (call.created[:-1] if call.answered and call.number not in given_up else call.created)
    }


def assert_no_false_cause(caplog: pytest.LogCaptureFixture) -> None:
    """No error names a cause that did not occur: a foreign object, a damaged log, a lost upload."""
    for record in caplog.records:
        if record.name.startswith("airflow_provider_kafka_s3"):
            text = record.getMessage()
            assert record.levelno <= logging.WARNING, text
            assert not any(word in text for word in ("did not write", "cannot be trusted", "lost its upload")), text
