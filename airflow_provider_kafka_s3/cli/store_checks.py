"""Checks of ``kafka-s3 doctor`` on the bucket: access, conditional writes, clock, lifecycle, names, versions."""

from __future__ import annotations

import email.utils
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.batch.expiry import expired_objects
from airflow_provider_kafka_s3.batch.log import TopicLog, prove_conditions
from airflow_provider_kafka_s3.cli.findings import Finding, Level, good, guarded
from airflow_provider_kafka_s3.config import AvroContainer, Parquet
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import canonical
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, PreconditionFailed
from airflow_provider_kafka_s3.inspect.topics import nothing_there, owned_topics
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.layout.hidden_fields import folder_names, hidden_fields
from airflow_provider_kafka_s3.storage.s3_errors import translate

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.cli.access import Access
    from airflow_provider_kafka_s3.config import Layout, ObjectTags
    from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["check_store", "clock_finding", "latest_layout", "lifecycle_findings"]

_LEAST_DAYS: Final = 7
_LOOKED_INTO: Final = 16
"""Objects of the newest batch whose columns are looked at."""
_SKEW_WARNING: Final = 60.0
_SKEW_ERROR: Final = 900.0
"""Seconds; S3 refuses requests of a clock that differs by more."""

_PROBE: Final = canonical({"kind": "probe", "note": "kafka-s3 doctor tries conditional writes on this object"})
_RULE: Final = (
    "add a lifecycle rule with AbortIncompleteMultipartUpload after 7 days or more on the data prefix {prefix!r}; "
    "this does the same by hand: {collect}"
)


def check_store(access: Access) -> list[Finding]:
    """Run the checks of the bucket. They write one small object, which stays, unless this is a dry run."""
    store, topics_dir = access.store, access.topics_dir
    findings = guarded("read and list", lambda: _reading(store, topics_dir))
    if findings[-1].level == "error":
        return findings
    if access.arguments.dry_run:
        findings.append(Finding("conditional writes", "unknown", "not checked in a dry run"))
    else:
        findings += guarded("conditional writes", lambda: _conditions(store, addresses.probe_key(topics_dir)))
        findings += guarded(
            "uploads", lambda: _uploads(store, addresses.probe_key(topics_dir), access.upload.object_tags)
        )
    findings += guarded("clock", lambda: _clock(access))
    findings += guarded("lifecycle", lambda: _lifecycle(access))
    findings += guarded("names", lambda: _names(access))
    return findings + guarded("versions", lambda: _versions(access))


def _reading(store: DurableStore, topics_dir: str) -> Iterator[Finding]:
    key = addresses.probe_key(topics_dir)
    store.get(key)
    store.head(key)
    store.retrier.call(lambda: list(itertools.islice(store.store.list(key), 1)), what="LIST")
    store.pending_uploads(key)
    yield good(
        "read and list",
        f"objects of {store.url('')} can be read and listed, a missing one is reported as missing, "
        f"and uploads can be listed",
    )


def _conditions(store: DurableStore, key: str) -> Iterator[Finding]:
    stored = store.create(key, _PROBE)
    prove_conditions(store, key, stored)
    yield good("conditional writes", "If-None-Match and If-Match are honoured on PUT")


def _uploads(store: DurableStore, key: str, tags: ObjectTags) -> Iterator[Finding]:
    # With metadata it is an upload like that of an object: with its access control list, storage class and tags.
    upload = store.create_upload(key, {}, tags.own_tags)
    try:
        if tags.offsets:
            store.put_tags(key, tags.of(0, 0, 1))
            yield good("tags", "objects can be tagged with their offsets")
        part = store.upload_part(key, upload, 1, _PROBE)
        if not store.upload_exists(key, upload):
            yield Finding(
                "uploads",
                "error",
                "ListParts reports an upload that has just begun as missing",
                "use a store that reports it",
            )
            return
        try:
            store.retrier.call(lambda: store.store.complete_upload(key, upload, [part]), what="CompleteMultipartUpload")
        except PreconditionFailed:
            yield good("uploads", "uploads can be begun, listed, completed and aborted; Complete honours If-None-Match")
        else:
            yield Finding(
                "uploads",
                "warning",
                "uploads work, but Complete ignores If-None-Match: an object that other software writes at a key of a "
                "batch would be overwritten",
                "let no other software write below the data prefix; concurrent runs are safe",
            )
    finally:
        store.abort_upload(key, upload)


