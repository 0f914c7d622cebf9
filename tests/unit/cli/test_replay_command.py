"""``kafka-s3 replay``: the options as what is asked of a replay."""

from __future__ import annotations

from typing import get_args

import pytest

from airflow_provider_kafka_s3.replay import run
from airflow_provider_kafka_s3.replay.request import Missing, ReplayRequest
from tests.unit.cli.conftest import JSON, World


@pytest.fixture
def requests(world: World, monkeypatch: pytest.MonkeyPatch) -> list[ReplayRequest]:
    """The replays that were asked for; nothing is sent."""
    found: list[ReplayRequest] = []

    def replay(place: object, config: object, request: ReplayRequest, **_: object) -> run.Replayed:
        found.append(request)
        return run.Replayed(request.replay, request.target, 1, {}, {})

    world.run("first", layout=JSON)
    monkeypatch.setattr(run, "replay", replay)
    return found


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ((), None),
        (("--key", "é/wA="), "é/wA=".encode()),
        (("--key", ""), b""),
        (("--key-base64", "/wA="), b"\xff\x00"),
        (("--key-base64", ""), b""),
    ],
)
def test_a_key_is_a_text_or_the_base64_of_any_bytes(
    world: World, requests: list[ReplayRequest], options: tuple[str, ...], key: bytes | None
) -> None:
    """Kafka's keys are bytes; `cat` prints those that are no text as base64."""
    output = world.on_topic("replay", "--to", "again", "--id", "a", *options)
    assert (output.code, [request.key for request in requests]) == (0, [key])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--key-base64", "wA="), "--key-base64 'wA=' is no base64"),
        (("--key-base64", "é"), "--key-base64 'é' is no base64"),
        (("--key", "a", "--key-base64", "YQ=="), "--key and --key-base64 are given; use one of them"),
    ],
)
def test_a_key_that_is_not_clear_is_refused(
    world: World, requests: list[ReplayRequest], options: tuple[str, ...], message: str
) -> None:
    """Before anything is read."""
    output = world.on_topic("replay", "--to", "again", "--id", "a", *options)
    assert (output.code, requests) == (2, [])
    assert message in output.error


def test_all_that_may_be_missing_can_be_accepted(world: World, requests: list[ReplayRequest]) -> None:
    """Each by its own ``--without``."""
    options = [option for name in get_args(Missing) for option in ("--without", name)]
    assert world.on_topic("replay", "--to", "again", "--id", "a", *options).code == 0
    assert requests[0].without == get_args(Missing)
