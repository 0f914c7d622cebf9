"""What objects are stored with: encryption, access, storage class and tags, as an S3 server over HTTP shows it."""

from __future__ import annotations

import base64
import logging
import pickle
import re
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from airflow_provider_kafka_s3.config import Encryption, SseCustomer, SseKms, SseS3, Upload, parse_upload
from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ConfigurationError, CorruptControlError
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.credentials import S3Secrets
from airflow_provider_kafka_s3.storage.durable import CompleteResult, DurableStore
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from dev.s3_server import ThreadedS3Server

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from airflow_provider_kafka_s3.storage.port import ObjectStore

ANY = S3Credentials(access_key_id="any", secret_access_key="any-secret")
BUCKET = "kafka-s3-conformance"
ONE, TWO = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
PART = 5 * 1024 * 1024


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return uuid.uuid4().hex


class Server:
    """Clients of one moto server."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.client: Any = make_client(S3Settings(endpoint_url=endpoint, region="us-east-1"), ANY)

    def store(self, **settings: Any) -> S3Store:
        """The bucket with these settings."""
        found = S3Settings(endpoint_url=self.endpoint, region="us-east-1", **settings)
        return S3Store(make_client(found, ANY), BUCKET, found)

    def keyed(self, key: str | None, *earlier: str) -> S3Store:
        """The bucket with these customer keys."""
        return self.store(secrets=S3Secrets(customer_key=key, earlier_customer_keys=earlier))

    def head(self, key: str) -> dict[str, Any]:
        """The headers of an object."""
        found: dict[str, Any] = self.client.head_object(Bucket=BUCKET, Key=key)
        return found

    def tags(self, key: str) -> dict[str, str]:
        """The tags of an object."""
        found = self.client.get_object_tagging(Bucket=BUCKET, Key=key)["TagSet"]
        return {tag["Key"]: tag["Value"] for tag in found}


@pytest.fixture
def server(moto_endpoint: str) -> Server:
    """The server of the session."""
    return Server(moto_endpoint)


def upload(store: ObjectStore, key: str, *bodies: bytes, **how: Any) -> None:
    """Store an object by an upload."""
    upload_id = store.create_upload(key, metadata={}, **how)
    parts = [store.upload_part(key, upload_id, number, body) for number, body in enumerate(bodies, 1)]
    store.complete_upload(key, upload_id, parts)


@pytest.mark.parametrize(
    ("encryption", "expected"),
    [
        (SseS3(), ("AES256", None, None)),
        (SseKms(), ("aws:kms", None, None)),
        (SseKms(key_id="alias/lake", bucket_key=True), ("aws:kms", "alias/lake", True)),
        (None, (None, None, None)),
    ],
)
def test_documents_and_objects_are_encrypted_alike(
    server: Server, key: str, encryption: Encryption | None, expected: tuple[object, ...]
) -> None:
    """A created document, a replaced one, an object of one PUT and one of an upload; all are read back."""
    store = server.store(encryption=encryption)
    store.put_if_match(f"{key}/replaced", b"b", etag=store.put_new(f"{key}/replaced", b"a"))
    store.put_new(f"{key}/created", b"b")
    store.put_new(f"{key}/object", b"b", metadata={"x": "y"})
    upload(store, f"{key}/upload", b"b")
    for name in ("replaced", "created", "object", "upload"):
        head = server.head(f"{key}/{name}")
        found = (head.get("ServerSideEncryption"), head.get("SSEKMSKeyId"), head.get("BucketKeyEnabled"))
        if name == "upload":  # moto forgets the key of the bucket at the end of an upload
            found = (*found[:2], expected[2])
        assert found == expected, name
        stored = store.get(f"{key}/{name}")
        assert stored is not None
        assert stored.body == b"b"


def test_only_objects_have_a_storage_class_and_tags(server: Server, key: str) -> None:
    """Runs read control documents: these have neither. Tags are there as soon as the object is."""
    store = server.store(storage_class="STANDARD_IA")
    tags = {"team": "a b/c=d+e", "cost-center": "7"}
    store.put_if_match(f"{key}/replaced", b"b", etag=store.put_new(f"{key}/replaced", b"a"))
    store.put_new(f"{key}/object", b"b", metadata={}, tags=tags)
    upload(store, f"{key}/upload", b"b", tags=tags)
    assert "StorageClass" not in server.head(f"{key}/replaced")
    assert server.tags(f"{key}/replaced") == {}
    for name in ("object", "upload"):
        assert server.head(f"{key}/{name}")["StorageClass"] == "STANDARD_IA"
        assert server.tags(f"{key}/{name}") == tags


@pytest.mark.parametrize(
    ("acl", "of_documents"),
    [
        ("bucket-owner-full-control", "bucket-owner-full-control"),
        ("bucket-owner-read", "bucket-owner-read"),
        ("private", "private"),
        ("public-read", None),
        ("authenticated-read", None),
        ("aws-exec-read", None),
    ],
)
def test_documents_get_no_access_list_that_publishes_them(
    server: Server, key: str, acl: str, of_documents: str | None
) -> None:
    """Offsets and settings are not for readers of the objects. The header of each request is recorded."""
    store = server.store(acl=acl)
    sent: dict[str, str | None] = {}

    def record(request: Any, **_: object) -> None:
        sent[request.url.split("?")[0].rsplit("/", 1)[1]] = request.headers.get("x-amz-acl")

    store._client.meta.events.register("before-send.s3", record)
    etag = store.put_new(f"{key}-document", b"a")
    store.put_new(f"{key}-object", b"b", metadata={})
    store.create_upload(f"{key}-upload", metadata={})
    decoded = {name: None if value is None else str(value, "ascii") for name, value in sent.items()}  # type: ignore[arg-type]
    assert decoded == {f"{key}-document": of_documents, f"{key}-object": acl, f"{key}-upload": acl}
    store.put_if_match(f"{key}-document", b"b", etag=etag)
    assert (sent[f"{key}-document"] is None) == (of_documents is None)
    grants = server.client.get_object_acl(Bucket=BUCKET, Key=f"{key}-object")["Grants"]
    everyone = [grant for grant in grants if grant["Grantee"].get("URI", "").endswith("/AllUsers")]
    assert bool(everyone) == (acl == "public-read")


def test_an_archived_object_is_found_but_not_read(server: Server, key: str) -> None:
    """HEAD, by which runs check that objects exist, works; the error of GET says what to do."""
    store = server.store(storage_class="GLACIER")
    store.put_new(f"{key}/document", b"a")
    store.put_new(f"{key}/object", b"b", metadata={"x": "y"})
    found, document = store.head(f"{key}/object"), store.get(f"{key}/document")
    assert found is not None
    assert document is not None
    assert (found.size, dict(found.metadata), document.body) == (1, {"x": "y"}, b"a")
    with pytest.raises(ConfigurationError, match=r"archived .* restore-object.*storage_class='GLACIER_IR'"):
        store.get(f"{key}/object", start=0, end=1)


def test_a_customer_key_is_sent_with_every_request_that_needs_it(server: Server, key: str) -> None:
    """Writes, parts, completion, listing of parts, reads: the server refuses each of them without the key."""
    store, other = server.keyed(ONE), server.keyed(TWO)
    etag = store.put_new(f"{key}/document", b"a")
    store.put_if_match(f"{key}/document", b"b", etag=etag)
    upload_id = store.create_upload(f"{key}/upload", metadata={})
    parts = [
        store.upload_part(f"{key}/upload", upload_id, 1, bytes(PART)),
        store.upload_part(f"{key}/upload", upload_id, 2, b"x"),
    ]
    assert store.upload_exists(f"{key}/upload", upload_id)
    for refused in (other, server.store()):
        with pytest.raises(ConfigurationError, match="multipart upload"):
            refused.upload_part(f"{key}/upload", upload_id, 1, b"x")
        with pytest.raises(ConfigurationError, match="multipart upload"):
            refused.complete_upload(f"{key}/upload", upload_id, parts)
    store.complete_upload(f"{key}/upload", upload_id, parts)
    document, part, head = (
        store.get(f"{key}/document"),
        store.get(f"{key}/upload", start=PART, end=PART + 9),
        store.head(f"{key}/upload"),
    )
    assert document is not None
    assert part is not None
    assert head is not None
    assert (document.body, part.body, head.size) == (b"b", b"x", PART + 1)
    with pytest.raises(ConfigurationError, match="sse_customer_key"):
        server.store().get(f"{key}/document")
    aborted = store.create_upload(f"{key}/aborted", metadata={})
    server.store().abort_upload(f"{key}/aborted", aborted)
    assert not store.upload_exists(f"{key}/aborted", aborted)


def test_earlier_keys_and_no_key_are_read_after_a_change(server: Server, key: str) -> None:
    """A document of before encryption, one of an earlier key; the next write has the current one alone."""
    server.store().put_new(f"{key}/plain", b"plain")
    server.keyed(ONE).put_new(f"{key}/one", b"one")
    store = server.keyed(TWO, ONE)
    for name in ("plain", "one"):
        stored, head = store.get(f"{key}/{name}"), store.head(f"{key}/{name}")
        assert stored is not None
        assert head is not None
        assert (stored.body, head.size) == (name.encode(), len(name))
        store.put_if_match(f"{key}/{name}", b"two", etag=stored.etag)
        rotated = server.keyed(TWO).get(f"{key}/{name}")
        assert rotated is not None
        assert rotated.body == b"two"
    assert store.get(f"{key}/absent") is store.head(f"{key}/absent") is None


def test_an_upload_of_an_earlier_key_is_completed(server: Server, key: str) -> None:
    """A batch that was decided before the change of the key is rolled forward after it."""
    before = server.keyed(ONE)
    upload_id = before.create_upload(key, metadata={})
    part = before.upload_part(key, upload_id, 1, b"x")
    after = DurableStore(server.keyed(TWO, ONE), Retrier())
    assert after.upload_exists(key, upload_id)
    assert after.complete(key, upload_id, [part]) is CompleteResult.DONE
    head = after.head(key)
    assert head is not None
    assert head.size == 1


def test_encryption_with_customer_keys_can_be_ended(server: Server, key: str) -> None:
    """With the old key among the earlier ones, objects are read, and new ones have no key."""
    server.keyed(ONE).put_new(f"{key}/old", b"old")
    store = server.store(encryption=SseKms(), secrets=S3Secrets(earlier_customer_keys=(ONE,)))
    store.put_new(f"{key}/new", b"new")
    for name in ("old", "new"):
        stored = store.get(f"{key}/{name}")
        assert stored is not None
        assert stored.body == name.encode()
    assert server.head(f"{key}/new")["ServerSideEncryption"] == "aws:kms"


def test_a_wrong_customer_key_is_an_error_with_the_digests_of_the_keys(server: Server, key: str) -> None:
    """Keys are never quoted."""
    server.keyed(ONE).put_new(key, b"x")
    settings = S3Settings(secrets=S3Secrets(customer_key=ONE))
    with pytest.raises(AccessDeniedError) as caught:
        server.keyed(TWO).get(key)
    (note,) = caught.value.__notes__
    digest = S3Settings(secrets=S3Secrets(customer_key=TWO)).encryption_name.split()[1]
    assert re.search(rf"digests of the keys: {digest}\..*sse_customer_earlier_keys", note)
    assert settings.encryption_name.split()[1] not in note
    assert TWO not in f"{caught.value} {note}"


def test_a_bucket_that_blocks_customer_keys_is_named_as_a_cause() -> None:
    """AWS refuses the writes with an AccessDenied that does not name it."""

    def blocked(_: WSGIApplication) -> WSGIApplication:
        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            start_response("403 Forbidden", [])
            return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]

        return answer

    with ThreadedS3Server(middleware=blocked) as started:
        settings = S3Settings(endpoint_url=started.endpoint, region="us-east-1", secrets=S3Secrets(customer_key=ONE))
        store = S3Store(make_client(settings, ANY), "lake", settings)
        for write in (lambda: store.put_new("x", b""), lambda: store.create_upload("x", metadata={})):
            with pytest.raises(AccessDeniedError) as caught:
                write()
            assert "BlockedEncryptionTypes" in "".join(caught.value.__notes__)


def test_a_document_that_is_too_long_is_not_read(server: Server, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only ranges of an object may be read, whatever its size."""
    from airflow_provider_kafka_s3.storage import port

    monkeypatch.setattr(port, "MAX_WHOLE", 3)
    store = server.store()
    store.put_new(key, b"four")
    with pytest.raises(CorruptControlError, match="has 4 bytes, and this package writes at most 3"):
        store.get(key)
    part = store.get(key, start=0, end=4)
    assert part is not None
    assert part.body == b"four"


