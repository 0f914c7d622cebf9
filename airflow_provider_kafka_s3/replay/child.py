"""The process that sends the records of a replay: reads its job from standard input, and writes lines of JSON.

A line is a kind and its content: ``progress`` and a text, ``error`` with its kind, its message and whether the process
that failed may be repeated, or ``sent`` and the number of records per Kafka partition.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import threading

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, TerminalError, TransientError, message_of
from airflow_provider_kafka_s3.replay.job import ReplayJob, Watch, collect_seldom, send

__all__ = ["main"]


def main() -> None:
    """Send, and end when the parent does."""
    # What libraries print goes to the log, not between the lines.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    job: ReplayJob = pickle.load(sys.stdin.buffer)
    lock = threading.Lock()

    def report(kind: str, content: object) -> None:
        with lock, contextlib.suppress(OSError):
            output.write(json.dumps([kind, content]).encode() + b"\n")
            output.flush()

    collect_seldom()
    watch = Watch()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    threading.Thread(target=watch.end_stalled, args=(job.stalled_after,), daemon=True).start()
    try:
        sent = send(
            job.place,
            job.config,
            job.request,
            job.plan,
            on_progress=lambda line: report("progress", line),
            watch=watch,
        )
        report("sent", {str(partition): number for partition, number in sent.items()})
    except KafkaS3Error as e:
        report("error", (e.kind, message_of(e), isinstance(e, TransientError) and e.repeatable))
    except Exception as e:  # noqa: BLE001 - the parent raises it
        report(
            "error",
            (
                TerminalError.kind,
                f"an unexpected {type(e).__name__} in replay {job.plan.replay!r}: {message_of(e)}",
                False,
            ),
        )


def _end_with_parent() -> None:
    # Not by sys.stdin, which is locked while it waits, so that Python could not end.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
