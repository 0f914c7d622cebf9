"""How objects are stored, and what is known of connections."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.config.values import make_value
from airflow_provider_kafka_s3.kafka_connect.settings_reader import SettingsReader
from airflow_provider_kafka_s3.retry import RetryPolicy

__all__ = ["aws_connection", "kafka_connection", "registry_connection", "request_retry", "upload"]

_ROLE_PROVIDER: Final = re.compile(r"io\.confluent\.connect\.[\w.]+\.AwsAssumeRoleCredentialsProvider")
_CHAIN_PROVIDER: Final = re.compile(
    r"(software\.amazon\.awssdk\.auth\.credentials|com\.amazonaws\.auth)\.(?!Anonymous)[\w.$]+"
)


def upload(reader: SettingsReader) -> config.Upload | None:
    """What objects are stored with, and the size of parts."""
    settings: dict[str, Any] = {}
    if "s3.part.size" in reader:
        settings["part_size"] = reader.number("s3.part.size", 26_214_400)
    if (encryption := _encryption(reader)) is not None:
        settings["encryption"] = encryption
    if acl := reader.text("s3.acl.canned"):
        settings["acl"] = acl
    tags = [pair.partition(":") for pair in reader.names("s3.object.tagging.key.value.pairs")]
    if any(not key.strip() or not colon for key, colon, _ in tags):
        reader.refuse("s3.object.tagging.key.value.pairs", "must be pairs such as team:lake, separated by commas")
    elif tags:
        settings["tags"] = {key.strip(): value.strip() for key, _, value in tags}
    on_error = reader.choice("s3.object.behavior.on.tagging.error", {"ignore": "ignore", "fail": "fail"}, "ignore")
    if reader.flag("s3.object.tagging", default=False):
        settings |= {"offset_tags": True, "on_tag_error": on_error}
    else:
        unused = ["s3.object.behavior.on.tagging.error"]
        reader.without_effect(unused, "tags that are the same for all objects are set with the upload")
    return reader.attempt("upload", lambda: config.parse_upload(settings)) or config.Upload()


def _encryption(reader: SettingsReader) -> dict[str, Any] | None:
    kind = reader.choice("s3.ssea.name", {"none": None, "AES256": "s3", "aws:kms": "kms"}, "none")
    if kind != "kms":
        reader.without_effect(["s3.sse.kms.key.id"], "it needs s3.ssea.name=aws:kms")
    if kind != "s3":
        reader.without_effect(["s3.sse.customer.key"], "it needs s3.ssea.name=AES256")
    if kind == "kms":
        key = reader.text("s3.sse.kms.key.id")
        return {"kind": "kms", "key_id": key} if key else {"kind": "kms"}
    if kind == "s3" and reader.text("s3.sse.customer.key"):
        return {"kind": "customer"}
    return None if kind is None else {"kind": kind}


def request_retry(reader: SettingsReader) -> RetryPolicy | None:
    """Retries of requests; None: no setting is about them."""
    names = ("s3.part.retries", "s3.retry.backoff.ms")
    if not any(name in reader for name in names):
        return None
    settings: dict[str, Any] = {}
    if names[0] in reader:
        settings["max_retries"] = reader.number(names[0], 3)
    if names[1] in reader:
        base = reader.number(names[1], 200) / 1000
        settings |= {"base": base, "cap": max(base, RetryPolicy().cap)}
    return reader.attempt(names[0], lambda: make_value("request_retry", (RetryPolicy,), settings))


def aws_connection(reader: SettingsReader) -> dict[str, Any]:
    """What is known of the AWS connection."""
    extra: dict[str, Any] = {"region_name": reader.text("s3.region") or "us-west-2"}
    s3: dict[str, Any] = {}
    if url := reader.text("store.url"):
        extra["endpoint_url"] = _public_url(url if "://" in url else f"https://{url}")
    if "s3.path.style.access.enabled" in reader:
        path = reader.flag("s3.path.style.access.enabled", default=True)
        s3["addressing_style"] = "path" if path else "virtual"
    if reader.flag("s3.wan.mode", default=False):
        s3 = {"use_accelerate_endpoint": True}
    proxy = reader.text("s3.proxy.url")
    scheme = "http" if extra.get("endpoint_url", "").startswith("http://") else "https"
    client = {**({"s3": s3} if s3 else {}), **({"proxies": {scheme: _public_url(proxy)}} if proxy else {})}
    if client:
        extra["config_kwargs"] = client
    provider = reader.text("s3.credentials.provider.class")
    if _ROLE_PROVIDER.fullmatch(provider):
        prefix = "s3.credentials.provider.sts.role"
        extra["role_arn"] = reader.text(f"{prefix}.arn")
        if session := reader.text(f"{prefix}.session.name"):
            extra["assume_role_kwargs"] = {"RoleSessionName": session}
    elif provider and _CHAIN_PROVIDER.fullmatch(provider) is None:
        reader.refuse(
            "s3.credentials.provider.class",
            f"{provider!r} is not one of AWS. Give the AWS connection keys or a role, or use aws_conn_id=None for "
            f"boto3's own chain, and remove it",
        )
    return {"conn_type": "aws", "extra": extra}


def kafka_connection(reader: SettingsReader) -> dict[str, Any]:
    """What is known of the Kafka connection."""
    names = ("bootstrap.servers", "security.protocol", "sasl.mechanism")
    overrides = {name: reader.text(f"consumer.override.{name}") for name in names}
    return {"conn_type": "kafka", "extra": {name: text for name, text in overrides.items() if text}}


def registry_connection(reader: SettingsReader, parts: Iterable[str]) -> dict[str, Any]:
    """What is known of the connection of the schema registry of these converters, ``key`` and ``value``."""
    connection: dict[str, Any] = {}
    for part in parts:
        name = f"{part}.converter.schema.registry.url"
        if urls := [_public_url(url) for url in reader.names(name)]:
            of_part = {"host": urls[0], **({"extra": {"urls": urls[1:]}} if urls[1:] else {})}
            if connection and of_part != connection:
                reader.refuse(name, "keys and values have different registries; use one for both")
            connection = of_part
    return {"conn_type": "http", **connection}


def _public_url(url: str) -> str:
    """A URL without user and password."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).removeprefix("//")
