"""The recordings that the embedded broker is held to say what real brokers say."""

from __future__ import annotations

import pytest

from tests.broker.conformance import Recording
from tests.brokers.compare_as_of import compare, recorded
from tests.brokers.fixtures import what_real_kafka_needs

VERSION = "0.10.2.2"
"""One that is quick to start; the command asks all of them."""


def test_a_release_answers_as_it_was_recorded() -> None:
    with what_real_kafka_needs():
        real = recorded(VERSION)
    kept = Recording.read(VERSION)
    assert real.apis == kept.apis
    assert real.responses == kept.responses


def test_what_differs_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"metadata": [{"errorCode": 0}], "produce": [{"errorCode": 3}]}
    other = {**asked, "produce": [{"errorCode": 6}]}
    assert compare("1.1.1", asked, other, "embedded") == 1
    printed = capsys.readouterr().out
    assert "--- 1.1.1: produce" in printed
    assert '-  "errorCode": 3' in printed
    assert '+  "errorCode": 6' in printed
    assert printed.endswith("1.1.1: 2 questions, 1 differ from what is embedded\n")
