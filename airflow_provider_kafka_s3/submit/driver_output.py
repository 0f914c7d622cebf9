"""What the output of a ``spark-submit`` means that ended without a result of its driver.

What it was caused by comes first in the error, since a user interface shows the head of it; the command, which may be
thousands of characters long, comes last and short. What trying again cannot cure is told apart from the rest.
"""

from __future__ import annotations

import re
from typing import Final

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, SparkJobError
from airflow_provider_kafka_s3.spark.start_errors import about_start

__all__ = ["explain_output"]

_COMMAND: Final = re.compile(r"^Cannot execute: (?P<command>.*?)\. Error code is: (?P<code>-?\d+)\.?(?P<rest>.*)$")
_CODE: Final = re.compile(r"(?:Error code is:|exit code is) (?P<code>-?\d+)")
_BEGINNING: Final = 100
"""Characters of the command that are shown."""
_END: Final = 3_000
"""Characters of the end of the output; Airflow stores and shows them with the task."""
_CAUSE: Final = 600

_NOTHING: Final = re.compile(r"\s*(at [\w$.<>/@-]+\(|\.\.\. \d+ more|Last spark-submit output:$)")
"""Lines that say nothing: frames of Java's traces, and a heading of Airflow's."""
_LOGGED: Final = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) (?P<said>.*)$")
_JAVA: Final = re.compile(r'^(?:Exception in thread "[^"]*"|Caused by:) (?P<said>.*)$')
_PYTHON: Final = "Traceback (most recent call last):"
_CALLING: Final = re.compile(r"^\S*Py4JJavaError: An error occurred while calling")
_PACKAGE: Final = re.compile(r"^(?:[a-z]\w*\.)+(?=[A-Z]\w*(?:Exception|Error)\b)")
_KILLED: Final = ("-9", "137")


def explain_output(text: str) -> KafkaS3Error:
    """The error for what is known of a driver that ended without a result.

    Args:
        text: how ``spark-submit``, or the driver of a Spark Connect job, ended, and below it what it printed.

    Returns:
        ``ConfigurationError`` for what trying again cannot cure, else ``SparkJobError``.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not _NOTHING.match(line)]
    how, *output = lines or [""]
    submitted = _COMMAND.match(how)
    command = f"spark-submit was called as: {_short(submitted['command'])}" if submitted else ""
    code = _CODE.search(how)
    if submitted is None and code is None:
        output = [how, *output] if how else output
    elif submitted and (rest := submitted["rest"].strip()):
        output = [rest, *output]
    status = "" if code is None else f" (exit code {code['code']})"
    ended = f"The Spark driver ended without a result{status}."
    killed = code is not None and code["code"] in _KILLED
    # What a driver printed before it was killed was no reason to end.
    if not killed and (known := about_start("\n".join(output))) is not None:
        return type(known)(f"{known}. {ended} {command}".rstrip())
    if killed:
        cause = "it was killed; most likely the worker's memory ran out"
    else:
        cause = _cause(output) or "it printed nothing"
    end = _end(output)
    tail = f" Its last words:\n{end}\n" if end not in ("", cause) else " "
    return SparkJobError(f"{cause}. {ended}{tail}{command}".rstrip())


def _cause(output: list[str]) -> str | None:
    """What an output says of why it ended: its last exception, or else its last error, or else its last line."""
    for index in range(len(output) - 1, -1, -1):
        line = output[index]
        if found := _JAVA.match(line):
            return _shorter(found["said"])
        if line == _PYTHON:
            told = [line for line in output[index + 1 :] if not line[0].isspace() and not _LOGGED.match(line)]
            # Python's own error of a failed call says nothing, the line below it is Java's.
            raised = told[1] if len(told) > 1 and _CALLING.match(told[0]) else (told or [""])[0]
            return _shorter(raised.removeprefix(": ")) or None
    logged = [
        found["said"] for line in output if (found := _LOGGED.match(line)) and found["level"] in ("ERROR", "FATAL")
    ]
    if logged:
        return _shorter(logged[-1])
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
