"""Keys of data objects and of what lies beside them.

Data objects are outside of ``<topics_dir>/_kafka_s3/``; the control documents inside have addresses of their own
(``documents.addresses``). No given name (topic, pattern, value of a field) can move a key from one to the other, or out
of ``topics_dir``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from airflow_provider_kafka_s3.config import DeviantArtNaming, KeyNaming, Layout, Naming, SiblingObjects, TimePattern
from airflow_provider_kafka_s3.config.file_names import parse_file_name_template
from airflow_provider_kafka_s3.config.naming import DAY_OR_GENERATION, RESERVED_FOLDERS
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.storage.port import check_key

__all__ = [
    "CONTROL_DIR",
    "DEAD_LETTERS_DIR",
    "INDEX",
    "TOMBSTONE_FOLDER",
    "NamedObject",
    "below",
    "chunk_marker_key",
    "chunk_marker_partition",
    "chunk_markers_prefix",
    "data_key",
    "data_key_parser",
    "data_prefix",
    "dead_letters_key",
    "dead_letters_prefix",
    "encoded_partition_parser",
    "hidden_names",
    "is_hidden",
    "is_shared_folder",
    "named_object_parser",
    "parse_data_key",
    "shares_folder",
    "sibling_key",
    "sibling_of_key",
    "siblings",
    "topic_of_folder",
    "validate_key",
    "validate_topic",
    "validate_topic_of",
    "with_schema_name",
]

CONTROL_DIR: Final = "_kafka_s3"
"""Folder of the control documents; Spark, Hive and Athena skip names that begin with an underscore."""

DEAD_LETTERS_DIR: Final = "_dead_letters"
"""Folder of the dead letters, in the folder of a topic."""

INDEX: Final = ".index"
"""What the name of the index of an object has before the extension."""

TOMBSTONE_FOLDER: Final = "tombstone"
"""Encoded partition of the keys of null values, in the folder of a topic."""

_DEAD_LETTERS_EXTENSION: Final = ".json"
_GENERATION_FOLDER: Final = "generation-"
_HIDDEN: Final = ("_", ".")
_CHUNK_MARKER: Final = "last_chunk_index."
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
# No topic_prefix ends in one of these.
_END_OF_FOLDER: Final = re.compile(r"[A-Za-z0-9._-]*\Z")
# Control characters, surrogates, and the two code points that XML 1.0 excludes: S3 lists keys as XML.
BAD_CHARACTER: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def validate_topic_of(layout: Layout, topic: str) -> str:
    """Return the topic's name if it can be part of the keys of a layout.

    Raises:
        ConfigurationError: see :func:`validate_topic`; or the topic has the name of a folder that topics share.
    """
    if shares_folder(layout) and is_shared_folder(topic):
        raise ConfigurationError(
            f"topic {topic!r} has the name of a folder that topics share with naming='deviantart', so other pipelines "
            f"could not land it there; land it with another naming, under another topics_dir"
        )
    return validate_topic(topic)


def validate_topic(topic: str) -> str:
    """Return the topic's name if it can be part of keys.

    Raises:
        ConfigurationError: Kafka does not allow the name, or it begins like the folder of control documents.
    """
    if _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        raise ConfigurationError(
            f"topic {topic!r} is not a legal Kafka topic name: use 1 to 249 of the characters a-z A-Z 0-9 . _ - and "
            f"neither '.' nor '..'"
        )
    if topic.startswith(CONTROL_DIR):
        raise ConfigurationError(
            f"topic {topic!r} begins with {CONTROL_DIR!r}, the folder of control documents, so its objects cannot be "
            f"distinguished from them; rename the topic or mirror it under another name"
        )
    return topic


def validate_key(key: str) -> str:
    """Return a data key if it is safe.

    Raises:
        ConfigurationError: it is longer than S3 allows, has control characters, an empty, ``.`` or ``..`` folder, or
            is in a folder of control documents.
    """
    bad = BAD_CHARACTER.findall(key)
    if bad:
        raise ConfigurationError(
            f"object key {key!r} would contain characters that cannot be listed: {bad!r}; remove them from "
            f"path_format, topics_dir or the delimiters"
        )
    for part in key.split("/"):
        if part in ("", ".", ".."):
            raise ConfigurationError(
                f"object key {key!r} would have the folder {part!r}, which tools remove or resolve; every folder that "
                f"topics_dir, directory_delim and path_format make needs a name"
            )
        if part.startswith(CONTROL_DIR):
            raise ConfigurationError(
                f"object key {key!r} would be in {part!r}: names that begin with {CONTROL_DIR!r} are reserved for "
                f"control documents; change topics_dir, directory_delim or path_format"
            )
    return check_key(key)


def data_key(
    layout: Layout, *, topic: str, encoded_partition: str, partition: int, first_offset: int, generation: int
) -> str:
    """The key of the object that begins with a record.

    Args:
        layout: with prefixes, delimiters, padding and extension.
        topic: name of the Kafka topic.
        encoded_partition: result of the partitioner.
        partition: the Kafka partition.
        first_offset: offset of the object's first record.
        generation: how many times the topic was deleted and created again; from 1 on it is part of the name, because
            offsets begin at 0 again.

    Raises:
        ConfigurationError: see :func:`validate_key` and :func:`validate_topic`.
    """
    if encoded_partition.startswith(DEAD_LETTERS_DIR):
        raise ConfigurationError(
            f"the folder {encoded_partition!r} begins with {DEAD_LETTERS_DIR!r}, the folder of dead letters; change "
            f"path_format"
        )
    folder = f"{_folders_prefix(layout, topic, generation)}{encoded_partition}{layout.naming.directory_delim}"
    name = _file_name(layout, topic, partition, first_offset, generation)
    return validate_key(f"{folder}{name}{layout.format.object_extension}")


def sibling_key(layout: Layout, key: str, sibling: str) -> str:
    """The key of an object beside another one.

    Args:
        layout: whose content are sibling objects, or whose objects have an index.
        key: of the object of values.
        sibling: what its name has before the extension, such as ``.keys``.

    Raises:
        ConfigurationError: see :func:`validate_key`.
    """
    return validate_key(key.removesuffix(layout.format.object_extension) + siblings(layout)[sibling])


def sibling_of_key(layout: Layout, key: str) -> str | None:
    """What the name of a data key has before the extension, such as ``.keys``; None for an object of values."""
    return next((name for name, ending in siblings(layout).items() if key.endswith(ending)), None)


def siblings(layout: Layout) -> Mapping[str, str]:
    """The endings of keys of objects beside those of values, by what they have before the extension."""
    endings = {INDEX: f"{INDEX}.json"} if layout.has_index else {}
    if isinstance(layout.content, SiblingObjects):
        endings |= {name: name + settings.object_extension for name, settings in layout.content.siblings.items()}
    return endings


def with_schema_name(layout: Layout, encoded_partition: str, name: str) -> str:
    """The encoded partition of values of a schema: with a folder of its name, if the layout has one.

    Args:
        layout: with delimiter and ``schema_affix``.
        encoded_partition: result of the partitioner.
        name: of the schema in Kafka Connect, ``null`` for none.
    """
    folder, delim = f"schema_name={name}", layout.naming.directory_delim
    folder = folder.lower() if layout.naming.lowercase_paths else folder
    match layout.naming.schema_affix:
        case "PREFIX":
            return f"{folder}{delim}{encoded_partition}"
        case "SUFFIX":
            return f"{encoded_partition}{delim}{folder}"
    return encoded_partition


def dead_letters_key(layout: Layout, *, topic: str, partition: int, first_offset: int, generation: int) -> str:
    """The key of an object of dead letters; arguments and errors as of :func:`data_key`."""
    name = _file_name(layout, topic, partition, first_offset, generation)
    return validate_key(f"{dead_letters_prefix(layout, topic)}{name}{_DEAD_LETTERS_EXTENSION}")


def dead_letters_prefix(layout: Layout, topic: str) -> str:
    """The prefix of the dead letters of a topic; readers skip it, as its folder begins with an underscore."""
    folder = f"{data_prefix(layout, topic)}{DEAD_LETTERS_DIR}{layout.naming.directory_delim}"
    return f"{folder}{topic}/" if shares_folder(layout) else folder


def _file_name(layout: Layout, topic: str, partition: int, first_offset: int, generation: int) -> str:
    """The name of a file without its extension."""
    validate_topic_of(layout, topic)
    naming = layout.naming
    if not isinstance(naming, Naming):
        # As DeviantArt's sink formats it: wider numbers are not cut.
        name = f"{topic}-{partition:05d}-{first_offset:012d}"
        return f"{name}-g{generation}" if generation else name
    named = f"{naming.topic_prefix}{topic}"
    if naming.file_name_template is None:
        name = naming.file_delim.join((named, str(partition), str(first_offset).zfill(naming.offset_pad_width)))
    else:
        values = {"topic": named, "partition": str(partition), "start_offset": str(first_offset)}
        name = "".join(
            part if isinstance(part, str) else values[part.name].zfill(part.width)
            for part in _template(naming.file_name_template)
        )
    return f"{name}{naming.file_delim}g{generation}" if generation else name


def _file_name_pattern(naming: KeyNaming, topic: str) -> str:
    """The expression for names of files; its groups are the Kafka partition, the offset and the generation."""
    if not isinstance(naming, Naming):
        # The numbers are parsed from the end, so a name belongs to one topic, whatever topics are called.
        partition, offset = "(?P<partition>[0-9]{5}|[1-9][0-9]{5,9})", "(?P<offset>[0-9]{12}|[1-9][0-9]{12,18})"
        return f"{re.escape(topic)}-{partition}-{offset}(?:-g(?P<generation>[1-9][0-9]{{0,19}}))?"
    delim, digits = re.escape(naming.file_delim), "[0-9]{1,20}"
    named = re.escape(f"{naming.topic_prefix}{topic}")
    partition, offset = f"(?P<partition>{digits})", f"(?P<offset>{digits})"
    name = f"{named}{delim}{partition}{delim}{offset}"
    if naming.file_name_template is not None:
        values = {"topic": named, "partition": partition, "start_offset": offset}
        parts = _template(naming.file_name_template)
        name = "".join(re.escape(part) if isinstance(part, str) else values[part.name] for part in parts)
    return f"{name}(?:{delim}g(?P<generation>{digits}))?"


_template = functools.lru_cache(parse_file_name_template)


def data_prefix(layout: Layout, topic: str) -> str:
    """The prefix of all data keys of a topic; other topics may have the same, see :func:`shares_folder`."""
    if shares_folder(layout):
        return below(layout.topics_dir)
    named = f"{layout.naming.topic_prefix}{topic}"
    folders = (layout.topics_dir, named, "") if layout.topics_dir else (named, "")
    return layout.naming.directory_delim.join(folders)


def shares_folder(layout: Layout) -> bool:
    """Whether the keys below :func:`data_prefix` may belong to other topics, and to control documents."""
    return isinstance(layout.naming, DeviantArtNaming)


def is_shared_folder(folder: str) -> bool:
    """Whether a folder below ``topics_dir`` is one that topics share with :class:`DeviantArtNaming`."""
    return folder in RESERVED_FOLDERS or DAY_OR_GENERATION.fullmatch(folder) is not None


def chunk_marker_key(topics_dir: str, topic: str, partition: int) -> str:
    """The marker file of a Kafka partition: its content is the key of the index of the newest object."""
    return check_key(f"{below(topics_dir)}{_CHUNK_MARKER}{validate_topic(topic)}-{partition:05d}.txt")


def chunk_markers_prefix(topics_dir: str, topic: str) -> str:
    """The prefix of the marker files of a topic, and of topics whose names begin with its name."""
    return f"{below(topics_dir)}{_CHUNK_MARKER}{validate_topic(topic)}-"


def chunk_marker_partition(topics_dir: str, topic: str, key: str) -> int | None:
    """The Kafka partition of a marker file of a topic; None if the key is no such file."""
    name = key.removeprefix(chunk_markers_prefix(topics_dir, topic))
    match = re.fullmatch(r"([0-9]{5}|[1-9][0-9]{5,9})\.txt", name)
    return int(match[1]) if match is not None and key != name else None


def is_hidden(layout: Layout, topic: str) -> bool:
    """Whether readers skip objects of a topic for their names, see :func:`hidden_names`."""
    return bool(hidden_names(layout, topic))


def hidden_names(layout: Layout, topic: str) -> dict[str, str]:
    """Names in the keys of a topic's objects that begin with ``_`` or ``.``, each with the setting that avoids it.

    Spark, Hive, Athena, Trino and pyarrow skip such folders and files, without an error. Folders ``_name=value`` are
    read by Spark. The folders of partitioners of other packages are not known.
    """
    folder = data_prefix(layout, topic).removesuffix(layout.naming.directory_delim)
    remedies = {}
    if (topic if shares_folder(layout) else folder.rpartition("/")[2]).startswith(_HIDDEN):
        remedy = "set naming={'topic_prefix': 'topic='}, which 'deviantart' does not have"
        remedies[f"{data_prefix(layout, topic)}…"] = remedy
    for name in layout.field_names:
        if name.startswith(_HIDDEN):
            remedies[f"{folder}/{name}=…"] = (
                "use a partitioner without this field, or rename it before Kafka: add.fields.prefix and "
                "add.headers.prefix are those of Debezium's transformation"
            )
    for link in layout.partitioners:
        if isinstance(link, TimePattern):
            parts = link.path_format.split(layout.naming.directory_delim)
            remedies |= {
                f"{folder}/{part}": "let the folders of path_format begin with other characters"
                for part in parts
                if part.lstrip("'").startswith(_HIDDEN)
            }
            has_bare = any("=" not in part for part in parts)
        else:
            has_bare = shares_folder(layout)
        if has_bare and layout.on_bad_timestamp.startswith(_HIDDEN):
            remedies[f"{folder}/{layout.on_bad_timestamp}/…"] = (
                "set on_bad_timestamp to a name that begins with another character, or folders name=value"
            )
    return remedies


def topic_of_folder(folder: str) -> str:
    """The topic that a folder may belong to: its name without a ``topic_prefix``, or a text that no topic is called."""
    return str(_END_OF_FOLDER.findall(folder)[0])


def parse_data_key(layout: Layout, topic: str, key: str) -> tuple[int, int, int] | None:
    """Kafka partition, first offset and generation of an object, parsed from its key; None if it is no data key.

    Args:
        layout: of the key.
        topic: name of the Kafka topic.
        key: any key.
    """
    return data_key_parser(layout, topic)(key)


def data_key_parser(layout: Layout, topic: str) -> Callable[[str], tuple[int, int, int] | None]:
    """See :func:`parse_data_key`, for many keys."""
    data = _end_of_key(layout, topic, layout.format.object_extension, *siblings(layout).values())
    dead = _end_of_key(layout, topic, _DEAD_LETTERS_EXTENSION)
    prefix, dead_prefix = data_prefix(layout, topic), dead_letters_prefix(layout, topic)

    def parse(key: str) -> tuple[int, int, int] | None:
        ending = dead if key.startswith(dead_prefix) else data
        match = ending.search(key) if key.startswith(prefix) else None
        if match is None or not _is_in_own_folders(layout, topic, key, match):
            return None
        return int(match["partition"]), int(match["offset"]), int(match["generation"] or 0)

    return parse


@dataclass(frozen=True)
class NamedObject:
    """What the key of an object says, whatever format the object has.

    Attributes:
        folders: of the partitioner, and of a schema's name.
        partition: the Kafka partition.
        first_offset: offset of its first record.
        ending: what follows the offset, such as ``.json.gz``.
        generation: how many times the topic had been reset before it was landed; 0 in the names of other software.
    """

    folders: str
    partition: int
    first_offset: int
    ending: str
    generation: int = 0


def named_object_parser(layout: Layout, topic: str) -> Callable[[str], NamedObject | None]:
    """Parses keys of objects of any format; None for other keys, and for dead letters."""
    name = f"{re.escape(layout.naming.directory_delim)}{_file_name_pattern(layout.naming, topic)}"
    pattern, prefix = re.compile(rf"{name}(?P<ending>(?:[.A-Za-z][^/]*)?)\Z"), data_prefix(layout, topic)
    dead_prefix = dead_letters_prefix(layout, topic)

    def parse(key: str) -> NamedObject | None:
        match = pattern.search(key) if key.startswith(prefix) and not key.startswith(dead_prefix) else None
        if match is None or not _is_in_own_folders(layout, topic, key, match):
            return None
        generation = int(match["generation"] or 0)
        folders = key[: match.start()].removeprefix(_folders_prefix(layout, topic, generation))
        return NamedObject(folders, int(match["partition"]), int(match["offset"]), match["ending"], generation)

    return parse


def encoded_partition_parser(layout: Layout, topic: str) -> Callable[[str], str]:
    """Parses the folders of the partitioner, and of a schema's name, from the key of an object of values."""
    end = _end_of_key(layout, topic, layout.format.object_extension)

    def parse(key: str) -> str:
        match = end.search(key)
        assert match is not None, "it is the key of an object of values"
        return key[: match.start()].removeprefix(_folders_prefix(layout, topic, int(match["generation"] or 0)))

    return parse


