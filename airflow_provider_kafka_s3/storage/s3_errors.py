"""What an S3 store's failures mean: every botocore error becomes one of ours, by what to do about it.

The error code of the answer decides first, then its HTTP status, then the kind of client failure. Our messages name the
action and the object, and carry no credentials, no signed headers and no query strings.
"""

from __future__ import annotations

import datetime as dt
import email.utils
import re
from typing import Any, Final, Literal

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    BucketNotFoundError,
    ConditionalConflict,
    ConfigurationError,
    KafkaS3Error,
    KeyAbsent,
    PreconditionFailed,
    RangeBeyondEnd,
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
    UnsupportedStoreError,
    UploadGone,
    UploadRefused,
)

__all__ = ["Kind", "translate"]

Kind = Literal["get", "head", "create", "replace", "part", "complete", "other"]
"""What a request is about: it decides what 404, 409 and 412 mean."""


_CONDITIONAL: Final = ("create", "replace", "complete")

_THROTTLED: Final = {
    "BandwidthLimitExceeded",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "SlowDown",
    "SlowDownRead",
    "SlowDownWrite",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "TooManyRequestsException",
}
_EXPIRED: Final = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_DENIED: Final = {
    "AccessDenied",
    "AccessDeniedException",
    "AccountProblem",
    "AllAccessDisabled",
    "InvalidAccessKeyId",
    "InvalidSecurity",
    "InvalidToken",
    "NotSignedUp",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
    "XAdminUserNotFound",  # versitygw, with 404, of an access key that nobody has
}
_CONFLICT: Final = {"ConditionalRequestConflict", "ConcurrentModification", "OperationAborted"}
# What the store says of parts that can never be one object; of a request that was damaged on its way, too.
_REFUSED: Final = {"EntityTooLarge", "EntityTooSmall", "InvalidPart", "InvalidPartOrder", "MalformedXML"}
_DAMAGED: Final = {"BadDigest", "IncompleteBody", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
_UNKNOWN: Final = {"InternalError", "RequestTimeout"}
_ADVICE: Final = {
    "AuthorizationHeaderMalformed": "the bucket lives in another region: set the region of the connection",
    "IllegalLocationConstraintException": "the bucket lives in another region: set the region of the connection",
    "InvalidBucketName": "correct the bucket's name",
    "KeyTooLongError": "keys have 1,024 bytes at most: shorten topics_dir, the path format or the topic's name",
    "MetadataTooLarge": "object metadata has 2 KB at most",
    "PermanentRedirect": "the bucket lives in another region or endpoint: set region and endpoint_url",
    "RequestTimeTooSkewed": "this machine's clock differs from the store's by more than S3 allows: set the clock",
    "TemporaryRedirect": "the bucket lives in another region or endpoint: set region and endpoint_url",
}

_QUERY = re.compile(r"\?[^\s\"'<>]+")
_ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")
_LONGEST_QUOTE: Final = 300


def translate(error: Exception, *, kind: Kind, action: str, where: str) -> KafkaS3Error | None:
    """Say what a failed request means.

    Args:
        error: what the boto3 client, or reading its answer, raised.
        kind: what the request was about.
        action: name of the operation, such as ``PutObject``.
        where: the object or bucket, such as ``s3://bucket/key``.

    Returns:
        The error to raise instead; None if it is none of the network's or the store's, but a bug.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    if isinstance(error, ClientError):
        return _from_answer(error, kind, f"{action} {where}")
    if isinstance(error, BotoCoreError):
        return _from_client(error, f"{action} {where}")
    if isinstance(error, OSError | ResponseParserError):
        return UnknownOutcomeError(f"{action} {where}: {_quote(error)}")
    return None


def _from_answer(error: Any, kind: Kind, what: str) -> KafkaS3Error:
    described = error.response.get("Error", {})
    # The answer to HEAD has no body; botocore gives its status as the code.
    code, status = str(described.get("Code", "")), int(error.response["ResponseMetadata"].get("HTTPStatusCode", 0))
    said = f"{status} {code}: {_redact(str(described.get('Message', '')))} ({what})"
    if code in _DENIED:
        return _terminal(code, status, said, what)
    answer = _protocol_answer(code, status, kind, said)
    if answer is not None:
        return answer
    if code in _THROTTLED or status in (429, 503):
        return ThrottledError(said, _retry_after(error))
    if code in _EXPIRED:
        return TransientError(f"{said}; the credentials ran out: renew them if they do not renew themselves")
    if code in _DAMAGED:
        return TransientError(f"{said}; the bytes were damaged on their way")
    if code == "NotImplemented" or status == 501:
        refusal = UnsupportedStoreError if kind in _CONDITIONAL else ConfigurationError
        return refusal(f"{said}; this store does not implement the request, use one that does")
    if code in _UNKNOWN or status >= 500 or status == 408 or (200 <= status < 300):
        return UnknownOutcomeError(said)
    # botocore gives the status as the code where it cannot read the body. A 403 stands for itself all the same.
    nameless = code == str(status) and kind != "head" and status in range(402, 500) and status != 403
    if nameless or (kind == "get" and status == 404):
        return UnknownOutcomeError(
            f"{said}; this is no answer of S3: it was damaged, or endpoint_url is another server's"
        )
    return _terminal(code, status, said, what)


def _protocol_answer(code: str, status: int, kind: Kind, said: str) -> KafkaS3Error | None:
    if code == "NoSuchBucket":
        return BucketNotFoundError(f"{said}; create the bucket or correct its name")
    if (kind == "get" and code in ("NoSuchKey", "NoSuchVersion")) or (kind == "head" and status == 404):
        return KeyAbsent(said)
    if kind == "get" and status == 416:
        return RangeBeyondEnd(said)
    if kind in _CONDITIONAL and (code == "PreconditionFailed" or status == 412):
        return PreconditionFailed(said)
    if kind == "replace" and (code == "NoSuchKey" or status == 404):
        return PreconditionFailed(f"{said}; the key is absent")
    if code in _CONFLICT or status == 409:
        return ConditionalConflict(said) if kind in _CONDITIONAL else TransientError(said)
    if kind in ("part", "complete") and (code == "NoSuchUpload" or status == 404):
        return UploadGone(said)
    if kind == "complete" and code in _REFUSED:
        return UploadRefused(said)
    return None


def _terminal(code: str, status: int, said: str, what: str) -> KafkaS3Error:
    if code in _ADVICE:
        return ConfigurationError(f"{said}; {_ADVICE[code]}")
    if code in _DENIED or status in (401, 403):
        return AccessDeniedError(
            f"{said}; the credentials are wrong, or may not do this: allow the action ({what}). "
            "Without the permission to list, S3 says the same of a missing key"
        )
    if status == 400 and code == "400":
        # HEAD again: expired credentials look like any other bad request.
        return TransientError(f"{said}; the store gives no reason, perhaps the credentials ran out")
    if status in (301, 307, 308):
        return ConfigurationError(f"{said}; {_ADVICE['PermanentRedirect']}")
    return ConfigurationError(f"{said}; the store does not accept the request as it is")


def _from_client(error: Exception, what: str) -> KafkaS3Error:
    from botocore import exceptions as b

    said = f"{_quote(error)} ({what})"
    if isinstance(error, b.EndpointConnectionError | b.ConnectTimeoutError | b.ProxyConnectionError):
        # Nothing was sent, so nothing can have been applied.
        return TransientError(f"{said}; check the endpoint's address and that it is up")
    if isinstance(error, b.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        # The handshake comes before the request, so nothing was sent.
        return ConfigurationError(
            f"{said}; check ca_bundle (verify of the AWS connection, on every machine) and the endpoint's certificate"
        )
    if isinstance(error, b.SSLError):
        # Over TLS a lost response may look like this too, so it is not taken for a wrong certificate.
        return UnknownOutcomeError(f"{said}; if it stays, check ca_bundle and the endpoint's certificate")
    if isinstance(error, b.HTTPClientError | b.ConnectionError | b.IncompleteReadError):
        return UnknownOutcomeError(said)
    if isinstance(error, b.FlexibleChecksumError | b.ChecksumError):
        return TransientError(f"{said}; the bytes were damaged on their way")
    if isinstance(error, b.CredentialRetrievalError | b.MetadataRetrievalError):
        return TransientError(f"{said}; the source of the credentials did not answer")
    if isinstance(
        error,
        b.NoCredentialsError | b.PartialCredentialsError | b.NoAuthTokenError | b.SSOError | b.TokenRetrievalError,
    ):
        return AccessDeniedError(f"{said}; give credentials by the connection, the environment or a role")
    return ConfigurationError(f"{said}; correct the connection or the parameter")


def _retry_after(error: Any) -> float | None:
    """Seconds of the Retry-After header, which is a number or a date."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    value = str(headers.get("retry-after", "")).strip()
    if value.isdigit():
        return float(value)
    try:
        until = email.utils.parsedate_to_datetime(value)
        # The store's own clock, so that a difference between the machines does not count.
        now = email.utils.parsedate_to_datetime(str(headers.get("date", "")))
    except ValueError:
        return None
    return max(0.0, (until - now) / dt.timedelta(seconds=1)) if (until.tzinfo and now.tzinfo) else None


def _quote(error: Exception) -> str:
    return f"{type(error).__name__}: {_redact(str(error))}"


def _redact(text: str) -> str:
    text = _ACCESS_KEY.sub("REDACTED", _QUERY.sub("", text))
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…"
