"""A configuration of Bento that lands a topic as gzip lines in S3, for the benchmark of peers and the crash of one."""

from __future__ import annotations

from typing import Any, Final

from tests.spark.pipeline import CREDENTIALS

BY_OFFSET: Final = "${! @kafka_topic }/partition=${! @kafka_partition }/${! @kafka_offset }.json.gz"
"""The name of an object by the Kafka partition and the first offset."""
BY_TIME: Final = '${! @kafka_topic }/${! count("files") }-${! timestamp_unix_nano() }.json.gz'
"""The name of an object as in the default of the output, with a folder and an extension."""


def bento_config(
    kafka: str, topic: str, endpoint: str, bucket: str, *, records: int, path: str, period: str = ""
) -> dict[str, Any]:
    """The configuration, as a document of JSON, which is YAML.

    The input makes the batches, one Kafka partition in each, so that the pipeline compresses as many at a time as there
    are cores; an output that makes them compresses one after another.

    Args:
        kafka: addresses of the brokers.
        topic: name.
        endpoint: of the store.
        bucket: of the objects.
        records: in an object.
        path: of an object.
        period: after which an object ends that is not full; empty: never.
    """
    return {
        "http": {"enabled": False},
        "logger": {"level": "WARN"},
        "input": {
            "kafka_franz": {
                "seed_brokers": [kafka],
                "topics": [topic],
                "consumer_group": bucket,
                "start_from_oldest": True,
                # By its default of 1,024 messages of a partition, no batch would be complete.
                "checkpoint_limit": 4 * records,
                "batching": {"count": records, "period": period},
            }
        },
        "pipeline": {
            "processors": [{"archive": {"format": "lines"}}, {"mapping": 'root = content() + "\\n"'}, _GZIP],
        },
        "output": {
            "aws_s3": {
                "bucket": bucket,
                "path": path,
                "endpoint": endpoint,
                "region": "us-east-1",
                "force_path_style_urls": True,
                "credentials": {"id": CREDENTIALS.access_key_id, "secret": CREDENTIALS.secret_access_key},
            }
        },
    }


_GZIP: Final = {"compress": {"algorithm": "gzip"}}
