"""docs/protocol.md says what the tables and tests here say."""

import re
from pathlib import Path

from aiokafkawire import wire
from aiokafkawire.wire.api import API_ALIASES
from tests.spec.test_documents import DIFFERENCES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text()


def test_the_table_of_apis() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d+)(?: to (\d+))? \|", PAGE, re.MULTILINE)
    assert [(int(key), name, int(low), int(high or low)) for key, name, low, high in rows] == [
        (api.key, api.name, api.min_version, api.max_version) for api in wire.APIS.values()
    ]
    versions = sum(api.max_version - api.min_version + 1 for api in wire.APIS.values())
    assert f"{len(rows)} APIs with {versions} versions" in PAGE


def test_every_alias_is_documented() -> None:
    for alias, name in API_ALIASES.items():
        (row,) = re.findall(rf"^\| \d+ \| {name} \|.*$", PAGE, re.MULTILINE)
        assert re.search(rf"\b{alias}\b", row)


def test_every_difference_is_documented() -> None:
    theirs = {"records": "record_set", "committed_metadata": "metadata"}
    for document, message, field in DIFFERENCES:
        assert document == "000_protocol_page"
        name = theirs.get(field, field)
        assert re.search(rf"^\| the page \| .*`{name}`.*{message}", PAGE, re.MULTILINE), field


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) == 10
    for file, function in named:
        assert f"def {function}(" in (ROOT / file).read_text(), (file, function)
