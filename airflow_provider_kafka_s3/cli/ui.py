"""The command ``kafka-s3 ui``."""

from __future__ import annotations

import argparse
import logging
from functools import partial
from typing import Final

from airflow_provider_kafka_s3.cli.access import Access
from airflow_provider_kafka_s3.cli.command import Command, add_topics_dir
from airflow_provider_kafka_s3.cli.output import Answer
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.storage.browser import browser_url
from airflow_provider_kafka_s3.ui.pages import Pages
from airflow_provider_kafka_s3.ui.places import Connected, Place, impatient_source
from airflow_provider_kafka_s3.ui.server import local_server

__all__ = ["COMMANDS", "ui"]

log = logging.getLogger(__name__)


def ui(access: Access) -> Answer:
    """Serve the pages on this machine until it is interrupted."""
    pages = Pages(lambda: [_place(access)])
    try:
        server = local_server(pages, access.arguments.port)
    except OSError as e:
        raise ConfigurationError(f"--port {access.arguments.port} cannot be used: {e.strerror}") from e
    # The address is needed now, and the answer of a command is printed at its end.
    log.warning("the page is at http://127.0.0.1:%d/ until this command is interrupted", server.server_port)
    with server:
        server.serve_forever()
    return Answer({}, [])


def _place(access: Access) -> Place:
    def connect() -> Connected:
        source = impatient_source(access.kafka_config, access.kafka_name) if access.has_kafka else None
        settings, _ = access.s3_access
        return Connected(access.store, source, access.options, partial(browser_url, settings, access.bucket))

    return Place(access.store.url(access.topics_dir), access.topics_dir, connect)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(topic=None, pipeline=None)
    add_topics_dir(parser)
    parser.add_argument("--port", type=int, default=8081, help="of 127.0.0.1; 0: a free one (default: %(default)s)")


COMMANDS: Final = (
    Command(
        name="ui",
        run=ui,
        summary="Show all pipelines in a browser of this machine.",
        examples=(
            "--bucket lake --bootstrap-server broker:9092",
            "--bucket lake --port 9000",
        ),
        topics=None,
        has_dry_run=False,
        add_options=_add_options,
    ),
)
