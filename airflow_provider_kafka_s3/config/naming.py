"""Names of objects: how the parts of their keys are put together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from airflow_provider_kafka_s3.config.file_names import parse_file_name_template
from airflow_provider_kafka_s3.config.values import (
    TAG,
    Value,
    make_value,
    reject_control_characters,
    require,
    unknown_value,
)
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.structs import convert_to_struct

__all__ = [
    "DAY_FORMATS",
    "DAY_OR_GENERATION",
    "RESERVED_FOLDERS",
    "DeviantArtNaming",
    "KeyNaming",
    "Naming",
    "SchemaAffix",
    "decode_naming",
    "parse_naming",
]

SchemaAffix = Literal["PREFIX", "SUFFIX"]

DAY_FORMATS: Final = ("yyyy-MM-dd", "YYYY-MM-dd")
"""Patterns that make one folder for a day, as in DeviantArt's names."""

DAY_OR_GENERATION: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}|generation-[0-9]+")
"""Folders of DeviantArt's names: of a day, and around those of a topic that was created again."""

RESERVED_FOLDERS: Final = ("_dead_letters", "tombstone")
"""Other folders beside those of days."""


class KeyNaming:
    """A naming: :class:`Naming` or :class:`DeviantArtNaming`.

    Plans had one kind of naming at first, and still have it without a ``kind``. In a union of ``msgspec`` every member
    needs its kind, so this is a class, and :func:`decode_naming` decodes its members.
    """

    __slots__ = ()

    @property
    def directory_delim(self) -> str:
        """What is between the folders of a key."""
        return "/"

    @property
    def topic_prefix(self) -> str:
        """What is before the topic."""
        return ""

    @property
    def schema_affix(self) -> SchemaAffix | None:
        """Where the folder with the name of the schema is; None: there is none."""
        return None

    @property
    def kafka_connect_names(self) -> bool:
        """Whether folders are named as in Kafka Connect."""
        return False

    @property
    def lowercase_paths(self) -> bool:
        """Whether folders are lower case."""
        return False


class Naming(Value, KeyNaming, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the parts of an object key are put together.

    Attributes:
        directory_delim: between the folders of a key.
        file_delim: between topic, partition and offset of a file name.
        topic_prefix: put before the topic, in its folder and in file names, such as ``topic=``: readers skip names that
            begin with ``_`` or ``.``, as names of topics may. Ends in a character that topics are not named with.
        offset_pad_width: offsets in file names are zero-padded to this width; wider ones are not cut.
        schema_affix: a folder ``schema_name=NAME`` with the name of the value's schema, before (``PREFIX``) or behind
            (``SUFFIX``) the folders of the partitioner; a schema without a name, and a value without a schema, have
            ``schema_name=null``. None: no such folder.
        kafka_connect_names: names of folders as Kafka Connect has them: values of fields as they are, ``null`` for
            null, and times before 1970 rounded up. Values whose names would be unsafe or ambiguous are percent-encoded.
        lowercase_paths: make the folders of partitioners lower case, for Athena; values that differ in case only share
            a folder.
        file_name_template: names of files without their extension, such as
            ``{{topic}}-{{partition}}-{{start_offset:padding=true}}``, with partition and offset; None: topic, partition
            and offset with ``file_delim`` between them. ``offset_pad_width`` has no effect on it.
    """

    directory_delim: str = "/"
    file_delim: str = "+"
    topic_prefix: str = ""
    offset_pad_width: Annotated[
        int, Meta(ge=0, le=20, description="digits", extra={"why": "Kafka's offsets have 19 at most"})
    ] = 10
    schema_affix: SchemaAffix | None = None
    kafka_connect_names: bool = False
    lowercase_paths: bool = False
    file_name_template: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("directory_delim", "file_delim", "topic_prefix"):
            reject_control_characters(name, getattr(self, name))
        require(bool(self.directory_delim), "directory_delim is empty; use '/'")
        require(bool(self.file_delim), "file_delim is empty; use '+'")
        require("/" not in self.file_delim, f"file_delim={self.file_delim!r} must not hold '/'")
        require(
            not any(c.isdigit() for c in self.file_delim),  # partition 1 and offset 11 could be parsed as 11 and 1
            f"file_delim={self.file_delim!r} contains a digit, so partition and offset would be ambiguous in file "
            f"names; use '+' or another delimiter without digits",
        )
        if self.file_name_template is not None:
            parse_file_name_template(self.file_name_template)
        prefix = self.topic_prefix
        require(
            prefix == "" or ("/" not in prefix and prefix[0] not in "._" and prefix == prefix.strip()),
            f"topic_prefix={prefix!r} must not hold '/', have spaces around it, or begin with '.' or '_': readers skip "
            f"such names. Use a prefix such as 'topic='",
        )
        require(
            re.fullmatch("[A-Za-z0-9._-]", prefix[-1:]) is None,
            f"topic_prefix={prefix!r} ends in a character that topics are named with: the objects of a topic 'x' would "
            f"be named as those of a topic {prefix + 'x'!r}. Use a prefix such as 'topic='",
        )


class DeviantArtNaming(
    Value, KeyNaming, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="deviantart"
):
    """Names of DeviantArt's S3 sink: ``<topics_dir>/2026-01-31/<topic>-00003-000000001234.gz``.

    The folder of the day comes before the name, and topics share it. The day is that of the records: the partitioner is
    by time with ``path_format="yyyy-MM-dd"``, which is the default with this naming. With the format
    :class:`BlockGzip`, each object has an index beside it, and for each Kafka partition a marker file
    ``<topics_dir>/last_chunk_index.<topic>-00003.txt`` names the index of the newest object.

    Outside the folders of days are dead letters, ``_dead_letters/<topic>/``, keys of null values, ``tombstone/``, and
    the objects of a topic that was created again, ``generation-1/2026-01-31/<topic>-00003-000000001234-g1.gz``.
    """


def parse_naming(given: KeyNaming | Mapping[str, Any] | str | None) -> KeyNaming:
    """The parameter ``naming``: a value, a mapping of its fields, a kind; None: the default.

    Raises:
        ConfigurationError: it is none of these.
    """
    settings: object = {TAG: given} if isinstance(given, str) else given
    if not isinstance(settings, Mapping) or TAG not in settings:
        return settings if isinstance(settings, DeviantArtNaming) else make_value("naming", (Naming,), settings)
    fields = {name: value for name, value in settings.items() if name != TAG}
    match settings[TAG]:
        case "confluent":
            return make_value("naming", (Naming,), fields)
        case "deviantart":
            return make_value("naming", (DeviantArtNaming,), settings)
    raise ConfigurationError(
        f"naming: {unknown_value(f'{TAG}={settings[TAG]!r}', settings[TAG], ('confluent', 'deviantart'))}"
    )


def decode_naming(value: object) -> KeyNaming:
    """A naming from a stored document; one without a kind is :class:`Naming`.

    Raises:
        msgspec.ValidationError: it has another type, or a kind that this version does not have.
    """
    if isinstance(value, Mapping) and TAG in value:
        return convert_to_struct(value, DeviantArtNaming)
    return convert_to_struct(value, Naming)