def _request(access: Access, action: str, **more: Any) -> dict[str, Any] | KafkaS3Error | str:
    """The store's response; an error of this package; or the error code of a setting that does not exist."""
    from botocore.exceptions import ClientError

    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in action).lstrip("_")
    try:
        response: dict[str, Any] = getattr(access.client, name)(Bucket=access.bucket, **more)
    except ClientError as e:
        code = str(e.response.get("Error", {}).get("Code", ""))
        if code.startswith("NoSuch") and code != "NoSuchBucket":
            return code
        return _translated(e, action, access)
    except Exception as e:  # noqa: BLE001 - an exception that translate does not cover is raised again
        return _translated(e, action, access)
    return response


def _translated(error: Exception, action: str, access: Access) -> KafkaS3Error:
    translated = translate(error, kind="other", action=action, where=f"s3://{access.bucket}")
    if translated is None:
        raise error
    return translated


def _clock(access: Access) -> Iterator[Finding]:
    response = _request(access, "HeadBucket")
    if not isinstance(response, dict):
        yield Finding("clock", "unknown", f"the store's time is unknown: {response}")
        return
    date = str(response["ResponseMetadata"].get("HTTPHeaders", {}).get("date", ""))
    try:
        yield clock_finding(time.time() - email.utils.parsedate_to_datetime(date).timestamp())
    except ValueError:
        yield Finding("clock", "unknown", "the store's responses have no date")


def clock_finding(skew: float) -> Finding:
    """Compare the clock of this machine with the store's.

    Args:
        skew: seconds by which this machine's clock is ahead of the store's.
    """
    if abs(skew) < _SKEW_WARNING:
        return good("clock", f"the clocks of this machine and the store differ by less than {_SKEW_WARNING:.0f} s")
    level: Level = "error" if abs(skew) >= _SKEW_ERROR else "warning"
    return Finding(
        "clock",
        level,
        f"this machine's clock is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} the store's; S3 refuses "
        f"requests beyond 900 s",
        "synchronise the clock (chrony, systemd-timesyncd)",
    )


def _lifecycle(access: Access) -> Iterable[Finding]:
    response = _request(access, "GetBucketLifecycleConfiguration")
    if isinstance(response, KafkaS3Error):
        rule = _RULE.format(prefix=access.topics_dir, collect=access.command("gc"))
        return [
            Finding(
                "lifecycle",
                "unknown",
                f"the bucket's lifecycle rules cannot be read: {response}",
                f"allow s3:GetLifecycleConfiguration to read them, or {rule}",
            )
        ]
    rules = response.get("Rules", []) if isinstance(response, dict) else []
    return lifecycle_findings(rules, access.topics_dir, access.command("gc"))


