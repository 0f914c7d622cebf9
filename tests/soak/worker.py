"""A process that lands one topic in run after run, until it is killed.

A run that fails with a transient error is repeated under its key, as by a scheduler.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import random
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from msgspec import structs

from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import JsonLines, Layout, Limits
from airflow_provider_kafka_s3.exceptions import TerminalError, TransientError
from airflow_provider_kafka_s3.kafka.source import KafkaSource
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from tests.kinds import KINDS, KindName, registry_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# Processes are forked from one that has imported this module, so modules that the package imports on first use are
# imported here.
for _name in (
    *("boto3", "botocore.client", "confluent_kafka", "confluent_kafka.admin", "pyarrow", "pyarrow.parquet"),
    "airflow_provider_kafka_s3.formats.registry",
):
    importlib.import_module(_name)

TOPICS_DIR = "topics"
PIPELINE = "soak"


def layout_of(kind: KindName) -> Layout:
    """The layout of a kind of topic; plain JSON lines are compressed."""
    layout = KINDS[kind].layout(TOPICS_DIR)
    return structs.replace(layout, format=JsonLines(compression="gzip")) if kind == "json" else layout


def client_of(config: dict[str, Any]) -> S3Client:
    """A client of the store."""
    settings = S3Settings(
        endpoint_url=config["endpoint"],
        region="us-east-1",
        addressing_style="path",
        connect_timeout=5.0,
        read_timeout=config["read_timeout"],
    )
    return make_client(settings, S3Credentials(access_key_id=config["login"], secret_access_key=config["secret"]))


def make_pipeline(config: dict[str, Any], store: DurableStore | None = None) -> TopicPipeline:
    """The topic, with a store and a source of this process."""
    if store is None:
        retrier = Retrier(RetryPolicy(base=0.05, cap=1.0, throttle_base=0.1, throttle_deadline=20.0))
        store = DurableStore(S3Store(client_of(config), config["bucket"]), retrier)
    source = KafkaSource({"bootstrap.servers": config["bootstrap_servers"]})
    return TopicPipeline(
        store, source, topics_dir=TOPICS_DIR, pipeline=PIPELINE, topic=config["topic"], registry=registry_of()
    )


def land(pipeline: TopicPipeline, layout: Layout, run: str, window: tuple[int, int] | None = None) -> TopicResult:
    """One attempt of a run over a window, or from the stored offsets on."""
    return pipeline.land(
        RunRequest(
            run=run,
            offsets="incremental" if window is None else "data_interval",
            window=window,
            layout=layout,
            starting="earliest",
            limits=Limits(records_per_slice=400),
            adopt_wait=0.5,
        )
    )


def work(config: dict[str, Any], events: Connection) -> None:
    """Land until killed, or until an error that calls for a person; ``events`` gets start and outcome of each run."""
    logging.disable(logging.WARNING)  # Almost every request here logs a warning.
    rng, parent, number = random.Random(config["seed"]), multiprocessing.parent_process(), int(config["first_run"])
    assert parent is not None
    store, layout = make_pipeline(config).log.store, layout_of(config["kind"])
    while parent.is_alive():
        events.send(("started", number))
        try:
            # The log caches what it has read, so each run gets a new one.
            # Every third run has a window: the last seconds.
            now = int(time.time() * 1000)
            window = (now - 3_000, now - 1_000) if number % 3 == 0 else None
            result = land(make_pipeline(config, store), layout, f"{config['name']}-{number}", window)
        except TransientError as e:
            events.send(("failed", type(e).__name__))
        except TerminalError as e:
            events.send(("terminal", f"{type(e).__name__}: {e}"))
            return
        else:
            events.send(("landed", result.status))
            number += 1
        # Between two runs, or until the parent has ended.
        parent.join(rng.uniform(0.05, 0.4))
