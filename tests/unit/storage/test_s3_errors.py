"""Every failure of an S3 client becomes the error with what to do about it, and shows no secret."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from botocore import exceptions as b  # noqa: TID253 - what is translated
from botocore.exceptions import ClientError  # noqa: TID253
from botocore.parsers import ResponseParserError  # noqa: TID253

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    BucketNotFoundError,
    ConditionalConflict,
    ConfigurationError,
    KafkaS3Error,
    PreconditionFailed,
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
    UnsupportedStoreError,
    UploadGone,
    UploadRefused,
)
from airflow_provider_kafka_s3.storage.s3_errors import KeyAbsent, RangeBeyondEnd, RequestKind, translate

ALL: tuple[RequestKind, ...] = get_args(RequestKind)
CONDITIONAL: tuple[RequestKind, ...] = ("create", "replace", "complete")
URL = "https://s3.example/b/k?X-Amz-Signature=5ecre7&uploadId=u"


def response(code: str, status: int, message: str = "reason of the store", **headers: str) -> ClientError:
    """An error response of the store, as botocore raises it."""
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    return ClientError(response, "Operation")


def meaning(error: Exception, kind: RequestKind = "create") -> KafkaS3Error:
    """The translated error, which must exist."""
    found = translate(error, kind=kind, action="PutObject", where="s3://b/k")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("code", "status", "message", "advice"),
    [
        ("KMS.NotFoundException", 400, "", "check key_id of encryption, and that the key of KMS is enabled"),
        ("KMS.DisabledException", 400, "", "check key_id of encryption"),
        ("AccessControlListNotSupported", 400, "", "remove acl of upload"),
        ("InvalidStorageClass", 400, "", "storage_class of upload"),
        ("InvalidTag", 400, "", "tags of upload"),
        ("InvalidObjectState", 403, "", "the object is archived"),
        ("InvalidRequest", 400, "stored using a form of Server Side Encryption", "as sse_customer_key, or in the list"),
        ("InvalidArgument", 400, "The encryption parameters", "sse_customer_earlier_keys"),
        ("InvalidRequest", 400, "something else", "does not accept the request"),
    ],
)
def test_a_refusal_of_what_an_object_is_stored_with_names_the_setting(
    code: str, status: int, message: str, advice: str
) -> None:
    """A repetition cannot help."""
    found = meaning(response(code, status, message))
    assert isinstance(found, ConfigurationError)
    assert not isinstance(found, AccessDeniedError)
    assert advice in str(found)


@pytest.mark.parametrize(
    ("code", "status", "kinds", "expected"),
    [
        ("NoSuchBucket", 404, ALL, BucketNotFoundError),
        ("NoSuchKey", 404, ("get",), KeyAbsent),
        ("404", 404, ("head",), KeyAbsent),
        ("404", 404, ("get",), UnknownOutcomeError),
        ("NoStchKey", 404, ("get",), UnknownOutcomeError),
        ("405", 405, ("get", "create", "replace"), UnknownOutcomeError),
        ("InvalidRange", 416, ("get",), RangeBeyondEnd),
        ("PreconditionFailed", 412, CONDITIONAL, PreconditionFailed),
        ("NoSuchKey", 404, ("replace",), PreconditionFailed),
        ("ConditionalRequestConflict", 409, CONDITIONAL, ConditionalConflict),
        ("ConcurrentModification", 409, CONDITIONAL, ConditionalConflict),
        ("OperationAborted", 409, ("get", "part", "other"), TransientError),
        ("NoSuchUpload", 404, ("part", "complete"), UploadGone),
        ("InvalidPart", 400, ("complete",), UploadRefused),
        ("InvalidPartOrder", 400, ("complete",), UploadRefused),
        ("EntityTooSmall", 400, ("complete",), UploadRefused),
        ("EntityTooLarge", 400, ("complete",), UploadRefused),
        ("EntityTooLarge", 400, ("create", "part"), ConfigurationError),
        ("SlowDown", 503, ALL, ThrottledError),
        ("ServiceUnavailable", 503, ALL, ThrottledError),
        ("503", 503, ALL, ThrottledError),
        ("429", 429, ALL, ThrottledError),
        ("Throttling", 400, ALL, ThrottledError),
        ("SlowDown", 200, ("complete",), ThrottledError),
        ("InternalError", 500, ALL, UnknownOutcomeError),
        ("InternalError", 200, ("complete",), UnknownOutcomeError),
        ("500", 500, ALL, UnknownOutcomeError),
        ("502", 502, ALL, UnknownOutcomeError),
        ("504", 504, ALL, UnknownOutcomeError),
        ("RequestTimeout", 400, ALL, UnknownOutcomeError),
        ("408", 408, ALL, UnknownOutcomeError),
        ("ExpiredToken", 400, ALL, TransientError),
        ("RequestExpired", 403, ALL, TransientError),
        ("400", 400, ("head",), TransientError),
        ("BadDigest", 400, ("create", "replace", "part", "complete"), TransientError),
        ("AccessDenied", 403, ALL, AccessDeniedError),
        ("403", 403, ("head",), AccessDeniedError),
        ("InvalidAccessKeyId", 403, ALL, AccessDeniedError),
        ("SignatureDoesNotMatch", 403, ALL, AccessDeniedError),
        ("InvalidToken", 400, ALL, AccessDeniedError),
        ("NotImplemented", 501, CONDITIONAL, UnsupportedStoreError),
        ("NotImplemented", 501, ("other",), ConfigurationError),
        ("NotImplemented", 400, CONDITIONAL, UnsupportedStoreError),
        ("NotImplemented", 200, ("complete",), UnsupportedStoreError),
        ("RequestTimeTooSkewed", 403, ALL, ConfigurationError),
        ("KeyTooLongError", 400, ALL, ConfigurationError),
        ("PermanentRedirect", 301, ALL, ConfigurationError),
        ("301", 301, ("head",), ConfigurationError),
        ("AuthorizationHeaderMalformed", 400, ALL, ConfigurationError),
        ("InvalidArgument", 400, ALL, ConfigurationError),
    ],
)
def test_responses_of_the_store(
    code: str, status: int, kinds: tuple[RequestKind, ...], expected: type[KafkaS3Error]
) -> None:
    """Code first, then status, then the kind of request; the message names action, object and code."""
    for kind in kinds:
        found = meaning(response(code, status), kind)
        assert type(found) is expected, kind
        assert str(found).startswith(f"{status} {code}: reason of the store (PutObject s3://b/k)")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (b.ReadTimeoutError(endpoint_url=URL), UnknownOutcomeError),
        (b.ConnectionClosedError(endpoint_url=URL), UnknownOutcomeError),
        (b.HTTPClientError(error="reset"), UnknownOutcomeError),
        (b.SSLError(endpoint_url=URL, error="EOF"), UnknownOutcomeError),
        (b.ResponseStreamingError(error="IncompleteRead"), UnknownOutcomeError),
        (b.IncompleteReadError(actual_bytes=1, expected_bytes=2), UnknownOutcomeError),
        (ResponseParserError("not XML"), UnknownOutcomeError),
        (ConnectionResetError(104, "reset by peer"), UnknownOutcomeError),
        (b.EndpointConnectionError(endpoint_url=URL), TransientError),
        (b.ConnectTimeoutError(endpoint_url=URL), TransientError),
        (b.ProxyConnectionError(proxy_url=URL), TransientError),
        (b.FlexibleChecksumError(error_msg="mismatch"), TransientError),
        (b.CredentialRetrievalError(provider="p", error_msg="timeout"), TransientError),
        (b.NoCredentialsError(), AccessDeniedError),
        (b.PartialCredentialsError(provider="env", cred_var="secret"), AccessDeniedError),
        (b.TokenRetrievalError(provider="sso", error_msg="expired"), AccessDeniedError),
        (b.ParamValidationError(report="x"), ConfigurationError),
        (b.NoRegionError(), ConfigurationError),
    ],
)
def test_failures_of_the_client(error: Exception, expected: type[KafkaS3Error]) -> None:
    """Not sent is transient, possibly applied is unknown, impossible to send is configuration."""
    found = meaning(error)
    assert type(found) is expected
    assert "PutObject s3://b/k" in str(found)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "Sun, 01 Mar 2026 00:00:30 GMT", "date": "Sun, 01 Mar 2026 00:00:10 GMT"}, 20.0),
        ({"retry-after": "Sun, 01 Mar 2026 00:00:00 GMT", "date": "Sun, 01 Mar 2026 00:00:10 GMT"}, 0.0),
        ({"retry-after": "Sun, 01 Mar 2026 00:00:30 GMT"}, None),
        ({"retry-after": "soon"}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    """Both forms of the header are supported; a date is relative to the store's clock."""
    found = meaning(response("SlowDown", 503, **headers))
    assert isinstance(found, ThrottledError)
    assert found.retry_after == seconds


