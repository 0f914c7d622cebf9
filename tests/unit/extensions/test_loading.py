"""Classes of other packages: how they are found, what they declare, and that a plan holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3 import config
from airflow_provider_kafka_s3.documents import codec
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.extensions.loading import pinned, require_pinned
from tests.unit.extensions.conftest import WriteModule

CLASS = """
class P(Partitioner):
    {}
    def __init__(self, *, names=()):
        self.names = names
    def encode(self, batch):
        raise NotImplementedError
"""


def layout(import_path: str, **options: Any) -> config.Layout:
    """A layout of JSON documents with this partitioner."""
    return config.Layout(
        format=config.JsonLines(), partitioner=config.CustomPartitioner(import_path=import_path, options=options)
    )


def test_a_plan_holds_what_the_class_declares(write_module: WriteModule) -> None:
    """Version, parts of records and fields, with the options; as JSON and back, it is the same layout."""
    name = write_module(CLASS.format("version, fields, reads = '7', ['a.b'], ['key']"))
    found = pinned(layout(f"{name}:P", names=("x", {"y": [1, None, True]})))
    assert isinstance(found.partitioner, config.CustomPartitioner)
    assert found.partitioner.options == {"names": ["x", {"y": [1, None, True]}]}
    assert found.partitioner.pinned is not None
    assert found.partitioner.pinned == config.Pinned(version="7", reads=("key",), fields=("a.b",))
    read = msgspec.convert(codec.builtins(found), config.Layout, dec_hook=lambda _, value: config.decode_naming(value))
    assert read == found
    assert pinned(found) is found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"import_path": "shelf.tenants.Tenants"}, "is no module and class with a colon between them"),
        ({"import_path": "a b:C"}, "is no module and class"),
        (
            {"import_path": "a:B", "options": {"x": 0.5}},
            r"options\['x'\]=0.5 cannot be in a plan: .* text such as '0.5'",
        ),
        ({"import_path": "a:B", "options": {"x": [2**63]}}, r"options\['x'\]\[0\]=\d+ cannot be in a plan"),
        ({"import_path": "a:B", "options": {"x": {1: 2}}}, r"options\['x'\]=\{1: 2\} cannot be in a plan"),
        ({"import_path": "a:B", "options": {"x": b""}}, r"options\['x'\]=b'' cannot be in a plan"),
        ({"import_path": "a:B", "options": {"x-y": 1}}, "'x-y' is no name of a keyword argument"),
        ({"import_path": "a:B", "option": {}}, "has no 'option'; did you mean 'options'"),
        ({}, "needs 'import_path', which must be text that is not empty, such as"),
    ],
)
def test_settings_that_no_plan_could_hold_are_refused(given: dict[str, Any], message: str) -> None:
    """When the DAG is parsed, for both kinds."""
    for parse in (config.parse_partitioner, config.parse_format):
        with pytest.raises(ConfigurationError, match=message):
            parse({"kind": "custom", **given})


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "P", "is no class that derives from airflow_provider_kafka_s3.extensions.Partitioner"),
        ("def P(**options): return None", "P", "is no class that derives from"),
        ("from subprocess import Popen as P", "P", "is no class that derives from"),
        ("class F(Format):\n    version = '1'\n    def encode(self, batch): ...", "F", "is no class that derives from"),
        ("raise OSError('broken')", "P", r"cannot be imported in .*python.* \(OSError: broken\); install its package"),
        (CLASS.format("version = '1'"), "P.x", "is no class that derives from"),
        (CLASS.format("pass"), "P", "declares something wrong: version='' must be text that is not empty"),
        (CLASS.format("version = 1"), "P", "declares something wrong: version=1 must be text"),
        (CLASS.format("version, reads = '1', ['value']"), "P", "declares something wrong: reads="),
        (CLASS.format("version, fields = '1', 'tenant'"), "P", "fields and reads are lists of texts"),
        (CLASS.format("version, fields = '1', ['a..b']"), "P", "'a..b' is no name of a field"),
        (
            CLASS.format("version, max_path_bytes = '1', 1000"),
            "P",
            "max_path_bytes=1000 must be a whole number of bytes from 1 to 900",
        ),
        ("class P(Partitioner):\n    version = '1'", "P", "cannot be made with options={} .*abstract"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused(write_module: WriteModule, text: str, name: str, message: str) -> None:
    """With its import path and the reason; nothing but a class of the interface is ever called."""
    module = write_module(text)
    with pytest.raises(ConfigurationError, match=message) as raised:
        pinned(layout(f"{module}:{name}"))
    assert str(raised.value).startswith(f"import_path='{module}:{name}' ")


def test_wrong_options_are_refused(write_module: WriteModule) -> None:
    """As the class refuses them."""
    name = write_module(CLASS.format("version = '1'"))
    with pytest.raises(ConfigurationError, match=r"cannot be made with options=\{'nmaes': 1\} \(TypeError: .*'nmaes'"):
        pinned(layout(f"{name}:P", nmaes=1))


def test_another_version_refuses_the_plan(write_module: WriteModule, tmp_path: Path) -> None:
    """Its objects may have other names; so may those of code that declares something else with the same version."""
    name = write_module(CLASS.format("version = '2'"))
    plan = pinned(layout(f"{name}:P"))
    require_pinned(plan, "batch 4")
    assert isinstance(plan.partitioner, config.CustomPartitioner)

    def planned_with(**declared: Any) -> config.Layout:
        partitioner = msgspec.structs.replace(plan.partitioner, pinned=config.Pinned(**declared))
        return msgspec.structs.replace(plan, partitioner=partitioner)

    with pytest.raises(
        ConfigurationError,
        match=rf"^batch 4 was planned with version '1' of {name}:P, and in .* it has version '2'.* Install version '1'",
    ):
        require_pinned(planned_with(version="1"), "batch 4")
    with pytest.raises(ConfigurationError, match=r"declared reads=\['key'\] .* declares reads=\[\] .*another version"):
        require_pinned(planned_with(version="2", reads=("key",)), "batch 4")


def test_fields_of_a_class_need_values_with_fields(write_module: WriteModule) -> None:
    """The error is that of any partitioner, before anything is planned."""
    name = write_module(CLASS.format("version, fields = '1', ['tenant']"))
    with pytest.raises(ConfigurationError, match="the partitioner looks at the fields tenant, and BytesConverter"):
        pinned(msgspec.structs.replace(layout(f"{name}:P"), format=config.RawBytes(), value_converter=None))
