"""Airflow connections converted to settings; a missing one is never replaced by a default."""

from __future__ import annotations

import base64
import json
import shlex
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import AccessDeniedError, ConfigurationError, TransientError
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.storage.bucket import open_bucket
from airflow_provider_kafka_s3.storage.credentials import AssumedRole, S3Secrets
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings
from dev.forward_proxy import ForwardProxy
from dev.role_sessions import RoleSessions
from dev.s3_server import ThreadedS3Server
from tests.unit.operators.conftest import CANARY, SECRETS


@pytest.mark.parametrize(
    ("connection", "master"),
    [
        ('{"conn_type": "spark", "host": "local[2]"}', "local[2]"),
        ("spark://local%5B2%5D", "local[2]"),
        ("spark://sparkmaster:7077", "spark://sparkmaster:7077"),
        ('{"conn_type": "spark", "host": "h", "port": 7077}', "spark://h:7077"),
        ('{"conn_type": "spark", "host": "spark://h:7077"}', "spark://h:7077"),
        ('{"conn_type": "spark", "host": "yarn"}', "yarn"),
    ],
)
def test_the_master_is_that_of_airflow_s_hook(monkeypatch: pytest.MonkeyPatch, connection: str, master: str) -> None:
    """For every form of the connection."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from airflow_provider_kafka_s3.airflow.connections import spark_target

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_X", connection)
    target = spark_target("spark_x")
    assert (target.master, target.is_local) == (master, master.startswith("local["))
    assert SparkSubmitHook(conn_id="spark_x")._connection["master"] == master


def test_the_hook_submits_to_the_master_of_its_private_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator replaces the master there, so the attribute of the provider's hook has to exist."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_X", '{"conn_type": "spark", "host": "local[2]"}')
    hook = SparkSubmitHook(conn_id="spark_x")
    connection = getattr(hook, "_connection", None)
    assert isinstance(connection, dict), "the provider keeps no _connection any more: change SparkSubmitJob"
    assert connection.get("master") == "local[2]", "_connection has no master any more: change SparkSubmitJob"
    connection["master"] = "local[2,4]"
    command = hook._build_spark_submit_command("job.py")
    assert command[command.index("--master") + 1] == "local[2,4]", "the hook ignores _connection['master']"


def test_the_hook_starts_drivers_with_the_variables_of_its_private_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator moves them there, so the hook has to read them from there, and from nowhere else."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_X", '{"conn_type": "spark", "host": "yarn"}')
    hook = SparkSubmitHook(conn_id="spark_x", env_vars={"NAME": "value"})
    variables = (getattr(hook, "_env_vars", None), getattr(hook, "_env", ()))
    assert variables == ({"NAME": "value"}, None), "the provider keeps variables elsewhere: change SparkSubmitJob"
    hook._env, hook._env_vars = hook._env_vars, None
    assert "value" not in repr(hook._build_spark_submit_command("job.py"))
    assert hook._env == {"NAME": "value"}, "the hook forgets them: change SparkSubmitJob"


def test_kubernetes_needs_its_own_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it Airflow's hook fails with a NameError; here the error names the package to install."""
    from airflow_provider_kafka_s3.airflow import connections

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_X", '{"conn_type": "spark", "host": "k8s://https://k", "port": 6443}')
    with pytest.raises(
        ConfigurationError, match=r"apache-airflow-providers-cncf-kubernetes is not installed: .*Install it"
    ):
        connections.spark_target("spark_x")
    monkeypatch.setattr(connections.spark, "_has_kubernetes", lambda: True)
    assert connections.spark_target("spark_x").master == "k8s://https://k:6443"


def test_a_spark_connection_without_a_master_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's hook would use a master that is only a scheme."""
    from airflow_provider_kafka_s3.airflow.connections import spark_target

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_X", '{"conn_type": "spark"}')
    with pytest.raises(ConfigurationError, match="names no master; set its host"):
        spark_target("spark_x")


