"""What the output of a ``spark-submit`` means that ended without a result of its driver.

What it was caused by comes first in the error, since a user interface shows the head of it; the command, which may be
thousands of characters long, comes last and short. What trying again cannot cure is told apart from the rest.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, SparkJobError

__all__ = ["about_start", "explain_output"]

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

_NO_YARN: Final = re.compile(r"either HADOOP_CONF_DIR or YARN_CONF_DIR must be set")
_NO_MASTER: Final = re.compile(
    r"(?:Could not parse Master URL: '(?P<parsed>[^']*)'|Invalid master URL: (?P<invalid>\S+)|"
    r"Master must either be yarn or start with)"
)
_OLD_JAVA: Final = re.compile(r"UnsupportedClassVersionError: .{1,300}")
_NO_JAVA: Final = re.compile(r"JAVA_HOME is not set")
_SILENT: Final = re.compile(r"All masters are unresponsive")
_UNRESOLVED: Final = re.compile(r"unresolved dependency: (?P<what>[^\s:,\]]+): (?P<why>[^,\]\n]+)")
_ASKED: Final = re.compile(r"^\s*(?:-- artifact .*|)(?P<url>https?://\S+)\s*$", re.MULTILINE)
_NO_HOST: Final = re.compile(r"Host (?P<host>\S+) not found")
_NO_ACCESS: Final = re.compile(r"Server access error at url (?P<url>\S+) \((?P<why>.*)\)")


def explain_output(said: str) -> KafkaS3Error:
    """The error for what is known of a driver that ended without a result.

    Args:
        said: how ``spark-submit``, or the driver of a Spark Connect job, ended, and below it what it printed.

    Returns:
        ``ConfigurationError`` for what trying again cannot cure, else ``SparkJobError``.
    """
    lines = [line.rstrip() for line in said.splitlines() if line.strip() and not _NOTHING.match(line)]
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
    last_words = f" Its last words:\n{end}\n" if end not in ("", cause) else " "
    return SparkJobError(f"{cause}. {ended}{last_words}{command}".rstrip())


def about_start(text: str) -> KafkaS3Error | None:
    """The error if Spark could not start for a reason that is known; the text of an output, or of an exception."""
    if _NO_YARN.search(text):
        return ConfigurationError(
            "Spark has no configuration of YARN: HADOOP_CONF_DIR is not set. Set it to the folder with yarn-site.xml "
            "and core-site.xml, on the worker or in env_vars"
        )
    if master := _NO_MASTER.search(text):
        name = master["parsed"] or master["invalid"]
        return ConfigurationError(
            f"{f'{name!r} is no Spark master' if name else 'the Spark master is none that Spark knows'}: correct host "
            f"and port of the connection of spark_conn_id, such as 'local[2]', 'yarn', 'spark://host:7077' or "
            f"'k8s://https://host:443'"
        )
    if java := _OLD_JAVA.search(text):
        return ConfigurationError(
            f"Java is too old for this Spark, which needs Java 17 or 21: set JAVA_HOME on the worker or in env_vars. "
            f"Java said: {java[0]}"
        )
    if _NO_JAVA.search(text):
        return ConfigurationError("there is no Java for Spark: install Java 17 or 21 on the worker, or set JAVA_HOME")
    if _SILENT.search(text):
        return SparkJobError(
            "the Spark master does not answer: check that it runs, and host and port of the connection of spark_conn_id"
        )
    if wanted := {found["what"]: found["why"] for found in _UNRESOLVED.finditer(text)}:
        return _about_packages(text, wanted)
    return None


def _about_packages(text: str, wanted: dict[str, str]) -> KafkaS3Error:
    """Packages are not there only if all repositories say so: of those that cannot be reached Ivy says it, too."""
    named = ", ".join(name.replace("#", ":").replace(";", ":") for name in wanted)
    asked = {urlsplit(found["url"]).netloc for found in _ASKED.finditer(text)}
    failed = {urlsplit(found["url"]).netloc: found["why"] for found in _NO_ACCESS.finditer(text)}
    failed |= {found["host"]: "no such host" for found in _NO_HOST.finditer(text)}
    reached = asked - failed.keys()
    told = "; ".join(f"{host}: {why}" for host, why in failed.items())
    if failed and reached:
        return SparkJobError(
            f"packages: {named} was not found, and not all repositories could be reached: {told}. It is not in "
            f"{', '.join(sorted(reached))}. If it is in none, correct the coordinates (group:artifact:version); else "
            f"give the worker a way to the others (spark.jars.ivySettings), or use jars="
        )
    if failed:
        return SparkJobError(
            f"packages: no repository can be reached for {named}: {told}. Give the worker a way to one "
            f"(spark.jars.ivySettings), or use jars="
        )
    where = f" ({', '.join(sorted(reached))})" if reached else ""
    return ConfigurationError(
        f"packages: {named} is in no repository that was asked{where}. Correct the coordinates "
        f"(group:artifact:version), name its repository by repositories=, or use jars="
    )


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