@pytest.mark.parametrize(
    "error",
    [
        b.ReadTimeoutError(endpoint_url=URL),
        b.EndpointConnectionError(endpoint_url=URL),
        response("InvalidAccessKeyId", 403, "key AKIAIOSFODNN7EXAMPLE does not exist"),
        response("AccessDenied", 403, f"GET {URL} is not allowed"),
    ],
)
def test_messages_show_no_secrets(error: Exception) -> None:
    """Query strings (signatures, upload IDs) and access keys are removed, whoever wrote them."""
    message = str(meaning(error))
    assert "5ecre7" not in message
    assert "AKIA" not in message


def test_long_responses_are_truncated() -> None:
    """A page of HTML instead of a response does not fill the log."""
    assert len(str(meaning(response("500", 500, "<html>" * 10_000)))) < 500


def test_bugs_are_not_translated() -> None:
    """An error that neither the store nor the network caused is raised as it is."""
    assert translate(KeyError("x"), kind="get", action="GetObject", where="s3://b/k") is None


@pytest.mark.parametrize(
    ("status", "kinds", "expected"),
    [
        (404, ("replace",), PreconditionFailed),
        (404, ("part", "complete"), UploadGone),
        (404, ("head",), KeyAbsent),
        (409, CONDITIONAL, ConditionalConflict),
        (409, ("get", "part", "other"), TransientError),
        (412, CONDITIONAL, PreconditionFailed),
        (416, ("get",), RangeBeyondEnd),
    ],
)
@pytest.mark.parametrize("code", ["", "status", "UnknownCode"], ids=["no-code", "status", "unknown-code"])
def test_the_status_is_used_if_there_is_no_known_code(
    code: str, status: int, kinds: tuple[RequestKind, ...], expected: type[KafkaS3Error]
) -> None:
    """A proxy has removed the body, or the store has a code of its own: the protocol works as with S3."""
    for kind in kinds:
        assert type(meaning(response(str(status) if code == "status" else code, status), kind)) is expected, kind


