"""The pages over pipelines: what they show of well and troubled topics, as HTML and as JSON."""

from __future__ import annotations

import html.parser
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections import Counter
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import KafkaUnavailableError
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.stores import Fault, SimulatedCrash
from airflow_provider_kafka_s3.ui import model
from airflow_provider_kafka_s3.ui.pages import HEADERS, ROUTES, Response
from airflow_provider_kafka_s3.ui.server import local_server
from tests.unit.ui.conftest import Lake

DAY = 86_400_000


class Parsed(html.parser.HTMLParser):
    """Elements, links and text of a page; each element that has to be closed is."""

    VOID = ("meta", "link", "br")

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.links: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(response.body)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, dict(attrs)))
        if tag == "a":
            self.links.append(str(dict(attrs)["href"]))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Compare with the element that is open."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect text."""
        self.text += " ".join(data.split()) + " "


def rows(lake: Lake) -> dict[str, dict[str, Any]]:
    """The rows of the list by topic, in its order."""
    return {row["topic"]: row for row in json.loads(lake.get("api/topics").body)["topics"]}


def test_topics_are_sorted_by_trouble(lake: Lake) -> None:
    """A topic with deleted records is the first, then what is behind, then what is well."""
    for topic in ("a-well", "b-behind", "c-gone"):
        lake.land(topic, 2, run="r1")
    lake.append("b-behind", 5)
    lake.append("c-gone", 5)
    lake.kafka.delete_records("c-gone", 0, 4)
    states = {topic: row["state"] for topic, row in rows(lake).items()}
    assert [*states.items()] == [("c-gone", "needs a person"), ("b-behind", "behind"), ("a-well", "well")]
    assert "2 offsets" in rows(lake)["c-gone"]["reason"]


def test_what_is_wrong_comes_with_the_command_that_helps(lake: Lake) -> None:
    """The same text as the command line prints, with the options of the connections."""
    lake.land("orders", 2, run="r1")
    lake.kafka.create_topic("orders")
    row = rows(lake)["orders"]
    assert row["remedy"] == lake.topic("orders").log.remedies.reset().strip("`")
    page = Parsed(lake.get("topic/0/shop/orders"))
    assert row["remedy"] in page.text
    assert "created again" in page.text


