"""The page about Kafka Connect has the tables of the code, and every converter."""

from __future__ import annotations

from airflow_provider_kafka_s3.kafka_connect.record_settings import CONVERTERS
from dev.docs.connect_settings import PAGE, with_tables


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    """``python -m dev.docs.connect_settings`` writes them."""
    page = PAGE.read_text()
    assert page.count("<!-- end -->") == 6
    assert page == with_tables(page)
    assert "| `flush.size` | parameter | `flush_size` of `rotation`" in page


def test_the_page_names_every_converter() -> None:
    """With the same kinds."""
    page = PAGE.read_text()
    assert all(f'| `{name}` | `"{kind}"' in page for name, kind in CONVERTERS.items())