@pytest.mark.parametrize("resolve", ["kafka_config", "registry_access", "s3_access", "spark_target"])
def test_a_missing_connection_is_named_with_its_parameter(resolve: str) -> None:
    """Neither YARN nor the machine's credentials are used; the printed command is valid for this Airflow."""
    from airflow.cli.cli_parser import get_parser

    from airflow_provider_kafka_s3.airflow import connections

    expected = r"^there is no connection 'nowhere'\. .*_conn_id.*AIRFLOW_CONN_NOWHERE"
    with pytest.raises(ConfigurationError, match=expected) as missing:
        getattr(connections, resolve)("nowhere")
    command = shlex.split(str(missing.value).split("`")[1])
    parsed = get_parser().parse_args(command[1:])
    assert (command[0], parsed.conn_id) == ("airflow", "nowhere")
    assert resolve.startswith({"aws": "s3", "http": "registry"}.get(parsed.conn_type, parsed.conn_type))


# Airflow 2.11 still passes such an extra on, and warns that Airflow 3 does not.
@pytest.mark.filterwarnings("ignore:Encountered non-JSON in `extra` field:DeprecationWarning")
@pytest.mark.parametrize(("extra", "message"), [("{}", "extra is empty"), (f"{CANARY}", "extra is not a JSON object")])
def test_a_kafka_connection_needs_settings_and_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch, extra: str, message: str
) -> None:
    """The error does not quote the extra, which may contain secrets."""
    from airflow_provider_kafka_s3.airflow.connections import kafka_config

    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_X", json.dumps({"conn_type": "kafka", "extra": extra}))
    with pytest.raises(ConfigurationError, match=message) as error:
        kafka_config("kafka_x")
    assert CANARY not in str(error.value)


def test_an_aws_connection_becomes_settings_and_credentials(connections: None) -> None:
    """The endpoint of S3 overrides the general one; region, certificates, path style and keys are used."""
    from airflow_provider_kafka_s3.airflow.connections import s3_access

    access = s3_access("aws_default")
    assert access.settings == S3Settings(
        endpoint_url="http://lake:9000",
        region="eu-central-1",
        addressing_style="path",
        verify=True,
        ca_bundle="/etc/lake-ca.pem",
        connect_timeout=3.0,
    )
    assert access.credentials == S3Credentials(access_key_id="AKIACANARY", secret_access_key=SECRETS["aws"])
    assert CANARY not in repr(access)


def test_no_aws_connection_is_boto3_s_own_chain_on_purpose() -> None:
    """aws_conn_id=None has no settings and no credentials."""
    from airflow_provider_kafka_s3.airflow.connections import s3_access

    access = s3_access(None)
    assert (access.settings, access.credentials) == (S3Settings(), None)


