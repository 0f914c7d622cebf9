"""The error for a process of Spark whose memory ran out, from an output or an exception."""

from __future__ import annotations

import re
from typing import Final

from airflow_provider_kafka_s3.exceptions import SparkJobError

__all__ = ["about_memory", "ends_with_the_jvm"]

_OUT_OF_MEMORY: Final = "52"
"""Exit code of a JVM of Spark whose memory ran out."""

_CODE: Final = r"(?:exit(?:ed with)?(?: exit)?|error) (?:code|status)(?: is)?:? {}\b"
_JAVA: Final = re.compile(
    r"OutOfMemoryError: (?:Java heap space|GC overhead limit exceeded|Direct buffer memory|Cannot reserve [^\n.]{1,99})"
    r"|SparkOutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY"
)
_JAVA_ENDED: Final = re.compile(_CODE.format(_OUT_OF_MEMORY), re.IGNORECASE)
_PYTHON: Final = re.compile(r"^(?:[a-z]\w*\.)*(?:Arrow)?MemoryError\b.{0,200}", re.MULTILINE)
_CONTAINER: Final = re.compile(
    r"OOMKilled|exceeding (?:physical )?memory limits|beyond (?:the )?'?physical'? memory|" + _CODE.format("137"),
    re.IGNORECASE,
)
_CRASHED: Final = "Python worker exited unexpectedly"
_STOPPED: Final = re.compile(
    r"SparkContext was shut down|stopped SparkContext|Answer from Java side is empty|Py4JNetworkError|"
    r"Error while sending or receiving|trying to connect to the Java server"
)

_HEAP: Final = (
    "With a local master raise driver_memory of the operator (1g by default), on a cluster executor_memory; both also "
    "suffice for larger records if fewer tasks run at a time (local[1], executor_cores=1). A Spark Connect server has "
    "to be started with more"
)
_OF_PYTHON: Final = (
    "On a cluster raise conf={'spark.executor.memoryOverhead': '2g'} (and spark.executor.pyspark.memory, if it is "
    "set); with a local master give the Airflow worker more memory, or take fewer cores (local[1]). Or let a task need "
    "less: memory of upload, max_open_objects of rotation, row_group_bytes of Parquet"
)


def about_memory(text: str) -> SparkJobError | None:
    """The error for a text that shows that the memory of a process ran out; None if it shows nothing of the kind.

    A worker of Python that the system kills for its memory leaves no reason: it has crashed.
    """
    if (java := _JAVA.search(text) or _JAVA_ENDED.search(text)) is not None:
        return SparkJobError(f"the memory of a JVM of Spark ran out ({java[0]}): it holds the largest records. {_HEAP}")
    if (python := _PYTHON.search(text)) is not None:
        return SparkJobError(f"the memory of a Python worker of Spark ran out ({python[0].strip()}). {_OF_PYTHON}")
    if _CONTAINER.search(text):
        return SparkJobError(
            f"an executor was killed: its JVM and Python workers took more memory than its container has. {_OF_PYTHON}"
        )
    if _CRASHED in text:
        return SparkJobError(
            f"a Python worker of Spark ended without an error; most likely the system killed it, since memory ran out. "
            f"{_OF_PYTHON}"
        )
    return None


def ends_with_the_jvm(text: str) -> bool:
    """Whether an error of Spark says no more than that the JVM has ended, whose output has the reason."""
    return _STOPPED.search(text) is not None