def test_tags_are_replaced_as_a_whole(store: ObjectStore, prefix: str) -> None:
    """On every store; an object that is gone has none."""
    key = f"{prefix}k"
    store.put_new(key, b"x", metadata={}, tags={"own": "a b", "old": "1"})
    assert store.put_tags(key, {"own": "a b", "startOffset": "7"})
    found: Any = store
    tags = (
        {tag["Key"]: tag["Value"] for tag in found._client.get_object_tagging(Bucket=BUCKET, Key=key)["TagSet"]}
        if isinstance(store, S3Store)
        else dict(found.tags(key))
    )
    assert tags == {"own": "a b", "startOffset": "7"}
    assert not store.put_tags(f"{prefix}absent", {"own": "1"})


class OtherETags:
    """A server whose ETags are no digests of the bytes, like those of objects with KMS or customer keys."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Turn every ETag around, on the way in and on the way out."""
        import io

        body = _turned(environ["wsgi.input"].read())
        environ = {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        if "HTTP_IF_MATCH" in environ:
            environ["HTTP_IF_MATCH"] = _turned(environ["HTTP_IF_MATCH"].encode()).decode()

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            turned = [(n, _turned(v.encode()).decode() if n.lower() == "etag" else v) for n, v in headers]
            return start_response(status, turned, *more)

        answer = b"".join(self._application(environ, start))
        return [_turned(answer)]


def _turned(text: bytes) -> bytes:
    return re.sub(rb'(ETag>|^)("|&quot;|&#34;)([0-9a-f]{32})', lambda found: found[1] + found[2] + found[3][::-1], text)


def test_an_etag_need_not_be_a_digest_of_the_bytes() -> None:
    """With KMS and customer keys it is none: documents are replaced and uploads completed all the same."""
    with ThreadedS3Server(buckets=["other-etags"], middleware=OtherETags) as started:
        settings = S3Settings(endpoint_url=started.endpoint, region="us-east-1")
        store = S3Store(make_client(settings, ANY), "other-etags", settings)
        etag = store.put_new("document", b"a")
        assert etag != '"0cc175b9c0f1b6a831c399e269772661"'
        store.put_if_match("document", b"b", etag=etag)
        upload(store, "upload", bytes(PART), b"x")
        stored, head = store.get("document"), store.head("upload")
        assert stored is not None
        assert head is not None
        assert (stored.body, head.size) == (b"b", PART + 1)


def test_a_debug_log_shows_a_customer_key_in_no_form_but_the_masked_one(
    server: Server, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Airflow masks the text of the connection; botocore would log the bytes of a key that it encodes itself."""
    store = server.keyed(ONE)
    with caplog.at_level(logging.DEBUG, logger="botocore"):
        store.put_new(key, b"x")
        store.get(key)
    masked = caplog.text.replace(ONE, "***")
    assert masked != caplog.text
    assert ONE[:20] not in masked
    assert "\\x01" * 8 not in masked
    assert "\x01" * 8 not in masked


def test_settings_show_no_secrets_and_can_be_sent() -> None:
    """To executors, pickled, and to the driver, as JSON."""
    secrets = S3Secrets(
        customer_key=ONE, earlier_customer_keys=(TWO,), proxy_user="canary-user", proxy_password="canary-password"
    )
    settings = S3Settings(proxy="http://proxy:3128", secrets=secrets, encryption=SseCustomer(), acl="private")
    for text in (repr(settings), str(settings), f"{secrets}"):
        assert "canary" not in text
        assert ONE not in text
        assert TWO not in text
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert msgspec.json.decode(msgspec.json.encode(settings), type=S3Settings) == settings
    assert hash(settings) == hash(pickle.loads(pickle.dumps(settings)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encryption": SseCustomer()}, "encryption='customer' needs a key: put sse_customer_key"),
        ({"secrets": S3Secrets(customer_key="secret-word")}, "sse_customer_key is not base64; it must be"),
        ({"secrets": S3Secrets(customer_key="c2VjcmV0")}, "sse_customer_key has 6 bytes; it must be the base64 of 32"),
        ({"secrets": S3Secrets(earlier_customer_keys=("",))}, "sse_customer_earlier_keys has 0 bytes"),
        (
            {"endpoint_url": "http://lake:9000", "secrets": S3Secrets(customer_key=ONE)},
            "sse_customer_key would be sent unencrypted to endpoint_url='http://lake:9000'; use https://",
        ),
        ({"accelerate": True, "endpoint_url": "https://lake"}, "use_accelerate_endpoint is AWS's own, .*remove one"),
        ({"dualstack": True, "endpoint_url": "https://lake"}, "use_dualstack_endpoint is AWS's own, .*remove one of"),
        ({"accelerate": True, "addressing_style": "path"}, "remove addressing_style='path'"),
        ({"proxy": "http://user:secret-word@proxy"}, "the proxy contains a login"),
        ({"proxy": "proxy:3128"}, "proxy='proxy:3128' must begin with http:// or https://"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], message: str) -> None:
    """The error names the setting and what to do, and quotes no secret."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        S3Settings(**settings)
    assert "secret-word" not in str(caught.value)
    assert "c2VjcmV0" not in str(caught.value)


def test_acceleration_needs_a_bucket_without_dots() -> None:
    """Its name is part of the name of a host with a certificate."""
    settings = S3Settings(accelerate=True, region="us-east-1")
    with pytest.raises(ConfigurationError, match=r"a bucket without '\.' in its name.*'my\.lake'"):
        S3Store(make_client(settings, ANY), "my.lake", settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"encryption": "AES256"}, "upload: encryption='AES256' is not known; use 's3', 'kms' or 'customer'"),
        ({"encryption": {"kind": "kms", "keyid": "x"}}, "no 'keyid'; did you mean 'key_id'"),
        ({"encryption": {"kind": "kms", "key_id": ""}}, "key_id=''"),
        ({"encryption": {"kind": "kms", "key_id": "a key"}}, "key_id='a key' is not a key of KMS; use"),
        ({"acl": "public"}, "upload: acl='public' is not known; did you mean 'public-read'"),
        ({"storage_class": "STANDARD_AI"}, "storage_class='STANDARD_AI' is not known; did you mean 'STANDARD_IA'"),
        ({"tags": {"": "x"}}, "tags: the key '' must have 1 to 128"),
        ({"tags": {"a" * 129: "x"}}, "must have 1 to 128"),
        ({"tags": {"a": "x" * 257}}, "of 'a' must have at most 256"),
        ({"tags": {"a": "x\n"}}, "the value 'x.n' of 'a' must have"),
        ({"tags": {"aws:x": "1"}}, "keys such as 'aws:x' are AWS's own; rename it"),
        ({"tags": {str(n): "" for n in range(11)}}, "tags has 11 tags, and S3 allows 10 of an object; use 10 at most"),
        (
            {"tags": {str(n): "" for n in range(8)}, "offset_tags": True},
            "tags has 8 tags, and S3 allows 10 of an object, of which offset_tags takes 3; use 7 at most",
        ),
        ({"tags": {"endOffset": "1"}, "offset_tags": True}, "'endOffset' is one of offset_tags; rename it"),
        ({"on_tag_error": "warn"}, "on_tag_error='warn' is not known; use 'fail' or 'ignore'"),
        ({"sse": "kms"}, "upload has no 'sse'"),
    ],
)
def test_an_upload_that_s3_would_refuse_is_refused_first(given: dict[str, Any], message: str) -> None:
    """The error names the field and what to do."""
    with pytest.raises(ConfigurationError, match=message):
        parse_upload(given)


def test_an_encryption_may_be_a_kind_alone() -> None:
    """As formats and partitioners are."""
    assert parse_upload({"encryption": "kms"}) == Upload(encryption=SseKms())
    assert parse_upload({"encryption": {"kind": "s3"}}) == parse_upload(Upload(encryption=SseS3()))
    assert parse_upload({"encryption": None}) == parse_upload(None) == Upload()


def test_a_customer_key_of_the_connection_is_used_unless_the_upload_names_another_encryption() -> None:
    """The upload has precedence; its error names the parameter."""
    keyed = S3Settings(secrets=S3Secrets(customer_key=ONE))
    assert keyed.for_upload(Upload()).effective_encryption == SseCustomer()
    assert keyed.for_upload(Upload(encryption=SseKms(key_id="k"))).encryption_name == "kms k"
    assert S3Settings().for_upload(Upload(encryption=SseKms())).encryption_name == "kms"
    assert S3Settings().for_upload(Upload(encryption=SseS3())).encryption_name == "s3"
    assert S3Settings().encryption_name == ""
    with pytest.raises(ConfigurationError, match="upload: encryption='customer' needs a key"):
        S3Settings().for_upload(Upload(encryption=SseCustomer()))
