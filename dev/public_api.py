"""The public interface as text: what users may rely on, by docs/compatibility.md.

``python -m dev.public_api`` writes ``tests/public_api.txt`` again; a test fails when it is not current. A change
needs a line in CHANGELOG.md first: the file has the digest of its section *Unreleased* as it was at the last change.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec

import airflow_provider_kafka_s3
from airflow_provider_kafka_s3.airflow.assets import event_extra
from airflow_provider_kafka_s3.airflow.xcom import to_xcom
from airflow_provider_kafka_s3.batch.request import BatchSummary, TopicResult, Verification
from airflow_provider_kafka_s3.cli.command import exit_codes
from airflow_provider_kafka_s3.cli.main import parser
from airflow_provider_kafka_s3.documents.manifest import NO_UNKNOWN_FIELDS
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS

__all__ = ["LISTING", "lines", "listed"]

ROOT: Final = Path(__file__).resolve().parents[1]
LISTING: Final = ROOT / "tests" / "public_api.txt"

_PACKAGE: Final = "airflow_provider_kafka_s3"
_ENTRY: Final = re.compile(r"^::: ([\w.]+)\n((?: {4}.*\n)*)", re.MULTILINE)
_MEMBERS: Final = re.compile(r"\bmembers: \[([\w, ]*)\]")
_UNRELEASED: Final = re.compile(r"^## Unreleased\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_HEADER: Final = "# The public interface. `python -m dev.public_api` writes it again. CHANGELOG at its last change: "
_PAGES: Final = ("operator", "config", "extensions", "reading", "sensors", "triggers", "exceptions", "testing")


def lines() -> list[str]:
    """The interface: one line for each name, parameter, option and field, sorted."""
    names = (f"{_PACKAGE}.{name}" for name in airflow_provider_kafka_s3.__all__)
    described = (line for page in _PAGES for line in _of_page(ROOT / "docs" / "reference" / f"{page}.md"))
    return sorted({*names, *described, *_of_commands(parser()), *_of_results()})


def listed() -> list[str]:
    """The committed lines."""
    return LISTING.read_text().splitlines()[1:]


def _of_page(page: Path) -> Iterator[str]:
    """What a page of the reference describes."""
    for path, options in _ENTRY.findall(page.read_text()):
        module, _, name = path.rpartition(".")
        chosen = _MEMBERS.search(options)
        members = None if chosen is None else [member for member in re.split(r",\s*", chosen[1]) if member]
        if _is_module(path):
            loaded = import_module(path)
            for member in loaded.__all__ if members is None else members:
                yield from _of_object(f"{path}.{member}", getattr(loaded, member), None)
        else:
            yield from _of_object(path, getattr(import_module(module), name), members)


def _is_module(path: str) -> bool:
    return (ROOT / path.replace(".", "/")).with_suffix(".py").is_file()


def _of_object(path: str, value: Any, members: list[str] | None) -> Iterator[str]:
    """A function; or a class with its parameters, bases and public members."""
    if not inspect.isclass(value):
        yield from _parameters(path, value) if callable(value) else (path,)
        return
    bases = ", ".join(base.__name__ for base in value.__bases__ if _is_public(base))
    yield f"{path}: class{bases and f' ({bases})'}"
    if issubclass(value, msgspec.Struct):
        yield from _fields(path, value)
    elif "__init__" in vars(value):
        yield from _parameters(path, value.__init__)
    for name, member in vars(value).items():
        if name.startswith("_") or (members is not None and name not in members):
            continue
        function = inspect.unwrap(getattr(member, "__func__", member))
        if isinstance(member, property | functools.cached_property):
            yield f"{path}.{name}: property"
        elif inspect.isfunction(function):
            yield from _parameters(f"{path}.{name}", function)


def _is_public(kind: type) -> bool:
    return kind.__module__.startswith(_PACKAGE) and not kind.__name__.startswith("_")


def _fields(path: str, struct: type[msgspec.Struct]) -> Iterator[str]:
    annotations: dict[str, str] = {}
    for kind in reversed(struct.__mro__):
        annotations |= vars(kind).get("__annotations__", {})
    for field in msgspec.structs.fields(struct):
        default = "" if field.required else f" = {_default(field)}"
        yield f"{path}({field.name}: {annotations[field.name]}{default})"


def _default(field: Any) -> str:
    factory = field.default_factory
    return _shown(field.default) if factory is msgspec.NODEFAULT else f"{factory.__name__}()"


def _parameters(path: str, function: Any) -> Iterator[str]:
    """A line with the parameters that have a position, and one for each other."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    keywords = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    yield f"{path}({', '.join(_parameter(p) for p in parameters if p not in keywords)})"
    for parameter in keywords:
        yield f"{path}(*, {_parameter(parameter)})"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = str(parameter).removesuffix(str(parameter).lstrip("*"))
    default = "" if parameter.default is inspect.Parameter.empty else f" = {_shown(parameter.default)}"
    return f"{stars}{parameter.name}: {parameter.annotation}{default}"


