"""Checks of ``kafka-s3 doctor`` on the bucket: rights, conditional writes, lifecycle, names, versions, the clock."""

from __future__ import annotations

import email.utils
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_kafka_s3.batch.log import prove_conditions
from airflow_provider_kafka_s3.cli.findings import Finding, Level, good, guarded
from airflow_provider_kafka_s3.documents.codec import canonical
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, PreconditionFailed
from airflow_provider_kafka_s3.inspect.status import owned_topics
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.storage.s3_errors import translate

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.batch.log import TopicLog
    from airflow_provider_kafka_s3.cli.access import Access
    from airflow_provider_kafka_s3.config import Layout
    from airflow_provider_kafka_s3.storage.durable import DurableStore

__all__ = ["check_store", "clock_finding", "lifecycle_findings"]

_LEAST_DAYS: Final = 7
_SKEW_WARNING: Final = 60.0
_SKEW_ERROR: Final = 900.0
"""Seconds; S3 refuses requests beyond this."""

_PROBE: Final = canonical({"kind": "probe", "note": "kafka-s3 doctor tries conditional writes on this object"})
_RULE: Final = (
    "add a lifecycle rule with AbortIncompleteMultipartUpload after 7 days or more on the data prefix {prefix!r}; "
    "`kafka-s3 gc` does the same by hand"
)


def check_store(access: Access) -> list[Finding]:
    """Everything about the bucket. One small object is written and stays, unless it is a dry run."""
    store, topics_dir = access.store, access.topics_dir
    found = guarded("read and list", lambda: _reading(store, topics_dir))
    if found[-1].level == "error":
        return found
    if access.arguments.dry_run:
        found.append(Finding("conditional writes", "unknown", "not tried in a dry run"))
    else:
        found += guarded("conditional writes", lambda: _conditions(store, keys.probe_key(topics_dir)))
        found += guarded("uploads", lambda: _uploads(store, keys.probe_key(topics_dir)))
    found += guarded("clock", lambda: _clock(access))
    found += guarded("lifecycle", lambda: _lifecycle(access))
    found += guarded("names", lambda: _names(access))
    return found + guarded("versions", lambda: _versions(access))


def _reading(store: DurableStore, topics_dir: str) -> Iterator[Finding]:
    key = keys.probe_key(topics_dir)
    store.get(key)
    store.head(key)
    store.retrier.call(lambda: list(itertools.islice(store.store.list(key), 1)), what="LIST")
    store.pending_uploads(key)
    yield good(
        "read and list", f"objects of {store.url('')} can be read and listed, missing ones too, and uploads listed"
    )


def _conditions(store: DurableStore, key: str) -> Iterator[Finding]:
    stored = store.create(key, _PROBE)
    prove_conditions(store, key, stored)
    yield good("conditional writes", "If-None-Match and If-Match are honoured on PUT")


def _uploads(store: DurableStore, key: str) -> Iterator[Finding]:
    upload = store.create_upload(key)
    try:
        part = store.upload_part(key, upload, 1, _PROBE)
        if not store.upload_exists(key, upload):
            yield Finding(
                "uploads", "error", "ListParts does not know an upload that has just begun", "use a store that does"
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
                "uploads work, but Complete ignores If-None-Match: what something else puts at a key of a batch would "
                "be overwritten",
                "let nothing else write below the data prefix; runs stay safe from one another",
            )
    finally:
        store.abort_upload(key, upload)


def _ask(access: Access, action: str, **more: Any) -> dict[str, Any] | KafkaS3Error | str:
    """An answer of the store; our error; or the code of an answer that says "no such thing"."""
    from botocore.exceptions import ClientError

    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in action).lstrip("_")
    try:
        answer: dict[str, Any] = getattr(access.client, name)(Bucket=access.bucket, **more)
    except ClientError as e:
        code = str(e.response.get("Error", {}).get("Code", ""))
        if code.startswith("NoSuch") and code != "NoSuchBucket":
            return code
        return _ours(e, action, access)
    except Exception as e:  # noqa: BLE001 - whatever the client raises, translate knows it or it is a bug
        return _ours(e, action, access)
    return answer


def _ours(error: Exception, action: str, access: Access) -> KafkaS3Error:
    translated = translate(error, kind="other", action=action, where=f"s3://{access.bucket}")
    if translated is None:
        raise error
    return translated


