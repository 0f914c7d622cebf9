"""Loads classes of other packages, and compares what they declare with the plan."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
from msgspec import structs

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.arrays import int64_values
from airflow_provider_kafka_s3.config.extensions import Pinned
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, RecordError, message_of
from airflow_provider_kafka_s3.extensions.formats import Format
from airflow_provider_kafka_s3.extensions.partitioners import Partitioner
from airflow_provider_kafka_s3.extensions.records import Batch, Extension, FailedRecordError

__all__ = ["calling", "load_format", "load_partitioner", "pinned", "place_of", "require_pinned", "shown"]

_LONGEST: Final = 900
"""Bytes of a path at most: a key has 1,024."""

_INSTALL: Final = (
    "install its package for Airflow's workers and commands, which write lost objects again, and install it in the "
    "Python of Spark's executors or ship it to them by py_files"
)


def load_partitioner(settings: config.CustomPartitioner) -> Partitioner:
    """The partitioner of other code.

    Raises:
        ConfigurationError: there is no such class here, it refuses the options, or it declares something wrong.
    """
    made = _made(settings, Partitioner)
    assert isinstance(made, Partitioner)
    return made


def load_format(settings: config.CustomFormat) -> Format:
    """The format of other code.

    Raises:
        ConfigurationError: see :func:`load_partitioner`.
    """
    made = _made(settings, Format)
    assert isinstance(made, Format)
    return made


def _class(import_path: str, base: type[Extension]) -> type[Extension]:
    """A class by its import path.

    Raises:
        ConfigurationError: it cannot be imported here, or does not derive from the base. So a plan cannot make a
            process call anything else.
    """
    module, _, name = import_path.partition(":")
    label = f"import_path={import_path!r}"
    try:
        loaded: Any = import_module(module)
    except Exception as e:
        raise ConfigurationError(
            f"{label} cannot be imported in {sys.executable} ({type(e).__name__}: {message_of(e)}); {_INSTALL}"
        ) from e
    for part in name.split("."):
        loaded = getattr(loaded, part, None)
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise ConfigurationError(
            f"{label} is no class that derives from airflow_provider_kafka_s3.extensions.{base.__name__}; correct "
            f"import_path, or the class"
        )
    return loaded


def _made(settings: config.CustomPartitioner | config.CustomFormat, base: type[Extension]) -> Extension:
    path = settings.import_path
    made_by = _class(path, base)
    try:
        made = made_by(**settings.options)
    except ConfigurationError:
        raise
    except Exception as e:
        raise ConfigurationError(
            f"import_path={path!r} cannot be made with options={settings.options!r} ({type(e).__name__}: "
            f"{message_of(e)}); correct options, or the class"
        ) from e
    _declared(path, made)
    return made


def _declared(path: str, made: Extension) -> Pinned:
    """What an instance declares."""
    try:
        version = getattr(made, "version", "")
        if isinstance(made, Partitioner):
            most: object = made.max_path_bytes
            if type(most) is not int or not 1 <= most <= _LONGEST:
                raise ConfigurationError(
                    f"max_path_bytes={most!r} must be a whole number of bytes from 1 to {_LONGEST}"
                )
        fields = made.fields if isinstance(made, Partitioner) else ()
        if isinstance(fields, str) or isinstance(made.reads, str):
            raise ConfigurationError("fields and reads are lists of texts")
        return Pinned(version=version, reads=tuple(made.reads), fields=tuple(fields))
    except (ConfigurationError, TypeError) as e:
        raise ConfigurationError(f"import_path={path!r} declares something wrong: {message_of(e)}") from None


def pinned(layout: config.Layout) -> config.Layout:
    """The layout of a batch that is planned now: with what its classes of other packages declare.

    Raises:
        ConfigurationError: see :func:`load_partitioner`.
    """

    def pin(settings: Any) -> Any:
        match settings:
            case config.CustomPartitioner(pinned=None):
                return structs.replace(settings, pinned=_declared(settings.import_path, load_partitioner(settings)))
            case config.CustomFormat(pinned=None):
                return structs.replace(settings, pinned=_declared(settings.import_path, load_format(settings)))
            case config.Chain(partitioners=links):
                return structs.replace(settings, partitioners=tuple(map(pin, links)))
        return settings

    if all(each.pinned is not None for each in layout.extensions):
        return layout
    return structs.replace(layout, format=pin(layout.format), partitioner=pin(layout.partitioner))


def require_pinned(layout: config.Layout, what: str) -> None:
    """Refuse a layout whose classes of other packages are not here what they were when it was pinned.

    Args:
        layout: of a plan.
        what: names the plan.

    Raises:
        ConfigurationError: a class declares something else.
    """
    for settings in layout.extensions:
        path, pin = settings.import_path, settings.pinned
        made = load_format(settings) if isinstance(settings, config.CustomFormat) else load_partitioner(settings)
        here = _declared(path, made)
        if pin is None or here == pin:
            continue
        if here.version == pin.version:
            raise ConfigurationError(
                f"{what} was planned with {path} of version {pin.version!r}, which declared {_what(pin)}, and with the "
                f"same version it declares {_what(here)} in {sys.executable}. Install the code that the plan was made "
                f"with, and give changed code another version"
            )
        raise ConfigurationError(
            f"{what} was planned with version {pin.version!r} of {path}, and in {sys.executable} it has version "
            f"{here.version!r}, whose folders or bytes may differ. Install version {pin.version!r} here (Airflow "
            f"worker and executors alike); or abandon the batch, unless it is decided, with release='debt': then "
            f"it is planned again"
        )


def _what(declared: Pinned) -> str:
    return f"reads={list(declared.reads)} and fields={list(declared.fields)}"


def shown(batch: Batch, extension: Extension) -> Batch:
    """The batch with the columns that a class looks at, whatever else is read, so that none is used by chance."""
    names = ["offset", "value", *(name for name in ("timestamp", "key", "headers") if name in extension.reads)]
    records = batch.records
    if records.schema.names != names:
        records = pa.RecordBatch.from_arrays([records.column(name) for name in names], names=names)
    fields = extension.fields if isinstance(extension, Partitioner) else ()
    return Batch(records, batch.topic, batch.partition, {name: batch.fields[name] for name in fields})


def place_of(batch: Batch) -> str:
    """The records of a batch, for errors."""
    offsets = int64_values(batch.records.column("offset"))
    return f"topic {batch.topic!r}, partition {batch.partition}, offsets {int(offsets[0])} to {int(offsets[-1])}"


@contextmanager
def calling(import_path: str, batch: Batch | None = None, key: str = "") -> Iterator[None]:
    """Turn exceptions of a class into errors that have the place, and no content of a record.

    Args:
        import_path: of the class.
        batch: that it gets.
        key: of the object that it writes.

    Raises:
        RecordError: it raised an exception; the text of the exception may hold a value, so it is left out.
    """
    try:
        yield
    except (KafkaS3Error, MemoryError):
        raise
    except Exception as e:  # noqa: BLE001 - other code may raise anything
        place, cause = f"object {key!r}", e
        if batch is not None:
            place = place_of(batch)
        if isinstance(e, FailedRecordError) and batch is not None and isinstance(e.__cause__, Exception):
            place, cause = f"topic {batch.topic!r}, partition {batch.partition}, offset {e.offset}", e.__cause__
        raise RecordError(
            f"{place}: {import_path} raised {type(cause).__name__} ({_line(import_path, cause)}); correct the class "
            f"and its version, or refuse records that it cannot write"
        ) from None


def _line(import_path: str, error: Exception) -> str:
    """The last line of the class's module that led to an error."""
    frames = traceback.extract_tb(error.__traceback__)
    file = getattr(sys.modules.get(import_path.partition(":")[0]), "__file__", None)
    own = [frame for frame in frames if frame.filename == file] or frames
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else "no line"
