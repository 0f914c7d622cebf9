"""A consumer as people write it by hand: librdkafka's batches, gzip, one request per object, offsets in a group.

It ends at the offsets that the topic had when it began. The only argument is JSON.
"""

from __future__ import annotations

import gzip
import json
import sys
from typing import Final

RECORDS_PER_OBJECT: Final = 100_000
BATCH: Final = 10_000


def main() -> None:
    """Copy a topic: an object for each 100,000 records of a partition, and for the rest."""
    import boto3
    from botocore.config import Config
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    config = json.loads(sys.argv[1])
    topic = config["topic"]
    s3 = boto3.client("s3", **config["s3"], config=Config(s3={"addressing_style": "path"}))
    consumer = Consumer(
        {
            "bootstrap.servers": config["bootstrap_servers"],
            "group.id": config["bucket"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = consumer.list_topics(topic).topics[topic].partitions
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p))[1] for p in partitions}
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    buffers: dict[int, list[bytes]] = {p: [] for p in partitions}
    following = dict.fromkeys(partitions, 0)

    def flush(partition: int) -> None:
        lines, end = buffers[partition], following[partition]
        key = f"{topic}/partition={partition}/{end - len(lines):012d}.json.gz"
        body = gzip.compress(b"\n".join(lines) + b"\n", compresslevel=6)
        s3.put_object(Bucket=config["bucket"], Key=key, Body=body)
        consumer.commit(offsets=[TopicPartition(topic, partition, end)], asynchronous=False)
        lines.clear()

    while any(following[p] < end for p, end in ends.items()):
        for message in consumer.consume(BATCH, timeout=0.1):
            if error := message.error():
                raise KafkaException(error)
            partition, offset = message.partition(), message.offset()
            if offset >= ends[partition]:
                continue
            buffers[partition].append(message.value())
            following[partition] = offset + 1
            if len(buffers[partition]) == RECORDS_PER_OBJECT:
                flush(partition)
    for partition, lines in buffers.items():
        if lines:
            flush(partition)
    consumer.close()


if __name__ == "__main__":
    main()
