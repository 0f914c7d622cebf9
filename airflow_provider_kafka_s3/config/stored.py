"""What objects are stored with: encryption, storage class, tags. It decides neither their names nor their bytes."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias, get_args

from msgspec import Meta

from airflow_provider_kafka_s3.config.values import TAG, Value, require

__all__ = [
    "OFFSET_TAGS",
    "CannedAcl",
    "Encryption",
    "ObjectTags",
    "OnTagError",
    "SseCustomer",
    "SseKms",
    "SseS3",
    "StorageClass",
]

CannedAcl = Literal[
    "private",
    "public-read",
    "public-read-write",
    "authenticated-read",
    "aws-exec-read",
    "bucket-owner-read",
    "bucket-owner-full-control",
    "log-delivery-write",
]
StorageClass = Literal[
    "STANDARD",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
    "GLACIER",
    "DEEP_ARCHIVE",
    "REDUCED_REDUNDANCY",
    "EXPRESS_ONEZONE",
    "OUTPOSTS",
    "SNOW",
]
OnTagError = Literal["fail", "ignore"]

OFFSET_TAGS: Final = ("startOffset", "endOffset", "recordCount")
"""Keys of the tags that describe the records of an object, as Kafka Connect names them."""

_MOST_TAGS: Final = 10
_LONGEST_KEY: Final = 128
_LONGEST_VALUE: Final = 256
_TEXT: Final = re.compile(r"[\w +\-=.:/@]*")


class SseS3(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="s3"):
    """Encryption with keys of the store (SSE-S3, ``AES256``)."""


class SseKms(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="kms"):
    """Encryption with a key of AWS KMS (SSE-KMS, ``aws:kms``).

    Attributes:
        key_id: id, ARN or alias of the key; None: the key that AWS manages for S3.
        bucket_key: use a key of the bucket, which needs fewer requests to KMS; None: as the bucket is configured.
    """

    key_id: Annotated[str, Meta(min_length=1)] | None = None
    bucket_key: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.key_id is None or re.fullmatch("[!-~]+", self.key_id) is not None,
            f"key_id={self.key_id!r} is not a key of KMS; use its id, its ARN or 'alias/NAME'",
        )


class SseCustomer(Value, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field=TAG, tag="customer"):
    """Encryption with a key of your own, which the store does not keep (SSE-C).

    The key is a secret: ``sse_customer_key`` in the extra of the AWS connection has it.
    """


Encryption: TypeAlias = SseS3 | SseKms | SseCustomer
"""All kinds of encryption by the store."""

ENCRYPTIONS: Final[tuple[type[Encryption], ...]] = get_args(Encryption)


class ObjectTags(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tags of an object.

    Attributes:
        own: keys and values, in order of the keys, the same for all objects.
        offsets: add ``startOffset``, ``endOffset`` (of the last record) and ``recordCount``, as Kafka Connect does.
    """

    own: tuple[tuple[str, str], ...] = ()
    offsets: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        most = _MOST_TAGS - (len(OFFSET_TAGS) if self.offsets else 0)
        require(
            len(self.own) <= most,
            f"tags has {len(self.own)} tags, and S3 allows {_MOST_TAGS} of an object"
            f"{', of which offset_tags takes 3' if self.offsets else ''}; use {most} at most",
        )
        for key, value in self.own:
            require(
                0 < len(key) <= _LONGEST_KEY and _TEXT.fullmatch(key) is not None,
                f"tags: the key {key[:_LONGEST_KEY]!r} must have 1 to {_LONGEST_KEY} letters, digits, spaces and "
                f"characters of '+-=._:/@'",
            )
            require(
                len(value) <= _LONGEST_VALUE and _TEXT.fullmatch(value) is not None,
                f"tags: the value {value[:_LONGEST_VALUE]!r} of {key!r} must have at most {_LONGEST_VALUE} letters, "
                f"digits, spaces and characters of '+-=._:/@'",
            )
            require(not key.lower().startswith("aws:"), f"tags: keys such as {key!r} are AWS's own; rename it")
            require(
                not self.offsets or key not in OFFSET_TAGS,
                f"tags: {key!r} is one of offset_tags; rename it, or remove offset_tags",
            )

    @property
    def own_tags(self) -> dict[str, str]:
        """The tags that are the same for all objects."""
        return dict(self.own)

    def of(self, first: int, last: int, records: int) -> dict[str, str]:
        """All tags of an object with these records."""
        values = (str(first), str(last), str(records))
        return {**self.own_tags, **(dict(zip(OFFSET_TAGS, values, strict=True)) if self.offsets else {})}