def test_an_aws_connection_without_credentials_leaves_them_to_boto3_s_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still have the address of the store; each client looks for credentials itself."""
    from airflow_provider_kafka_s3.airflow.connections import s3_access

    extra = {"endpoint_url": "http://lake:9000", "verify": False}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_X", json.dumps({"conn_type": "aws", "extra": extra}))
    access = s3_access("aws_x")
    assert (access.settings.endpoint_url, access.settings.verify) == ("http://lake:9000", False)
    assert access.credentials is None


def test_settings_of_botocore_that_are_not_used_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """So that no setting is ignored silently."""
    from airflow_provider_kafka_s3.airflow.connections import s3_access

    extra = {"config_kwargs": {"proxies_config": {}, "s3": {"us_east_1_regional_endpoint": "legacy"}}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_X", json.dumps({"conn_type": "aws", "extra": extra}))
    with caplog.at_level("WARNING"):
        s3_access("aws_x")
    assert "not used for S3: proxies_config, s3.us_east_1_regional_endpoint" in caplog.text


def aws_connection(monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    """Have the connection ``aws_x``."""
    monkeypatch.setenv("AIRFLOW_CONN_AWS_X", json.dumps({"conn_type": "aws", "extra": extra}))


KEY = base64.b64encode(b"canary" + bytes(26)).decode()


@pytest.mark.parametrize(
    ("proxies", "endpoint", "expected"),
    [
        ({"https": "http://proxy:3128"}, None, ("http://proxy:3128", None, None)),
        ({"https": "proxy:3128"}, "https://lake", ("http://proxy:3128", None, None)),
        ({"https": "http://proxy:3128"}, "http://lake", (None, None, None)),
        ({"http": "http://a:1", "https": "http://b:2"}, "http://lake", ("http://a:1", None, None)),
        ({"https": "http://me:p%40ss@proxy:1"}, None, ("http://proxy:1", "me", "p@ss")),
        ({"https": "me:p@ss-word@proxy:1"}, None, ("http://proxy:1", "me", "p@ss-word")),
        ({}, None, (None, None, None)),
    ],
)
def test_a_proxy_of_an_aws_connection_has_its_login_among_the_secrets(
    monkeypatch: pytest.MonkeyPatch, proxies: dict[str, str], endpoint: str | None, expected: tuple[str | None, ...]
) -> None:
    """As botocore takes it, for the scheme of the endpoint; the password is masked as it is written and as it is."""
    from airflow.providers.common.compat import sdk

    from airflow_provider_kafka_s3.airflow.connections import s3_access

    masked: set[str] = set()
    monkeypatch.setattr(sdk, "mask_secret", masked.add, raising=False)
    aws_connection(monkeypatch, config_kwargs={"proxies": proxies}, endpoint_url=endpoint)
    settings = s3_access("aws_x").settings
    assert (settings.proxy, settings.secrets.proxy_user, settings.secrets.proxy_password) == expected
    assert "ss" not in repr(settings.proxy)
    # Airflow masks no shorter one than five characters.
    assert masked == {word for word in ("p%40ss", "p@ss-word") if word in str(proxies)}


def test_acceleration_and_customer_keys_of_an_aws_connection_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys are masked in all later logs, and not in the repr."""
    from airflow.providers.common.compat import sdk

    from airflow_provider_kafka_s3.airflow.connections import s3_access

    masked: set[str] = set()
    monkeypatch.setattr(sdk, "mask_secret", masked.add, raising=False)
    earlier = base64.b64encode(bytes(32)).decode()
    aws_connection(
        monkeypatch,
        config_kwargs={"s3": {"use_accelerate_endpoint": True}, "use_dualstack_endpoint": True},
        sse_customer_key=KEY,
        sse_customer_earlier_keys=[earlier],
    )
    access = s3_access("aws_x")
    assert access.settings.accelerate
    assert access.settings.dualstack
    assert access.settings.secrets == S3Secrets(customer_key=KEY, earlier_customer_keys=(earlier,))
    assert masked == {KEY, earlier}
    assert KEY not in repr(access)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"sse_customer_key": 7}, "sse_customer_key of the extra must be text"),
        ({"sse_customer_key": "c2VjcmV0"}, "sse_customer_key has 6 bytes; it must be the base64 of 32"),
        ({"sse_customer_earlier_keys": {"a": 1}}, "sse_customer_earlier_keys of the extra must be a list"),
        ({"sse_customer_keys": KEY}, "the extra has no 'sse_customer_keys'; did you mean 'sse_customer_key'"),
        ({"sse_customer_key": KEY, "endpoint_url": "http://lake"}, "would be sent unencrypted to endpoint_url"),
        ({"config_kwargs": {"proxies": "http://me:c2VjcmV0@p"}}, "proxies of config_kwargs must be an object such as"),
        ({"config_kwargs": {"proxies": {"ftp": "c2VjcmV0"}}}, "proxies of config_kwargs has ftp; it may have 'http'"),
        ({"config_kwargs": {"proxies": {"https": "socks5://me:c2VjcmV0@p"}}}, "proxy='socks5://p' must begin with"),
        (
            {"config_kwargs": {"s3": {"use_accelerate_endpoint": "yes"}}},
            "use_accelerate_endpoint='yes' .*true or false",
        ),
        (
            {"config_kwargs": {"s3": {"use_dualstack_endpoint": 1}}},
            "use_dualstack_endpoint=1 .*true or false",
        ),
        (
            {"config_kwargs": {"s3": {"use_accelerate_endpoint": True}}, "endpoint_url": "https://lake"},
            "endpoint_url='https://lake' is another address; remove one",
        ),
    ],
)
def test_wrong_settings_of_an_aws_connection_are_named_without_their_secrets(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], message: str
) -> None:
    """With the connection."""
    from airflow_provider_kafka_s3.airflow.connections import s3_access

    aws_connection(monkeypatch, **extra)
    with pytest.raises(ConfigurationError, match=rf"aws_conn_id='aws_x': .*{message}") as caught:
        s3_access("aws_x")
    assert "c2VjcmV0" not in str(caught.value)
    assert KEY not in str(caught.value)


