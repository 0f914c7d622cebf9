"""Templates of file names: parsed names, and no two objects with one name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_kafka_s3.config import JsonLines, Layout, Naming, SiblingObjects, StringConverter
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout.keys import (
    data_key,
    dead_letters_key,
    encoded_partition_parser,
    parse_data_key,
    sibling_key,
)

AIVEN = "{{topic}}-{{partition}}-{{start_offset}}"
pieces = st.sampled_from(["{{topic}}", "-", "0", "7-", "x1", "+g", ".", "{{ topic }}", "é"])


def layout(template: str, **more: str) -> Layout:
    """A layout of names by this template."""
    return Layout(format=JsonLines(), naming=Naming(file_name_template=template, **more))  # type: ignore[arg-type]


def key(settings: Layout, topic: str = "t", partition: int = 3, first_offset: int = 7, generation: int = 0) -> str:
    """The key of an object."""
    return data_key(
        settings,
        topic=topic,
        encoded_partition="p",
        partition=partition,
        first_offset=first_offset,
        generation=generation,
    )


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (AIVEN, "t-3-7"),
        ("{{topic}}-{{partition:padding=true}}-{{start_offset:padding=true}}", "t-0000000003-00000000000000000007"),
        ("part-{{ partition }}_{{start_offset:padding=false}}", "part-3_7"),
        ("{{start_offset}}-{{partition}}", "7-3"),
        ("{{topic}}{{partition}}x{{start_offset}}-v1", "t3x7-v1"),
    ],
)
def test_names_have_the_variables_of_aiven(template: str, name: str) -> None:
    """And the extension of the format behind them."""
    assert key(layout(template)) == f"topics/t/p/{name}.json"


def test_a_template_names_all_objects_of_a_topic() -> None:
    """Dead letters and siblings too; the prefix of the topic and its incarnation are in the names."""
    settings = layout(AIVEN, topic_prefix="topic=")
    assert key(settings, generation=2) == "topics/topic=t/p/topic=t-3-7+g2.json"
    dead = dead_letters_key(settings, topic="t", partition=3, first_offset=7, generation=0)
    assert dead == "topics/topic=t/_dead_letters/topic=t-3-7.json"
    assert parse_data_key(settings, "t", dead) == (3, 7, 0)
    beside = Layout(
        format=JsonLines(),
        naming=Naming(file_name_template=AIVEN),
        content=SiblingObjects(keys=JsonLines()),
        key_converter=StringConverter(),
    )
    assert sibling_key(beside, key(beside), ".keys") == "topics/t/p/t-3-7.keys.json"
    assert parse_data_key(beside, "t", "topics/t/p/t-3-7.keys.json") == (3, 7, 0)


@given(
    before=st.lists(pieces, max_size=3),
    between=st.lists(pieces, max_size=3),
    after=st.lists(pieces, max_size=3),
    padded=st.booleans(),
    topic=st.sampled_from(["t", "1", "t-1", "7-0"]),
    partition=st.integers(0, 1200),
    offset=st.integers(0, 2**63 - 1) | st.integers(0, 120),
    generation=st.integers(0, 12),
)
def test_partition_offset_and_generation_are_parsed_from_every_name(
    before: list[str],
    between: list[str],
    after: list[str],
    padded: bool,
    topic: str,
    partition: int,
    offset: int,
    generation: int,
) -> None:
    """So two objects never have the same name."""
    option = ":padding=true" if padded else ""
    numbers = [f"{{{{partition{option}}}}}", f"{{{{start_offset{option}}}}}"]
    try:
        settings = layout("".join([*before, numbers[0], *between, numbers[1], *after]))
    except ConfigurationError:
        return
    made = key(settings, topic, partition, offset, generation)
    assert parse_data_key(settings, topic, made) == (partition, offset, generation)
    assert encoded_partition_parser(settings, topic)(made) == "p"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{topic}}", r"has no {{partition}} and no {{start_offset}}, so objects would have the same name"),
        ("{{topic}}-{{start_offset}}", r"has no {{partition}}, so"),
        ("{{partition}}", r"has no {{start_offset}}, so"),
        ("", r"has no {{partition}} and no"),
        ("{{partition}}{{start_offset}}", "nothing but digits between partition and offset"),
        ("{{partition}}00{{topic}}{{start_offset}}", "nothing but digits between partition and offset"),
        ("{{partition}}-{{partition}}-{{start_offset}}", "has a number twice"),
        ("{{partition}}-{{start_offset}}-{{timestamp:unit=yyyy}}", "do not depend on the clock"),
        ("{{partition}}-{{start_offset}}-{{key}}", "use partitioner='key'"),
        ("{{partition}}-{{start_ofset}}", "unknown variable 'start_ofset'; did you mean 'start_offset'"),
        ("{{partition}}-{{start_offset:pad=3}}", "unknown option 'pad=3' of start_offset"),
        ("{{topic:padding=true}}-{{partition}}-{{start_offset}}", "unknown option 'padding=true' of topic"),
        ("{{partition}}/{{start_offset}}", "has '/', which makes folders"),
        ("_{{partition}}-{{start_offset}}", "readers skip files with such names"),
        ("{{partition}}-{{start_offset}}-{{", "braces that do not belong together"),
        ("{{partition}}-{{start_offset}}\n", "characters that no object key should have"),
    ],
)
def test_other_templates_are_refused(template: str, message: str) -> None:
    """When the DAG is parsed, with the cause and what to use."""
    with pytest.raises(ConfigurationError, match=message):
        Naming(file_name_template=template)
