"""Translates botocore's errors into those of this package.

The error code of the response comes first, then its HTTP status, then the kind of client failure. Messages name the
action and the object, and contain no credentials, no signed headers and no query strings.
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

__all__ = ["RequestKind", "may_be_wrong_key", "may_succeed_later", "translate"]

RequestKind = Literal["get", "head", "create", "replace", "part", "complete", "other"]
"""The meaning of 404, 409 and 412 depends on it."""
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
    "XAdminUserNotFound",  # versitygw, with 404, for an unknown access key
}
_CONFLICT: Final = {"ConditionalRequestConflict", "ConcurrentModification", "OperationAborted"}
# The parts can never become one object, or the request was corrupted in transit.
_REFUSED: Final = {"EntityTooLarge", "EntityTooSmall", "InvalidPart", "InvalidPartOrder", "MalformedXML"}
_DAMAGED: Final = {"BadDigest", "IncompleteBody", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
_UNKNOWN: Final = {"InternalError", "RequestTimeout"}
_ADVICE: Final = {
    "AuthorizationHeaderMalformed": "the bucket is in another region: set the region of the connection",
    "AccessControlListNotSupported": "the bucket does not allow access control lists: remove acl of upload",
    "IllegalLocationConstraintException": "the bucket is in another region: set the region of the connection",
    "InvalidBucketName": "correct the bucket's name",
    "InvalidObjectState": "the object is archived (GLACIER, DEEP_ARCHIVE) and has to be restored before it is read: "
    "`aws s3api restore-object`, or use storage_class='GLACIER_IR' of upload",
    "InvalidStorageClass": "the store does not have this storage_class of upload",
    "InvalidTag": "the store does not accept the tags of upload",
    "KeyTooLongError": "keys have 1,024 bytes at most: shorten topics_dir, the path format or the topic's name",
    "MetadataTooLarge": "object metadata has 2 KB at most",
    "PermanentRedirect": "the bucket is in another region or at another endpoint: set region and endpoint_url",
    "RequestTimeTooSkewed": "this machine's clock differs from the store's by more than S3 allows: set the clock",
    "TemporaryRedirect": "the bucket is in another region or at another endpoint: set region and endpoint_url",
}

_PROXY_LOGIN: Final = 407
_PROXY_ADVICE: Final = (
    "the proxy refuses the login: correct user and password in proxies of the AWS connection's config_kwargs"
)

_QUERY = re.compile(r"\?[^\s\"'<>]+")
_ACCESS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")
_LONGEST_QUOTE: Final = 300


def translate(error: Exception, *, kind: RequestKind, action: str, where: str) -> KafkaS3Error | None:
    """Translate the error of a failed request.

    Args:
        error: raised by the boto3 client, or while its response was read.
        kind: of the request.
        action: name of the operation, such as ``PutObject``.
        where: the object or bucket, such as ``s3://bucket/key``.

    Returns:
        The error to raise instead; None if neither the network nor the store caused it: it is a bug.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    if isinstance(error, ClientError):
        return _from_response(error, kind, f"{action} {where}")
    if isinstance(error, BotoCoreError):
        return _from_client_error(error, f"{action} {where}")
    if isinstance(error, OSError | ResponseParserError):
        return UnknownOutcomeError(f"{action} {where}: {_quote(error)}")
    return None


def may_succeed_later(code: str) -> bool:
    """Whether a request for many objects may be repeated for one of them, by the code of its error."""
    return code in _THROTTLED | _UNKNOWN | _CONFLICT


def may_be_wrong_key(error: KafkaS3Error) -> bool:
    """Whether a store may refuse a request like this because of its customer key (SSE-C), or for the lack of one."""
    from botocore.exceptions import ClientError

    response = error.__cause__
    if not isinstance(response, ClientError):
        return False
    code = str(response.response.get("Error", {}).get("Code", ""))
    status = response.response["ResponseMetadata"].get("HTTPStatusCode", 0)
    return code in ("400", "403", "AccessDenied", "InvalidArgument", "InvalidRequest") and status in (400, 403)


def _from_response(error: Any, kind: RequestKind, what: str) -> KafkaS3Error:
    described = error.response.get("Error", {})
    # The response to HEAD has no body; botocore uses its status as the code.
    code, status = str(described.get("Code", "")), int(error.response["ResponseMetadata"].get("HTTPStatusCode", 0))
    message = f"{status} {code}: {_redact(str(described.get('Message', '')))} ({what})"
    if status == _PROXY_LOGIN:
        return AccessDeniedError(f"{message}; {_PROXY_ADVICE}")
    if code in _DENIED:
        return _terminal(code, status, message, what)
    response = _store_response(code, status, kind, message)
    if response is not None:
        return response
    if code in _THROTTLED or status in (429, 503):
        return ThrottledError(message, _retry_after(error))
    if code in _EXPIRED:
        return TransientError(
            f"{message}; the credentials have expired: renew them if they are not renewed automatically"
        )
    if code in _DAMAGED:
        return TransientError(f"{message}; the data was corrupted in transit")
    if code == "NotImplemented" or status == 501:
        refusal = UnsupportedStoreError if kind in _CONDITIONAL else ConfigurationError
        return refusal(f"{message}; this store does not implement the request, use one that does")
    if code in _UNKNOWN or status >= 500 or status == 408 or (200 <= status < 300):
        return UnknownOutcomeError(message)
    # botocore uses the status as the code if it cannot parse the body. A 403 is a refusal in any case.
    nameless = code == str(status) and kind != "head" and status in range(402, 500) and status != 403
    if nameless or (kind == "get" and status == 404):
        return UnknownOutcomeError(
            f"{message}; this is not a response of S3: it was corrupted in transit, or endpoint_url is another server's"
        )
    return _terminal(code, status, message, what)


