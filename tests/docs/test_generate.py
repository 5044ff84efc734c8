"""The generated pages are up to date and complete."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable

import pytest

from aiokafkawire import errors
from aiokafkawire.broker.options import BrokerConfig
from aiokafkawire.config import (
    AdminConfig,
    ConsumerConfig,
    ProducerConfig,
    ShareConsumerConfig,
    WorkerConfig,
    list_options,
)
from aiokafkawire.kafka07 import Kafka07Config

from .pages import ROOT

GENERATOR = runpy.run_path(str(ROOT / "docs" / "generate.py"))
MADE: dict[str, Callable[[], str]] = GENERATOR["PAGES"]


@pytest.mark.parametrize("name", MADE)
def test_generated_page_is_up_to_date(name: str):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert text == MADE[name](), f"docs/{name} is old: run `make docs`"


@pytest.mark.parametrize(
    ("headings", "config_class"),
    [
        (("Every client", "Producer"), ProducerConfig),
        (("Every client", "Consumer"), ConsumerConfig),
        (("Every client", "Share consumer"), ShareConsumerConfig),
        (("Every client", "Admin"), AdminConfig),
        (("Every client", "Worker"), WorkerConfig),
        (("The client for Kafka 0.7",), Kafka07Config),
        (("The embedded broker",), BrokerConfig),
    ],
)
def test_every_option_has_one_row(headings: tuple[str, ...], config_class: type):
    page = MADE["options.md"]()
    tables = [page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0] for heading in headings]
    documented = re.findall(r"^\| `(\w+)`", "".join(tables), re.MULTILINE)
    assert sorted(documented) == sorted(option.name for option in list_options(config_class))


def test_only_options_that_kafka_has_name_those():
    page = MADE["options.md"]()
    assert "| `acks`<br>acks |" in page
    assert "| `processing_guarantee`<br>processing.guarantee |" in page
    for own in ("hooks", "concurrency", "health_port", "client_telemetry"):
        assert f"| `{own}` |" in page


def test_every_public_error_has_a_section_with_a_remedy():
    page = MADE["errors.md"]()
    named = [name for names in GENERATOR["ERRORS"].values() for name in names]
    assert sorted(named) == sorted(errors.__all__)
    for name in named:
        section = page.partition(f"\n### {name}\n")[2].partition("\n##")[0]
        assert section.count("\n- What to do: ") == 1, name
        assert section.count("\n- Retriable: ") == 1, name


def test_retriable_agrees_with_the_class():
    page = MADE["errors.md"]()
    for name, said in (
        ("ConnectionLost", "yes."),
        ("DeliveryUnknown", "no."),
        ("BrokerError", "as the code says."),
        ("RequestTimedOut", "yes. Also a `TimeoutError`."),
        ("FencedInstanceId", "no. Also a `GroupFailed`."),
    ):
        assert f"- Retriable: {said}\n" in page.partition(f"\n### {name}\n")[2].partition("###")[0]