ROLE = "arn:aws:iam::123456789012:role/lake"


def _assumed(
    monkeypatch: pytest.MonkeyPatch,
    get_credentials: Any,
    *,
    more: dict[str, Any] | None = None,
    login: dict[str, str] | None = None,
) -> None:
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    extra = {"role_arn": ROLE, "region_name": "eu-central-1", **(more or {})}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_X", json.dumps({"conn_type": "aws", "extra": extra, **(login or {})}))
    session = SimpleNamespace(get_credentials=get_credentials)
    monkeypatch.setattr(AwsGenericHook, "get_session", lambda _: session)


def _session_of_a_role() -> Any:
    frozen = SimpleNamespace(access_key="ASIA", secret_key="s" * 20, token="t" * 20)
    end = datetime(2026, 1, 1, tzinfo=UTC)
    return SimpleNamespace(get_frozen_credentials=lambda: frozen, _expiry_time=end)


@pytest.mark.parametrize(
    ("more", "login", "role"),
    [
        ({}, {}, AssumedRole(arn=ROLE, session_name="Airflow_aws_x")),
        (
            {"assume_role_kwargs": {"ExternalId": "x", "DurationSeconds": 900}},
            {"login": "AKIA", "password": "p" * 20},
            AssumedRole(
                arn=ROLE,
                session_name="Airflow_aws_x",
                arguments='{"DurationSeconds": 900, "ExternalId": "x"}',
                base=S3Credentials(access_key_id="AKIA", secret_access_key="p" * 20),
            ),
        ),
        (
            {"service_config": {"sts": {"endpoint_url": "https://sts"}}, "endpoint_url": "https://lake"},
            {},
            AssumedRole(arn=ROLE, session_name="Airflow_aws_x", sts_endpoint="https://sts"),
        ),
        (
            {
                "assume_role_method": "assume_role_with_web_identity",
                "assume_role_with_web_identity_federation": "file",
                "assume_role_with_web_identity_token_file": "/run/token",
            },
            {},
            AssumedRole(arn=ROLE, session_name="Airflow_aws_x", token_file="/run/token"),
        ),
        (
            {
                "assume_role_method": "assume_role_with_web_identity",
                "assume_role_with_web_identity_federation": "google",
            },
            {},
            None,
        ),
    ],
)
def test_the_session_of_a_role_is_passed_on_with_the_arguments_that_renew_it(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], login: dict[str, str], role: AssumedRole | None
) -> None:
    """Its end, and the role; only a role of a Google identity cannot be assumed by others."""
    from airflow_provider_kafka_s3.airflow.connections import s3_access

    _assumed(monkeypatch, _session_of_a_role, more=more, login=login)
    access = s3_access("aws_x")
    assert access.credentials == S3Credentials(
        access_key_id="ASIA",
        secret_access_key="s" * 20,
        session_token="t" * 20,
        expires_at=datetime(2026, 1, 1, tzinfo=UTC).timestamp(),
        role=role,
    )
    assert "pppp" not in f"{access!r} {role!r} {[role]}"


