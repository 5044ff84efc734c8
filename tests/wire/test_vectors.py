"""Golden vectors of messages, from bytes to JSON and from JSON to bytes."""

import json
import textwrap
from collections import Counter
from collections.abc import Callable

import pytest

from aiokafkawire import wire
from aiokafkawire.wire.schema import Request, Response
from tests.wire import vectors

COUNTED: Counter[str] = Counter()
"""Vectors that passed in both directions, by message."""


@pytest.mark.parametrize("name", vectors.by_message())
def test_message_vectors(name: str, record_property: Callable[[str, object], None]) -> None:
    cls = wire.message_class(name)
    versions = set()
    for file, vector in vectors.by_message()[name]:
        version, raw = vector["version"], bytes.fromhex(vector["hex"])
        versions.add(version)

        message = wire.decode(cls, version, raw)
        assert wire.to_json(message, version) == vector["json"], vector["id"]

        made = wire.from_json(cls, version, vector["json"])
        assert made == message, vector["id"]
        assert wire.encode(made, version) == raw, vector["id"]
        assert b"".join(wire.encode_parts(message, version)) == raw, vector["id"]
        assert cls.is_flexible(version) == vector["flexible"], vector["id"]
        if issubclass(cls, Request | Response):
            assert cls.header_version(version) == vector["headerVersion"], vector["id"]
            assert cls.api_key == vector["apiKey"], vector["id"]
        COUNTED[name] += 1
        record_property("counted", f"golden vectors of messages, both directions, {file}")
    expected = set(range(cls.min_version, cls.max_version + 1))
    assert versions == expected, f"no golden vectors of versions {sorted(expected - versions)}"


def test_every_message_has_vectors() -> None:
    assert set(wire.message_names()) == set(vectors.by_message())


def test_counts_by_api(record_property: Callable[[str, object], None]) -> None:
    by_api: Counter[str] = Counter()
    for name, count in COUNTED.items():
        file = vectors.by_message()[name][0][0]
        api = name.removesuffix("Request").removesuffix("Response")
        by_api[api if file in {"requests", "responses", "kafka-4.4"} else file] += count
    assert sum(by_api.values()) == sum(len(vectors.by_message()[name]) for name in COUNTED)
    counts = ", ".join(f"{name} {count}" for name, count in by_api.items())
    text = textwrap.fill(f"golden vectors, both directions: {counts}", 100, subsequent_indent="  ")
    record_property("summary", text)


def test_every_api_version_has_classes_and_header_versions() -> None:
    rows = json.loads((vectors.FOLDER / "header-versions.json").read_text())
    seen = set()
    for row in rows:
        api = wire.APIS[wire.ApiKey(row["apiKey"])]
        version = row["version"]
        assert api.request.header_version(version) == row["requestHeaderVersion"], row
        assert api.response.header_version(version) == row["responseHeaderVersion"], row
        assert api.request.api_key == api.response.api_key == row["apiKey"]
        stable = api.min_stable_version <= version <= api.max_stable_version
        assert stable != row["unstable"], row
        seen.add((api.key, version))
    assert seen == {
        (api.key, version)
        for api in wire.APIS.values()
        for version in range(api.min_version, api.max_version + 1)
    }