def _store_response(code: str, status: int, kind: RequestKind, message: str) -> KafkaS3Error | None:
    if code == "NoSuchBucket":
        return BucketNotFoundError(f"{message}; create the bucket or correct its name")
    if (kind == "get" and code in ("NoSuchKey", "NoSuchVersion")) or (kind == "head" and status == 404):
        return KeyAbsent(message)
    if kind == "get" and status == 416:
        return RangeBeyondEnd(message)
    if kind in _CONDITIONAL and (code == "PreconditionFailed" or status == 412):
        return PreconditionFailed(message)
    if kind == "replace" and (code == "NoSuchKey" or status == 404):
        return PreconditionFailed(f"{message}; the key is absent")
    if code in _CONFLICT or status == 409:
        return ConditionalConflict(message) if kind in _CONDITIONAL else TransientError(message)
    if kind in ("part", "complete") and (code == "NoSuchUpload" or status == 404):
        return UploadGone(message)
    if kind == "complete" and code in _REFUSED:
        return UploadRefused(message)
    return None


def _terminal(code: str, status: int, message: str, what: str) -> KafkaS3Error:
    if code in _ADVICE:
        return ConfigurationError(f"{message}; {_ADVICE[code]}")
    if code.startswith(("KMS.", "KMSKey")):
        return ConfigurationError(f"{message}; check key_id of encryption, and that the key of KMS is enabled")
    if code in ("InvalidArgument", "InvalidRequest") and "encryption" in message.lower():
        return ConfigurationError(
            f"{message}; the object may be encrypted with a customer key: put it into the extra of the AWS connection, "
            f"as sse_customer_key, or in the list sse_customer_earlier_keys"
        )
    if code in _DENIED or status in (401, 403):
        return AccessDeniedError(
            f"{message}; the credentials are wrong, or lack the permission: allow the action ({what}). "
            "Without the permission to list, S3 gives the same response for a missing key"
        )
    if status == 400 and code == "400":
        # A response to HEAD has no body: with expired credentials it is like that to any other bad request.
        return TransientError(f"{message}; the store gives no reason, perhaps the credentials have expired")
    if status in (301, 307, 308):
        return ConfigurationError(f"{message}; {_ADVICE['PermanentRedirect']}")
    return ConfigurationError(f"{message}; the store does not accept the request")


def _from_client_error(error: Exception, what: str) -> KafkaS3Error:
    from botocore import exceptions as b

    message = f"{_quote(error)} ({what})"
    if isinstance(error, b.ProxyConnectionError) and f" {_PROXY_LOGIN} " in str(error.kwargs.get("error")):
        return AccessDeniedError(f"{message}; {_PROXY_ADVICE}")
    if isinstance(error, b.EndpointConnectionError | b.ConnectTimeoutError | b.ProxyConnectionError):
        # Nothing was sent, so nothing can have been applied.
        return TransientError(f"{message}; check the endpoint's address and that it is running")
    if isinstance(error, b.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        # The handshake comes before the request, so nothing was sent.
        return ConfigurationError(
            f"{message}; check the endpoint's certificate and ca_bundle (verify of the AWS connection, on all machines)"
        )
    if isinstance(error, b.SSLError):
        # Over TLS a lost response may cause the same error, so this need not be a wrong certificate.
        return UnknownOutcomeError(f"{message}; if it persists, check ca_bundle and the endpoint's certificate")
    if isinstance(error, b.HTTPClientError | b.ConnectionError | b.IncompleteReadError):
        return UnknownOutcomeError(message)
    if isinstance(error, b.FlexibleChecksumError | b.ChecksumError):
        return TransientError(f"{message}; the data was corrupted in transit")
    if isinstance(error, b.CredentialRetrievalError | b.MetadataRetrievalError):
        return TransientError(f"{message}; the source of the credentials did not respond")
    if isinstance(
        error,
        b.NoCredentialsError | b.PartialCredentialsError | b.NoAuthTokenError | b.SSOError | b.TokenRetrievalError,
    ):
        return AccessDeniedError(f"{message}; give credentials by the connection, the environment or a role")
    return ConfigurationError(f"{message}; correct the connection or the parameter")


def _retry_after(error: Any) -> float | None:
    """Seconds of the Retry-After header, which is a number or a date."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    value = str(headers.get("retry-after", "")).strip()
    if value.isdigit():
        return float(value)
    try:
        until = email.utils.parsedate_to_datetime(value)
        # The store's clock, so that a difference between the machines' clocks does not matter.
        now = email.utils.parsedate_to_datetime(str(headers.get("date", "")))
    except ValueError:
        return None
    return max(0.0, (until - now) / dt.timedelta(seconds=1)) if (until.tzinfo and now.tzinfo) else None


def _quote(error: Exception) -> str:
    return f"{type(error).__name__}: {_redact(str(error))}"


def _redact(text: str) -> str:
    text = _ACCESS_KEY.sub("REDACTED", _QUERY.sub("", text))
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…"