def lifecycle_findings(rules: Sequence[Mapping[str, Any]], topics_dir: str, collect: str) -> list[Finding]:
    """Check a bucket's lifecycle rules: they may remove control documents, or abort uploads too early or never.

    Args:
        rules: as GetBucketLifecycleConfiguration returns them.
        topics_dir: prefix of all keys.
        collect: the command that aborts uploads by hand.
    """
    data = f"{topics_dir}/" if topics_dir else ""
    control = f"{data}{keys.CONTROL_DIR}/"
    active = [rule for rule in rules if rule.get("Status") == "Enabled"]
    findings = []
    for rule in active:
        prefix, name = _prefix(rule), rule.get("ID", "without a name")
        if (prefix.startswith(control) or control.startswith(prefix)) and _removes(rule):
            findings.append(
                Finding(
                    "lifecycle",
                    "error",
                    f"rule {name!r} removes or archives objects below {prefix!r}, control documents included; a "
                    f"pipeline without its documents stops, or uses the number of a batch twice",
                    f"narrow the prefix of the rule, for example to one topic, so that it does not cover {control!r}",
                )
            )
    days = [
        (int(rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"]), rule.get("ID", "without a name"))
        for rule in active
        if "AbortIncompleteMultipartUpload" in rule
        and not _narrowed(rule)
        and (data.startswith(_prefix(rule)) or _prefix(rule).startswith(data))
    ]
    covering = [
        int(rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"])
        for rule in active
        if "AbortIncompleteMultipartUpload" in rule and not _narrowed(rule) and data.startswith(_prefix(rule))
    ]
    findings += [
        Finding(
            "lifecycle",
            "error",
            f"rule {name!r} aborts uploads after {count} days: a decided batch that no run completes in that time has "
            f"to be read again",
            "set DaysAfterInitiation to 7 or more",
        )
        for count, name in days
        if count < _LEAST_DAYS
    ]
    if not covering:
        findings.append(
            Finding(
                "lifecycle",
                "warning",
                f"no rule aborts incomplete uploads below {data!r}: those of killed jobs stay, and are billed",
                _RULE.format(prefix=data, collect=collect),
            )
        )
    return findings or [
        good("lifecycle", f"incomplete uploads are aborted after {min(covering)} days, and no rule removes documents")
    ]


def _prefix(rule: Mapping[str, Any]) -> str:
    where = rule.get("Filter") or {}
    return str(where.get("Prefix") or (where.get("And") or {}).get("Prefix") or rule.get("Prefix") or "")


def _narrowed(rule: Mapping[str, Any]) -> bool:
    """Whether a rule applies only to objects of some tag or size; uploads have neither."""
    where = rule.get("Filter") or {}
    return bool(set(where) - {"Prefix"} and set(where.get("And", {"x": 0})) - {"Prefix"})


def _removes(rule: Mapping[str, Any]) -> bool:
    if rule.get("Transitions"):
        return True
    expiration = rule.get("Expiration") or {}
    return bool({"Days", "Date"} & set(expiration))


def _names(access: Access) -> Iterator[Finding]:
    arguments = access.arguments
    hidden: list[tuple[str, str]] = []
    owned = owned_topics(access.store, topics_dir=access.topics_dir, pipeline=arguments.pipeline)
    if arguments.pipeline and not owned:
        unknown = nothing_there(access.store, topics_dir=access.topics_dir, pipeline=arguments.pipeline)
        yield Finding("pipeline", "unknown", f"before its first run: {unknown}")
    for address in owned:
        if not arguments.topic or address.topic in arguments.topic:
            hidden += _hidden_of(TopicLog(access.store, address, access.options))
    for problem, remedy in hidden:
        yield Finding(
            "names",
            "warning",
            problem,
            f"{remedy}; landed objects keep their names until another pipeline lands them again "
            f"(docs/changing-layout.md)",
        )
    if not hidden:
        yield good("names", "no topic has objects or columns that readers do not show")


def _hidden_of(topic_log: TopicLog) -> Iterator[tuple[str, str]]:
    """What readers do not show of a topic, each with what avoids it."""
    topic, layout = topic_log.topic, latest_layout(topic_log)
    if layout is None:
        return
    for name, remedy in keys.hidden_names(layout, topic).items():
        problem = (
            f"objects of topic {topic!r}, {name}, have names that begin with '_' or '.': Spark, Hive, Athena, Trino "
            f"and pyarrow skip such names without an error (but Spark reads folders _name=value)"
        )
        yield problem, remedy
    for problem, remedy in _hidden_columns(topic_log).items():
        yield f"topic {topic!r}: {problem}", remedy


def _hidden_columns(topic_log: TopicLog) -> Mapping[str, str]:
    """The same for columns of Parquet and Avro in the newest batch that has objects."""
    from airflow_provider_kafka_s3.reading.object_schemas import field_names
    from airflow_provider_kafka_s3.reading.snapshot_objects import snapshot_objects

    expired = expired_objects(topic_log)
    for batch in range(topic_log.view().next - 1, 0, -1):
        decision = topic_log.read_manifest(batch)
        if decision is None or not decision.objects or expired.has_all(batch):
            continue
        plan = topic_log.require_plan(batch)[0]
        lost = topic_log.amended_keys(batch)[0] | {one.key for one in decision.objects if expired.has(batch, one)}
        objects = snapshot_objects(topic_log, plan, decision, lost)[:_LOOKED_INTO]
        if not objects or not isinstance(objects[0].layout.format, Parquet | AvroContainer):
            break
        folders = {name for snapshot_object in objects for name in folder_names(snapshot_object.key)}
        return hidden_fields(objects[0].layout, folders, field_names(topic_log.store, objects)).findings()
    return {}


def latest_layout(topic_log: TopicLog) -> Layout | None:
    """The layout of the topic's latest batch that has one; None: no batch has."""
    if topic_log.read_marker() is None:
        return None
    batches = range(topic_log.view().next - 1, 0, -1)
    # A reset has none.
    return next((layout for n in batches if (layout := topic_log.require_plan(n)[0].layout) is not None), None)


def _versions(access: Access) -> Iterator[Finding]:
    response = _request(access, "GetBucketVersioning")
    if not isinstance(response, dict):
        yield Finding("versions", "unknown", f"whether the bucket keeps versions is unknown: {response}")
    elif response.get("Status") == "Enabled":
        yield good("versions", "the bucket keeps versions")
    else:
        yield Finding(
            "versions",
            "warning",
            "the bucket keeps no versions: a deleted control document cannot be restored",
            "enable versioning; without it only a marker can be built again",
        )