def _shown(default: object) -> str:
    return default.__name__ if inspect.isfunction(default) else " ".join(repr(default).split())


def _of_commands(top: argparse.ArgumentParser) -> Iterator[str]:
    """Commands with their options, and exit codes."""
    yield f"kafka-s3: {exit_codes('findings')}"
    (commands,) = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    for name, command in commands.choices.items():
        for option in command._actions:
            text = "|".join(option.option_strings) or str(option.dest)
            choices = "" if option.choices is None else f" {{{','.join(map(str, option.choices))}}}"
            takes = "" if option.nargs == 0 else " VALUE"
            yield f"kafka-s3 {name} {text}{choices or takes}{' required' if option.required else ''}"


def _of_results() -> Iterator[str]:
    """The fields of what a task returns, and of the events of its assets."""
    batch = BatchSummary(
        batch=1,
        manifest="",
        mine=True,
        landed=True,
        objects=1,
        records=1,
        tombstones=0,
        ignored=0,
        dead_letters=0,
        size=1,
        offsets=NO_OFFSETS,
        unknown_fields=NO_UNKNOWN_FIELDS,
    )
    result = TopicResult(
        topic="TOPIC",
        status="ok",
        target=NO_OFFSETS,
        batches=(batch,),
        skipped=NO_OFFSETS,
        verification=Verification(objects=1, size=1),
    )
    run: Any = SimpleNamespace(action="land", to_xcom=lambda: None, bucket="", settings=SimpleNamespace(pipeline=""))
    returned = to_xcom({"TOPIC": result}, run)
    yield from (f"XCom {path}" for path in _paths(returned))
    yield from (f"asset event {path}" for path in _paths(event_extra(run, returned)))


def _paths(value: Any, path: str = "") -> Iterator[str]:
    for name, content in value.items():
        yield f"{path}{name}"
        inner = content[0] if isinstance(content, list) and content else content
        if isinstance(inner, dict):
            yield from _paths(inner, f"{path}{name}.")


def _changes() -> str:
    """The digest of what CHANGELOG.md has as unreleased."""
    section = _UNRELEASED.search((ROOT / "CHANGELOG.md").read_text())
    return hashlib.sha256((section[1] if section else "").strip().encode()).hexdigest()[:16]


def main() -> int:
    """Write the listing again, if CHANGELOG.md has a line more than at its last change."""
    now = lines()
    before, stored = (LISTING.read_text().splitlines()[0], listed()) if LISTING.exists() else ("", [])
    if now == stored:
        return 0
    if before == f"{_HEADER}{_changes()}":
        print("the public interface has changed: add a line to CHANGELOG.md, below Unreleased, and run this again")
        return 1
    LISTING.write_text("\n".join([f"{_HEADER}{_changes()}", *now]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
