"""The Python code that makes an operator, and the file of its DAG."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import structs

from airflow_provider_kafka_s3.config.values import Value
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["dag_file", "python_call"]

_WIDTH: Final = 110
_DAG: Final = """from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG

{imports}

with DAG(
    dag_id={dag_id},
    description={description},
    schedule="@hourly",  # how often a batch is landed
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={{"retries": 3, "retry_delay": timedelta(minutes=1)}},
) as dag:
{call}"""


def python_call(parameters: Mapping[str, Any], operator: str = "KafkaToS3Operator") -> str:
    """Python code that makes the operator, with the imports it needs.

    Args:
        parameters: of the operator: plain values, lists, mappings, and values of ``config``.
        operator: its class.
    """
    return f"{_imports(parameters, operator)}\n\n{_call(parameters, operator, {})}"


def dag_file(parameters: Mapping[str, Any], description: str, comments: Mapping[str, str] | None = None) -> str:
    """The file of a DAG whose only task is the operator, by the hour.

    Args:
        parameters: of the operator, with its ``pipeline``, which is the id of the DAG.
        description: of the DAG.
        comments: texts above parameters, by their names.
    """
    operator = "KafkaToS3Operator"
    return _DAG.format(
        description=_text(description),
        imports=_imports(parameters, operator),
        dag_id=_text(parameters["pipeline"]),
        call=textwrap.indent(_call(parameters, operator, comments or {}), "    "),
    )


def _imports(parameters: Mapping[str, Any], operator: str) -> str:
    classes = {operator, *(name for value in parameters.values() for name in _classes(value))}
    imports = f"from airflow_provider_kafka_s3 import {', '.join(sorted(classes))}"
    if len(imports) <= _WIDTH:
        return imports
    listed = "".join(f"    {name},\n" for name in sorted(classes))
    return f"from airflow_provider_kafka_s3 import (\n{listed})"


def _call(parameters: Mapping[str, Any], operator: str, comments: Mapping[str, str]) -> str:
    arguments = "".join(
        f"{_comment(comments.get(name, ''))}    {name}={_expression(value, 4 + len(name) + 1)},\n"
        for name, value in parameters.items()
    )
    return f"{operator}(\n{arguments})\n"


def _comment(text: str) -> str:
    lines = textwrap.wrap(text, _WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    return "".join(f"    # {line}\n" for line in lines)


def _classes(value: object) -> Iterator[str]:
    if isinstance(value, Value):
        yield type(value).__name__
        for field in _needed(value).values():
            yield from _classes(field)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _classes(item)


def _expression(value: object, column: int, indent: int = 4) -> str:
    """An expression, on several lines if it is too long for the rest of one."""
    if isinstance(value, Value):
        arguments = [(f"{name}=", field) for name, field in _needed(value).items()]
        return _listed(f"{type(value).__name__}(", arguments, ")", column, indent)
    if isinstance(value, Mapping):
        return _listed("{", [(f"{_text(str(k))}: ", v) for k, v in value.items()], "}", column, indent)
    if isinstance(value, list | tuple):
        return _listed("[", [("", item) for item in value], "]", column, indent)
    return _text(value) if isinstance(value, str) else repr(value)


def _listed(opening: str, items: list[tuple[str, object]], closing: str, column: int, indent: int) -> str:
    inner = indent + 4
    one_line = opening + ", ".join(label + _expression(item, 0, inner) for label, item in items) + closing
    if "\n" not in one_line and column + len(one_line) < _WIDTH:
        return one_line
    lines = "".join(f"{' ' * inner}{label}{_expression(item, inner + len(label), inner)},\n" for label, item in items)
    return f"{opening}\n{lines}{' ' * indent}{closing}"


def _needed(value: Value) -> dict[str, Any]:
    """The fields of a value that make it: those without which it would be another one."""
    needed = structs.asdict(value)
    for field in structs.fields(value):
        without = {name: given for name, given in needed.items() if name != field.name}
        if not field.required and _makes(type(value), without, value):
            needed = without
    return needed


def _makes(kind: type[Value], fields: Mapping[str, Any], value: Value) -> bool:
    try:
        return kind(**fields) == value
    except ConfigurationError:  # the other fields do not go without it
        return False


def _text(text: str) -> str:
    """A literal, with double quotes if that needs no more escapes."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in text else literal