def test_a_cluster_that_is_down_leaves_all_that_the_bucket_has(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up once, not once for each topic."""
    for topic in ("orders", "refunds"):
        lake.land(topic, 3, run="r1")
    looked_up: list[str] = []

    def fail(topic: str) -> None:
        looked_up.append(topic)
        raise KafkaUnavailableError("no broker answers")

    monkeypatch.setattr(lake.kafka, "describe", fail)
    first = rows(lake)
    assert {(row["state"], row["lag"], row["records"]) for row in first.values()} == {("well", None, 3)}
    asked = len(looked_up)
    lake.now -= 80
    assert rows(lake).keys() == first.keys()
    assert len(looked_up) == asked <= 2


def test_a_topic_that_cannot_be_read_hides_no_other_one(lake: Lake) -> None:
    """Its row has the error."""
    for topic in ("orders", "refunds"):
        lake.land(topic, 1, run="r1")
    for name in ("shop/refunds/marker.json", "_summaries/shop/refunds.json"):
        lake.bucket.delete(f"topics/_kafka_s3/{name}")
        lake.bucket.put_new(f"topics/_kafka_s3/{name}", b"{")
    assert {topic: row["state"] for topic, row in rows(lake).items()} == {"refunds": "unknown", "orders": "well"}
    assert "marker" in rows(lake)["refunds"]["reason"]
    assert lake.get("topic/0/shop/refunds").status == 200


def test_a_list_of_topics_that_are_well_takes_two_listings(lake: Lake) -> None:
    """The first one reads the summary of each topic, and later ones only what has changed: that of one topic."""
    for number in range(50):
        lake.land(f"topic-{number}", 1, run="r1", at=DAY)
    lake.requests.requests.clear()
    assert {row["state"] for row in rows(lake).values()} == {"well"}
    assert Counter(request.operation for request in lake.requests.requests) == {"list": 2, "get": 50}
    lake.land("topic-7", 3, run="r2", at=DAY)
    lake.requests.requests.clear()
    assert rows(lake)["topic-7"]["batches"] == 2
    sent = [(request.operation, request.key) for request in lake.requests.requests]
    assert sent == [
        ("list", "topics/_kafka_s3/_summaries/"),
        ("list", "topics/_kafka_s3/_owners/"),
        ("get", "topics/_kafka_s3/_summaries/shop/topic-7.json"),
    ]


def test_a_topic_that_was_released_is_in_the_list_only_with_the_pipeline_that_has_taken_it(lake: Lake) -> None:
    """The summary that the first pipeline has left is not taken for that of the owner."""
    lake.requests.inject(Fault.CRASH_AFTER, operation="put_new", key="*.plan.json")
    with pytest.raises(SimulatedCrash):
        lake.land("orders", 1, run="r1", pipeline="shpo")
    misspelt = lake.topic("orders", "shpo")
    misspelt.abandon(1, release="debt", reason="misspelt", operator="me")
    assert lake.bucket.head("topics/_kafka_s3/_summaries/shpo/orders.json") is not None
    misspelt.release(reason="misspelt", operator="me")
    assert rows(lake) == {}
    lake.land("orders", 1, run="r2")
    assert [(row["pipeline"], row["state"]) for row in rows(lake).values()] == [("shop", "well")]


def test_the_list_has_the_records_of_the_last_day(lake: Lake) -> None:
    """Those of batches whose newest record is of the last 24 hours; the newest record is that of all batches."""
    for day in (1, 2, 3):
        lake.land("orders", day, run=f"r{day}", at=day * DAY + DAY // 2)
    lake.time = (3 * DAY + DAY // 2) / 1000
    row = rows(lake)["orders"]
    assert (row["records"], row["size"], row["newest"]) == (3, 6, "1970-01-04T12:00:00Z")


def test_a_topic_without_a_summary_is_read_from_its_log(lake: Lake) -> None:
    """As after an upgrade, until its next run; and a damaged one hides nothing."""
    for topic in ("orders", "refunds"):
        lake.land(topic, 2, run="r1")
        lake.bucket.delete(f"topics/_kafka_s3/_summaries/shop/{topic}.json")
    lake.bucket.put_new("topics/_kafka_s3/_summaries/shop/refunds.json", b"{")
    assert {topic: (row["state"], row["batches"]) for topic, row in rows(lake).items()} == {
        "orders": ("well", 1),
        "refunds": ("well", 1),
    }


def test_an_owner_that_cannot_be_read_hides_no_other_topic(lake: Lake) -> None:
    """Its error is a row; and a summary that may not be read is replaced by the log."""
    for topic in ("orders", "refunds"):
        lake.land(topic, 2, run="r1")
    lake.bucket.put_new("topics/_kafka_s3/_owners/broken.json", b"{")
    lake.requests.inject(Fault.SERVER_ERROR, operation="get", key="*/_summaries/shop/refunds.json", times=10)
    states = {topic: (row["state"], row["batches"]) for topic, row in rows(lake).items()}
    assert states == {"": ("unknown", 0), "orders": ("well", 1), "refunds": ("well", 1)}
    assert "broken.json" in rows(lake)[""]["reason"]


def test_an_open_batch_of_a_topic_with_trouble_is_in_the_list(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A summary does not have it; the logs of topics with trouble are read, up to a limit."""
    lake.land("orders", 2, run="r1")
    lake.append("orders", 50)
    lake.plan("orders", run="r2")
    assert "1 batch open" in rows(lake)["orders"]["reason"]
    monkeypatch.setattr(model, "_IN_FULL", 0)
    assert rows(lake)["orders"]["reason"] == "50 offsets wait, more than the last batches had"


def test_the_page_of_a_topic_has_its_partitions_days_and_batches(lake: Lake) -> None:
    """Numbers are those of the log; an empty day between two full ones stands out."""
    for n, day in enumerate((0, 2)):
        lake.land("orders", 10 * (n + 1), run=f"r{n}", at=day * DAY)
    view = json.loads(lake.get("api/topic/0/shop/orders").body)
    assert view["days"] == [["1970-01-01", 10, 20], ["1970-01-02", 0, 0], ["1970-01-03", 20, 40]]
    assert (view["activity"]["records"], view["activity"]["batches"]) == (30, 2)
    page = Parsed(lake.get("topic/0/shop/orders"))
    squares = [
        attributes["class"] for tag, attributes in page.elements if tag == "rect" and attributes["height"] == "10"
    ]
    assert squares[1] == "empty"
    assert squares.count("empty") == 1
    assert "../../../batch/0/shop/orders/2" in page.links


def test_the_page_of_a_batch_has_its_objects_and_who_planned_it(lake: Lake) -> None:
    """Keys, offsets and bytes, as the manifest has them."""
    lake.land("orders", 3, run="r1")
    page = Parsed(lake.get("batch/0/shop/orders/1"))
    manifest = lake.topic("orders").log.read_manifest(1)
    assert manifest is not None
    assert manifest.objects[0].key in page.text
    assert manifest.objects[0].crc32 in page.text
    assert json.loads(lake.get("api/batch/0/shop/orders/1").body)["plan"]["run"] == "r1"


def test_every_link_leads_to_a_page(lake: Lake) -> None:
    """Relative links, from every page that is reached."""
    lake.land("orders", 1, run="r1")
    lake.land("a.b_c-d", 1, run="r1", pipeline="other")
    seen, todo = set(), [""]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        response = lake.get(path)
        assert response.status == 200, path
        base = f"http://host/any/prefix/{path}"
        todo += [
            urllib.parse.urljoin(base, link).removeprefix("http://host/any/prefix/") for link in Parsed(response).links
        ]
    assert seen == {
        "",
        "topic/0/shop/orders",
        "topic/0/other/a.b_c-d",
        "batch/0/shop/orders/1",
        "batch/0/other/a.b_c-d/1",
    }


HOSTILE = "\"><script>alert(1)</script>'&{{7*7}}"


def test_hostile_texts_are_shown_as_they_are(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of runs, DAGs and reasons come from others."""
    lake.land("orders", 1, run="r1" + HOSTILE)
    for path in ("", "topic/0/shop/orders", "batch/0/shop/orders/1", f"dag/{urllib.parse.quote(HOSTILE, safe='')}"):
        page = Parsed(lake.get(path))
        assert not {"script", "img", "iframe"} & {tag for tag, _ in page.elements}
        assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert HOSTILE in Parsed(lake.get("batch/0/shop/orders/1")).text


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "topic/0/shop",
        "topic/1/shop/orders",
        "topic/x/shop/orders",
        "topic/0/shop/../../secrets",
        "topic/0/..%2F..%2Fx/orders",
        "batch/0/shop/orders/99",
        "batch/0/shop/orders/-1",
        "batch/0/shop/orders/99999999999999999999",
        "api/batch/0/shop/orders/7",
        "style.css/..",
        "templates/base.html",
    ],
)
def test_paths_that_lead_nowhere_are_errors_and_read_nothing_else(lake: Lake, path: str) -> None:
    """404, as a page or as JSON."""
    lake.land("orders", 1, run="r1")
    response = lake.get(path)
    assert response.status == 404, response.body
    if path.startswith("api"):
        assert "error" in json.loads(response.body)
    else:
        Parsed(response)


def test_pages_write_nothing(lake: Lake) -> None:
    """Whatever is looked at."""
    lake.land("orders", 1, run="r1")
    before = snapshot(lake.bucket)
    for route in ROUTES:
        lake.get(route.format(place=0, pipeline="shop", topic="orders", batch=1, dag="d"))
    check_unchanged(before, snapshot(lake.bucket))


def test_a_reload_within_seconds_reads_the_list_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if many people reload at once."""
    lake.land("orders", 1, run="r1")
    read: list[str] = []
    get = lake.bucket.get
    monkeypatch.setattr(lake.bucket, "get", lambda key, **ranges: read.append(key) or get(key, **ranges))
    lake.get()
    once = len(read)
    threads = [threading.Thread(target=lake.pages.respond, args=("",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read) == once > 0


def test_charts_are_well_formed_and_have_words(lake: Lake) -> None:
    """For who does not see colours or shapes."""
    for day in (1, 2):
        lake.land("orders", 3, run=f"r{day}", at=day * DAY)
    body = lake.get("topic/0/shop/orders").body
    drawings = [part.split("</svg>")[0] + "</svg>" for part in body.split("<svg")[1:]]
    assert len(drawings) == 3
    for drawing in drawings:
        root = ET.fromstring("<svg" + drawing)
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert all(shape.find("title") is not None for shape in root)


def test_the_openapi_document_has_every_route_of_the_api(lake: Lake) -> None:
    """Each with its parameters."""
    document = json.loads(lake.get("api/openapi.json").body)
    assert {path.removeprefix("/") for path in document["paths"]} == {
        route for route in ROUTES if route.startswith("api/")
    }


def test_metrics_are_those_of_the_command(lake: Lake) -> None:
    """For a Prometheus that may see the page."""
    lake.land("orders", 3, run="r1")
    assert 'kafka_s3_records_total{pipeline="shop",topic="orders"} 3' in lake.get("metrics").body.splitlines()


def test_the_server_of_a_machine_answers_this_machine_alone(lake: Lake) -> None:
    """A name of another site that leads here is refused; every response has the headers that keep scripts out."""
    lake.land("orders", 1, run="r1")
    with local_server(lake.pages, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/"
            with urllib.request.urlopen(address) as response:
                assert "orders" in response.read().decode()
                assert {name: response.headers[name] for name in HEADERS} == HEADERS
            request = urllib.request.Request(address, headers={"Host": "evil.example.com"})
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(request)
        finally:
            server.shutdown()
            thread.join()
