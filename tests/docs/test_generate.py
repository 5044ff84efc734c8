"""The generated pages are up to date and complete."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokafkawire import errors
from aiokafkawire.broker.configs.brokers import BROKER_CONFIGS, STATIC_CONFIGS
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


NAMES_IN_JAVA = {
    name
    for line in Path(__file__).with_name("java_config_names.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
    for name in line.split()
}
NAMES_IN_BROKERS = {
    *BROKER_CONFIGS,
    *STATIC_CONFIGS,
    "allow.everyone.if.no.acl.found",  # of the authorizer
    "group.consumer.regex.refresh.interval.ms",
}


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Every client", NAMES_IN_JAVA),
        ("Producer", NAMES_IN_JAVA),
        ("Consumer", NAMES_IN_JAVA),
        ("Share consumer", NAMES_IN_JAVA),
        ("Admin", NAMES_IN_JAVA),
        ("Worker", {*NAMES_IN_JAVA, "commit.interval.ms", "processing.guarantee"}),
        ("The embedded broker", NAMES_IN_BROKERS),
    ],
)
def test_the_names_below_options_are_names_in_kafka(heading: str, names: set[str]):
    table = MADE["options.md"]().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for name in re.findall(r"^\| `\w+`<br>(\S+)", table, re.MULTILINE):
        assert name in names or "{" in name, (
            f"Kafka has no config {name}: add the option to NOT_IN_KAFKA or KAFKA_NAMES of"
            " docs/generate.py, or the name to java_config_names.txt"
        )


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