def _folders_prefix(layout: Layout, topic: str, generation: int) -> str:
    """What is before the encoded partition."""
    around = f"{_GENERATION_FOLDER}{generation}/" if generation and shares_folder(layout) else ""
    return f"{data_prefix(layout, topic)}{around}"


def _is_in_own_folders(layout: Layout, topic: str, key: str, name: re.Match[str]) -> bool:
    """Whether a key whose name is parsed is in folders that the layout makes.

    Only folders that topics share are checked: others are those of the topic alone.
    """
    if not shares_folder(layout) or key.startswith(dead_letters_prefix(layout, topic)):
        return True
    before = _folders_prefix(layout, topic, int(name["generation"] or 0))
    folder = key[: name.start()].removeprefix(before)
    by_name = () if layout.on_bad_timestamp == "fail" else (layout.on_bad_timestamp,)
    return key.startswith(before) and (folder in (TOMBSTONE_FOLDER, *by_name) or _DAY.fullmatch(folder) is not None)


def _end_of_key(layout: Layout, topic: str, *endings: str) -> re.Pattern[str]:
    """The expression for the end of keys: the delimiter of folders may also be a part of names."""
    name = f"{re.escape(layout.naming.directory_delim)}{_file_name_pattern(layout.naming, topic)}"
    return re.compile(f"{name}(?:{'|'.join(map(re.escape, endings))})\\Z")


def below(topics_dir: str) -> str:
    """The prefix of all keys of a ``topics_dir``."""
    return f"{topics_dir}/" if topics_dir else ""