def test_a_refused_role_is_terminal_and_an_unreachable_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow retries only if a retry may succeed."""
    from botocore.exceptions import ClientError, ConnectTimeoutError, NoCredentialsError

    from airflow_provider_kafka_s3.airflow.connections import s3_access

    def failing(error: Exception) -> Any:
        def get_credentials() -> None:
            raise error

        return get_credentials

    denied = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRole")
    for error, expected in (
        (denied, AccessDeniedError),
        (ConnectTimeoutError(endpoint_url="https://sts"), TransientError),
        (NoCredentialsError(), ConfigurationError),
    ):
        _assumed(monkeypatch, failing(error))
        with pytest.raises(expected, match="aws_x"):
            s3_access("aws_x")


def test_a_role_is_assumed_again_as_airflow_s_hook_assumed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By HTTP, and through the proxy: the external id, the name and the length of the session are in both requests."""
    from airflow_provider_kafka_s3.airflow.connections import s3_access

    gates: list[RoleSessions] = []

    def middleware(application: Any) -> RoleSessions:
        gates.append(RoleSessions(application, trusted=["AKIABASE"]))
        return gates[0]

    server = ThreadedS3Server(buckets=["of-partners"], middleware=middleware)
    with server, ForwardProxy(user="me", password="p@ss-word") as proxy:
        given = {"ExternalId": "partner-7", "RoleSessionName": "landing", "DurationSeconds": 900}
        extra = {
            "region_name": "us-east-1",
            "role_arn": ROLE,
            "assume_role_kwargs": given,
            "service_config": {
                "s3": {"endpoint_url": server.endpoint},
                "sts": {"endpoint_url": server.endpoint},
            },
            "config_kwargs": {"proxies": {"http": proxy.address.replace("://", "://me:p%40ss-word@")}},
        }
        aws = {"conn_type": "aws", "login": "AKIABASE", "password": "p" * 20, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_AWS_X", json.dumps(aws))
        access = s3_access("aws_x")
        gates[0].end_all()
        store = open_bucket("of-partners", access.settings, access.credentials)
        assert store.create("document", b"x") == b"x"
        requests = [{name: form[name] for name in given} for form in gates[0].given]
        assert requests == [{name: str(value) for name, value in given.items()}] * 2
        assert proxy.seen.count(("POST", f"{server.endpoint}/")) == 2


def test_secrets_of_connections_are_masked(monkeypatch: pytest.MonkeyPatch, connections: None) -> None:
    """In all later logs; certificates line by line."""
    from airflow.providers.common.compat import sdk

    from airflow_provider_kafka_s3.airflow.connections import kafka_config, mask_options, s3_access

    masked: set[str] = set()
    monkeypatch.setattr(sdk, "mask_secret", masked.add, raising=False)
    pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END PRIVATE KEY-----\n"
    extra = {"bootstrap.servers": "broker:9092", "ssl.key.pem": pem, "ssl.key.location": "/etc/kafka/client.key"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_X", json.dumps({"conn_type": "kafka", "extra": extra}))
    kafka_config("kafka_x")
    kafka_config("kafka_default")
    s3_access("aws_default")
    mask_options({"kafka.sasl.jaas.config": SECRETS["options"], "kafka.fetch.max.bytes": "1048576"})
    assert {*SECRETS.values(), "MIIEvQIBADANBgkqhkiG9w0"} <= masked
    assert not {"-----BEGIN PRIVATE KEY-----", "/etc/kafka/client.key", "1048576", "broker:9092"} & masked


@pytest.mark.parametrize(
    ("name", "value", "masked"),
    [
        ("sasl.password", 20130101, {"20130101"}),
        ("sasl.password", 123456, {"123456"}),
        ("sasl.password", "12345", {"12345"}),
        # Airflow masks no shorter one.
        ("sasl.password", "1234", set()),
        ("ssl.key.password", "geheim", {"geheim"}),
        ("sasl.oauthbearer.client.secret", 12345.5, {"12345.5"}),
        # Too short: it may be part of other text.
        ("sasl.password", 123, set()),
        ("ssl.ca.pem", "-----BEGIN X-----\nc2hvcnQ\n-----END X-----", set()),
        ("fetch.max.bytes", 20130101, set()),
        ("ssl.key.location", "/etc/key", set()),
        ("some.secret", True, set()),
        ("some.secret", None, set()),
    ],
)
def test_a_password_is_masked_though_it_is_short_or_a_number(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object, masked: set[str]
) -> None:
    """As logs and errors show it, without quotes. Short lines of certificates and other settings stay readable."""
    from airflow.providers.common.compat import sdk

    from airflow_provider_kafka_s3.airflow.connections import kafka_config

    found: set[str] = set()
    monkeypatch.setattr(sdk, "mask_secret", found.add, raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_X", json.dumps({"conn_type": "kafka", "extra": {name: value}}))
    assert kafka_config("kafka_x") == {name: value}
    assert found == masked


def registry_connection(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Have the connection ``registry_x``."""
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY_X", json.dumps({"conn_type": "http", **fields}))


@pytest.mark.parametrize(
    ("connection", "urls"),
    [
        ('{"conn_type": "http", "host": "registry", "port": 8081}', ["http://registry:8081"]),
        ('{"conn_type": "http", "host": "registry", "port": 8081, "schema": "https"}', ["https://registry:8081"]),
        ('{"conn_type": "https", "host": "registry"}', ["https://registry"]),
        ('{"conn_type": "http", "host": "https://registry/"}', ["https://registry"]),
        ('{"conn_type": "http", "host": "https://registry/apis/v7", "port": 81}', ["https://registry:81/apis/v7"]),
        ('{"conn_type": "http", "host": "registry/apis/v7", "port": 81}', ["http://registry:81/apis/v7"]),
        ('{"conn_type": "http", "host": "http://registry:80/v7", "port": 80}', ["http://registry:80/v7"]),
        ('{"conn_type": "http", "host": "http://[::1]", "port": 80}', ["http://[::1]:80"]),
        ("http://registry:8081/https", ["https://registry:8081"]),
        ('{"conn_type": "http", "extra": {"urls": ["http://a", "http://b"]}}', ["http://a", "http://b"]),
        ('{"conn_type": "http", "host": "a", "extra": {"urls": ["http://b", "http://a/"]}}', ["http://a", "http://b"]),
    ],
)
def test_a_registry_is_where_host_port_schema_and_urls_are(
    monkeypatch: pytest.MonkeyPatch, connection: str, urls: list[str]
) -> None:
    """In any of the forms that connections of type http have; each address once."""
    from airflow_provider_kafka_s3.airflow.connections import registry_access

    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY_X", connection)
    assert registry_access("registry_x") == RegistrySettings(urls=tuple(urls), name="registry_x")


def test_the_login_of_a_registry_travels_with_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files are read here, so that executors need none; what is empty in Airflow's form is not there."""
    from airflow_provider_kafka_s3.airflow.connections import registry_access

    pem = "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END CERTIFICATE-----\n"
    for name in ("ca", "key"):
        (tmp_path / name).write_text(f"{name}: {pem}")
    extra = {
        "ca": str(tmp_path / "ca"),
        "certificate": pem,
        "key": str(tmp_path / "key"),
        "key_password": "p",
        "timeout": 3,
        "bearer_token": "",
        "urls": None,
    }
    registry_connection(monkeypatch, host="https://r", login="u", password="pw", extra=extra)
    assert registry_access("registry_x") == RegistrySettings(
        name="registry_x",
        urls=("https://r",),
        user="u",
        password="pw",
        ca=f"ca: {pem}",
        certificate=pem,
        key=f"key: {pem}",
        key_password="p",
        timeout=3.0,
    )
    registry_connection(monkeypatch, host="https://r", extra={"bearer_token": "t"})
    assert registry_access("registry_x") == RegistrySettings(urls=("https://r",), bearer_token="t", name="registry_x")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "names no schema registry; set its host"),
        ({"host": "r", "conn_type": "kafka"}, "has the type 'kafka'; a schema registry needs the type 'http'"),
        ({"host": "r", "schema": "ftp"}, "must begin with http"),
        ({"host": "r", "extra": {"bearertoken": CANARY}}, "has no 'bearertoken'.*'bearer_token'"),
        ({"host": "r", "extra": {"schema.registry.url": "x"}}, "has no 'schema.registry.url'.*it may have urls, "),
        ({"host": "r", "extra": {"urls": "http://a"}}, "urls of the extra must be a list of URLs"),
        ({"host": "r", "extra": {"urls": [1]}}, "urls of the extra must be a list of URLs"),
        ({"host": "r", "extra": {"timeout": "3"}}, "timeout of the extra must be a number of seconds"),
        ({"host": "r", "extra": {"timeout": True}}, "timeout of the extra must be a number of seconds"),
        ({"host": "r", "extra": {"timeout": -1}}, "must be positive"),
        ({"host": "r", "extra": {"bearer_token": [CANARY]}}, "bearer_token of the extra must be text"),
        (
            {"host": "r", "extra": {"ca": "/no/such/file"}},
            r"ca of the extra is neither a PEM text nor a file .*\(No such",
        ),
        (
            {"host": "r", "extra": {"certificate": "c\0", "key": CANARY}},
            "certificate of the extra is neither .*not text",
        ),
        ({"host": "r", "extra": {"key": CANARY}}, "key of the extra is neither"),
        ({"host": "r", "login": "u"}, "give both or neither"),
        ({"host": "r", "password": CANARY}, "give both or neither"),
        ({"host": f"http://u:{CANARY}@r"}, "contains credentials"),
    ],
)
def test_a_registry_connection_that_cannot_be_meant_is_refused(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], message: str
) -> None:
    """It is named, with the way out, and without what is secret."""
    from airflow_provider_kafka_s3.airflow.connections import registry_access

    registry_connection(monkeypatch, **fields)
    with pytest.raises(ConfigurationError, match=rf"^registry_conn_id='registry_x': .*{message}") as error:
        registry_access("registry_x")
    assert CANARY not in str(error.value)


