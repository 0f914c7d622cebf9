"""Derives the error of a ``spark-submit`` that ended without a driver result from its output.

The cause comes first in the message, since user interfaces show its beginning. The command, which may have thousands of
characters, comes last and truncated. Errors that a retry cannot fix get a type of their own.
"""

from __future__ import annotations

import re
from typing import Final

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, SparkJobError
from airflow_provider_kafka_s3.spark.memory_errors import about_memory
from airflow_provider_kafka_s3.spark.start_errors import about_start

__all__ = ["explain_output"]

_COMMAND: Final = re.compile(r"^Cannot execute: (?P<command>.*?)\. Error code is: (?P<code>-?\d+)\.?(?P<rest>.*)$")
_CODE: Final = re.compile(r"(?:Error code is:|exit code is) (?P<code>-?\d+)")
_BEGINNING: Final = 100
"""Characters of the command in the message."""
_END: Final = 3_000
"""Characters of the end of the output in the message; Airflow stores and shows it with the task."""
_CAUSE: Final = 600

_NOISE: Final = re.compile(r"\s*(at [\w$.<>/@-]+\(|\.\.\. \d+ more|Last spark-submit output:$)")
"""Lines without information: frames of Java stack traces, and a heading of Airflow."""
_LOGGED: Final = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) (?P<message>.*)$")
_JAVA: Final = re.compile(r'^(?:Exception in thread "[^"]*"|Caused by:) (?P<message>.*)$')
_PYTHON: Final = "Traceback (most recent call last):"
_CALLING: Final = re.compile(r"^\S*Py4JJavaError: An error occurred while calling")
_PACKAGE: Final = re.compile(r"^(?:[a-z]\w*\.)+(?=[A-Z]\w*(?:Exception|Error)\b)")
_KILLED: Final = ("-9", "137")


def explain_output(text: str) -> KafkaS3Error:
    """The error for a driver that ended without a result.

    Args:
        text: first line: how ``spark-submit``, or the driver of a Spark Connect job, ended; then its output.

    Returns:
        ``ConfigurationError`` if a retry cannot help, else ``SparkJobError``.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not _NOISE.match(line)]
    ending, *output = lines or [""]
    submitted = _COMMAND.match(ending)
    command = f"spark-submit was called as: {_short(submitted['command'])}" if submitted else ""
    code = _CODE.search(ending)
    if submitted is None and code is None:
        output = [ending, *output] if ending else output
    elif submitted and (remainder := submitted["rest"].strip()):
        output = [remainder, *output]
    status = "" if code is None else f" (exit code {code['code']})"
    ended = f"The Spark driver ended without a result{status}."
    killed = code is not None and code["code"] in _KILLED
    # Output from before a kill is not its cause.
    if not killed and (known := about_start("\n".join(output))) is not None:
        return type(known)(f"{known}. {ended} {command}".rstrip())
    out_of_memory = about_memory("\n".join([ending, *output]))
    if killed:
        cause = (
            "it was killed; most likely the worker's memory ran out. Give the worker more, or take less: a smaller "
            "driver_memory of the operator, fewer cores of a local master (local[1]), fewer tasks of Airflow at a time"
        )
    elif out_of_memory is not None:
        cause = str(out_of_memory)
    else:
        cause = _cause(output) or "it printed nothing"
    end = _end(output)
    tail = f" Its last output:\n{end}\n" if end not in ("", cause) else " "
    return SparkJobError(f"{cause}. {ended}{tail}{command}".rstrip())


def _cause(output: list[str]) -> str | None:
    """The cause in an output: its last exception, or else its last logged error, or else its last line."""
    for index in range(len(output) - 1, -1, -1):
        line = output[index]
        if match := _JAVA.match(line):
            return _shorter(match["message"])
        if line == _PYTHON:
            raised = [line for line in output[index + 1 :] if not line[0].isspace() and not _LOGGED.match(line)]
            # The error of a failed Py4J call has no information; the next line is Java's exception.
            error = raised[1] if len(raised) > 1 and _CALLING.match(raised[0]) else (raised or [""])[0]
            return _shorter(error.removeprefix(": ")) or None
    errors = [
        match["message"] for line in output if (match := _LOGGED.match(line)) and match["level"] in ("ERROR", "FATAL")
    ]
    if errors:
        return _shorter(errors[-1])
    for index, line in enumerate(output):
        if line.startswith("Error occurred during initialization of VM"):
            return _shorter("; ".join(output[index : index + 2]))
        if line.startswith("Error: "):
            return _shorter(line)
    return _shorter(output[-1]) if output else None


def _shorter(text: str) -> str:
    return _PACKAGE.sub("", text.strip()).rstrip(".")[:_CAUSE]


def _short(command: str) -> str:
    return command if len(command) <= _BEGINNING else f"{command[:_BEGINNING]}…"


def _end(output: list[str]) -> str:
    kept: list[str] = []
    room = _END
    for line in reversed(output):
        room -= len(line) + 1
        if room < 0:
            kept.append("…")
            break
        kept.append(line)
    return "\n".join(reversed(kept))