@pytest.mark.parametrize("status", [0, 200, 400, 418])
@pytest.mark.parametrize(
    ("code", "kinds", "expected"),
    [
        ("NoSuchBucket", ALL, BucketNotFoundError),
        ("NoSuchKey", ("get",), KeyAbsent),
        ("NoSuchKey", ("replace",), PreconditionFailed),
        ("NoSuchVersion", ("get",), KeyAbsent),
        ("PreconditionFailed", CONDITIONAL, PreconditionFailed),
        ("ConditionalRequestConflict", CONDITIONAL, ConditionalConflict),
        ("ConcurrentModification", CONDITIONAL, ConditionalConflict),
        ("OperationAborted", CONDITIONAL, ConditionalConflict),
        ("OperationAborted", ("get", "part", "other"), TransientError),
        ("NoSuchUpload", ("part", "complete"), UploadGone),
        ("SlowDown", ALL, ThrottledError),
        ("InternalError", ALL, UnknownOutcomeError),
        ("AccessDenied", ALL, AccessDeniedError),
    ],
)
def test_the_code_is_used_whatever_the_status(
    code: str, status: int, kinds: tuple[RequestKind, ...], expected: type[KafkaS3Error]
) -> None:
    """Complete may respond 200 with an error in its body, and stores choose other statuses."""
    for kind in kinds:
        assert type(meaning(response(code, status), kind)) is expected, kind


def test_an_unknown_error_inside_of_a_200_decides_nothing() -> None:
    """Complete begins its response before it has ended: whatever the error, the object may appear later."""
    assert type(meaning(response("UnknownCode", 200), "complete")) is UnknownOutcomeError
