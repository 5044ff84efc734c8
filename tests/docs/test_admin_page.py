"""docs/admin.md maps the names of other admin clients, and has a command for each task."""

from __future__ import annotations

import re
import warnings

import aiokafka.admin
import pytest

from aiokafkawire import Admin, admin
from aiokafkawire.cli.application import COMMANDS

from .pages import ROOT, commands_of

confluent_admin = pytest.importorskip(
    "confluent_kafka.admin", reason="confluent-kafka is not installed"
)

with warnings.catch_warnings():
    # It reads its own files in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

PAGE = (ROOT / "docs" / "admin.md").read_text(encoding="utf-8")
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")

NAME = re.compile(r"[a-z_]+")


def public(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_") and name[0].islower()}


def section(heading: str) -> str:
    return PAGE.split(f"### {heading}\n")[1].split("\n#")[0]


@pytest.mark.parametrize(
    ("heading", "of"),
    [
        ("confluent-kafka's AdminClient", confluent_admin.AdminClient),
        ("kafka-python's KafkaAdminClient", kafka.KafkaAdminClient),
        ("kafka-python's KafkaAdminClient", aiokafka.admin.AIOKafkaAdminClient),
    ],
)
def test_each_method_of_another_client_has_the_same_name_or_is_mapped(
    heading: str, of: type
) -> None:
    missing = public(of) - public(Admin)
    assert missing <= {*NAME.findall(section(heading))}


def test_the_commands_for_administration_are_shown() -> None:
    shown = {line.split()[1] for _, line in commands_of(ROOT / "docs" / "admin.md")}
    others = {
        "broker",
        "completion",
        "consume",
        "dead",
        "decode",
        "demo",
        "metadata",
        "produce",
        "worker",
    }
    assert shown == {*COMMANDS} - others


def test_the_reference_has_each_public_name() -> None:
    documented = {*re.findall(r"auto\w+:: aiokafkawire\.admin\.(\w+)", API)}
    assert documented == {*admin.__all__} - {"Admin"}
