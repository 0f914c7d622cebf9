"""Spark's own reader and writer as a program for ``spark-submit``: values as lines of text with gzip.

This is what the documentation of Spark shows, and nothing else. The only argument is JSON.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Copy a topic between given offsets; as a stream, what is there when it starts."""
    from pyspark.sql import SparkSession

    config = json.loads(sys.argv[1])
    spark = SparkSession.builder.getOrCreate()
    source = {
        "kafka.bootstrap.servers": config["bootstrap_servers"],
        "kafka.isolation.level": "read_committed",
        "subscribe": config["topic"],
    }
    first, last = (json.dumps({config["topic"]: config[name]}) for name in ("first", "last"))
    value = "CAST(value AS STRING) AS value"
    if config["stream"]:
        frame = spark.readStream.format("kafka").options(**source, startingOffsets="earliest").load().selectExpr(value)
        writer = frame.writeStream.format("text").option("compression", "gzip").trigger(availableNow=True)
        writer.option("checkpointLocation", config["checkpoint"]).start(config["target"]).awaitTermination()
    else:
        source |= {"startingOffsets": first, "endingOffsets": last}
        frame = spark.read.format("kafka").options(**source).load().selectExpr(value)
        frame.write.option("compression", "gzip").text(config["target"])
    spark.stop()


if __name__ == "__main__":
    main()