def _clock(access: Access) -> Iterator[Finding]:
    answer = _ask(access, "HeadBucket")
    if not isinstance(answer, dict):
        yield Finding("clock", "unknown", f"the store's time is not known: {answer}")
        return
    date = str(answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date", ""))
    try:
        yield clock_finding(time.time() - email.utils.parsedate_to_datetime(date).timestamp())
    except ValueError:
        yield Finding("clock", "unknown", "the store does not tell its time")


def clock_finding(skew: float) -> Finding:
    """How far this machine's clock is before the store's, in seconds."""
    if abs(skew) < _SKEW_WARNING:
        return good("clock", "this machine and the store agree about the time")
    level: Level = "error" if abs(skew) >= _SKEW_ERROR else "warning"
    return Finding(
        "clock",
        level,
        f"this machine's clock is {abs(skew):,.0f} s {'ahead of' if skew > 0 else 'behind'} the store's; S3 refuses "
        f"requests beyond 900 s",
        "synchronise the clock (chrony, systemd-timesyncd)",
    )


def _lifecycle(access: Access) -> Iterable[Finding]:
    answer = _ask(access, "GetBucketLifecycleConfiguration")
    if isinstance(answer, KafkaS3Error):
        return [
            Finding(
                "lifecycle",
                "unknown",
                f"the bucket's rules cannot be read: {answer}",
                f"allow s3:GetLifecycleConfiguration to see them, or {_RULE.format(prefix=access.topics_dir)}",
            )
        ]
    rules = answer.get("Rules", []) if isinstance(answer, dict) else []
    return lifecycle_findings(rules, access.topics_dir)


def lifecycle_findings(rules: Sequence[Mapping[str, Any]], topics_dir: str) -> list[Finding]:
    """What a bucket's lifecycle rules do to a pipeline.

    Args:
        rules: as GetBucketLifecycleConfiguration tells them.
        topics_dir: prefix of all keys.
    """
    data = f"{topics_dir}/" if topics_dir else ""
    control = f"{data}{keys.CONTROL_DIR}/"
    active = [rule for rule in rules if rule.get("Status") == "Enabled"]
    found = []
    for rule in active:
        prefix, name = _prefix(rule), rule.get("ID", "without a name")
        if (prefix.startswith(control) or control.startswith(prefix)) and _removes(rule):
            found.append(
                Finding(
                    "lifecycle",
                    "error",
                    f"rule {name!r} removes or archives objects below {prefix!r}, the control documents too; a "
                    f"pipeline whose documents are gone stops, or claims a number twice",
                    f"give the rule a narrower prefix, such as one per topic, that does not cover {control!r}",
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
    found += [
        Finding(
            "lifecycle",
            "error",
            f"rule {name!r} aborts uploads after {count} days: a decided batch that nobody completes in that time has "
            f"to be read again from Kafka",
            "set DaysAfterInitiation to 7 or more",
        )
        for count, name in days
        if count < _LEAST_DAYS
    ]
    if not covering:
        found.append(
            Finding(
                "lifecycle",
                "warning",
                f"no rule aborts incomplete uploads below {data!r}: those of killed jobs stay, and cost",
                _RULE.format(prefix=data),
            )
        )
    return found or [
        good("lifecycle", f"incomplete uploads are aborted after {min(covering)} days, nothing else expires")
    ]


def _prefix(rule: Mapping[str, Any]) -> str:
    where = rule.get("Filter") or {}
    return str(where.get("Prefix") or (where.get("And") or {}).get("Prefix") or rule.get("Prefix") or "")


def _narrowed(rule: Mapping[str, Any]) -> bool:
    """Whether a rule is for objects of some tag or size only; uploads have neither."""
    where = rule.get("Filter") or {}
    return bool(set(where) - {"Prefix"} and set(where.get("And", {"x": 0})) - {"Prefix"})


def _removes(rule: Mapping[str, Any]) -> bool:
    if rule.get("Transitions"):
        return True
    expiration = rule.get("Expiration") or {}
    return bool({"Days", "Date"} & set(expiration))


def _names(access: Access) -> Iterator[Finding]:
    arguments = access.arguments
    hidden = {}
    for pipeline, topic in owned_topics(access.store, topics_dir=access.topics_dir, pipeline=arguments.pipeline):
        if topic.startswith(("_", ".")) and (not arguments.topic or topic in arguments.topic):
            layout = _layout(access.topic_log(pipeline, topic))
            if layout is not None and keys.is_hidden(layout, topic):
                hidden[topic] = keys.data_prefix(layout, topic)
    for topic, prefix in hidden.items():
        yield Finding(
            "names",
            "warning",
            f"the objects of topic {topic!r}, {prefix}…, have names that begin with '_' or '.': Spark, Hive, Athena "
            f"and Trino skip such names without an error, and read nothing of the topic",
            "give the operator naming={'topic_prefix': 'topic='}; objects that are there keep their names until "
            "another pipeline lands them again (docs/changing-layout.md)",
        )
    if not hidden:
        yield good("names", "readers skip the objects of no topic")


def _layout(topic_log: TopicLog) -> Layout | None:
    """Of the topic's latest batch that has one; None: there is no batch."""
    if topic_log.read_marker() is None:
        return None
    batches = range(topic_log.view().next - 1, 0, -1)
    # A reset has none.
    return next((layout for n in batches if (layout := topic_log.require_plan(n)[0].layout) is not None), None)


def _versions(access: Access) -> Iterator[Finding]:
    answer = _ask(access, "GetBucketVersioning")
    if not isinstance(answer, dict):
        yield Finding("versions", "unknown", f"whether the bucket keeps versions is not known: {answer}")
    elif answer.get("Status") == "Enabled":
        yield good("versions", "the bucket keeps versions")
    else:
        yield Finding(
            "versions",
            "warning",
            "the bucket keeps no versions: a control document that somebody deletes cannot be restored",
            "enable versioning; a marker alone can be built again by `kafka-s3 repair`",
        )