def test_secrets_of_a_registry_connection_are_masked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Password, token, and the key with its password, wherever it is; addresses and certificates stay readable."""
    from airflow.providers.common.compat import sdk

    from airflow_provider_kafka_s3.airflow.connections import registry_access

    masked: set[str] = set()
    monkeypatch.setattr(sdk, "mask_secret", masked.add, raising=False)
    (tmp_path / "key").write_text("-----BEGIN PRIVATE KEY-----\nZmlsZTpNSUlFdlFJQkFEQU5C\n-----END PRIVATE KEY-----\n")
    extra = {
        "key": str(tmp_path / "key"),
        "key_password": "key-password",
        "certificate": "-----BEGIN X-----\nlong-long",
    }
    registry_connection(monkeypatch, host="https://r", login="user-name", password="pass-word", extra=extra)
    registry_access("registry_x")
    key = "-----BEGIN PRIVATE KEY-----\nTUlJRXZRSUJBREFO\n-----END PRIVATE KEY-----"
    registry_connection(monkeypatch, host="r", extra={**extra, "key": key, "bearer_token": "bearer-token"})
    registry_access("registry_x")
    assert {"pass-word", "bearer-token", "key-password", "ZmlsZTpNSUlFdlFJQkFEQU5C", "TUlJRXZRSUJBREFO"} <= masked
    assert not {"https://r", "user-name", "long-long", "-----BEGIN PRIVATE KEY-----"} & masked
