"""Each case against both connectors."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.spark.parity.case import NO_ERROR, OUT, Ask, Case, Change
from tests.spark.parity.cases import CASES
from tests.spark.parity.comparing import disagreement
from tests.spark.parity.connectors import ROOT, Connector
from tests.spark.parity.differences import DIFFERENCES
from tests.spark.parity.topics import World

_numbers = itertools.count(1)

SERVERS = "kafka.bootstrap.servers"

WITH_OPTIONS = ("options", "source")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_connectors_do_the_same(
    case: Case, connectors: tuple[Connector, Connector], world: World, tmp_path: Path
) -> None:
    number = next(_numbers)
    outputs = {connector.name: f"out-{number}-{connector.name}" for connector in connectors}
    writes = any(isinstance(step, Ask) and step.do in {"write", "copy"} for step in case.steps)
    if writes:
        for output in outputs.values():
            world.make(output, case.partitions)
    for step in case.steps:
        if isinstance(step, Change):
            getattr(world, step.what)(*step.arguments)
            continue
        for connector in connectors:
            place = (
                {} if step.do in {"read", "write"} else {"checkpoint": tmp_path / connector.name}
            )
            connector.ask(**_request(step, world.servers, outputs[connector.name], place))
        answers = [connector.answer() for connector in connectors]
        if writes:
            for connector, answer in zip(connectors, answers, strict=True):
                answer["written"] = world.contents(outputs[connector.name])
        _check(step, *answers)


def _request(step: Ask, servers: str, output: str, place: dict[str, Path]) -> dict[str, Any]:
    arguments = dict(step.arguments)
    for name in WITH_OPTIONS:
        if name in arguments:
            options = {SERVERS: servers} | arguments[name]
            arguments[name] = {name: value for name, value in options.items() if value is not None}
    request = json.dumps({"do": step.do, **arguments, **{n: str(p) for n, p in place.items()}})
    replaced: dict[str, Any] = json.loads(re.sub(rf"\b{OUT}\b", output, request))
    return replaced


def _check(step: Ask, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    found = disagreement(ours, theirs)
    if step.differs is None:
        assert found is None, found
    else:
        assert step.differs in DIFFERENCES
        assert found is not None, f"no difference any more: {step.differs}"
    _check_error(ours, step.fails and step.fails.ours)
    _check_error(theirs, step.fails and step.fails.theirs)


def _check_error(answer: dict[str, Any], pattern: str | None) -> None:
    error = answer.get("error", NO_ERROR)
    if pattern is None or pattern == NO_ERROR:
        assert error == NO_ERROR
    else:
        assert error != NO_ERROR
        assert re.search(pattern, error), error


def test_differences_are_few_and_stand_in_the_docs() -> None:
    named = {step.differs for case in CASES for step in case.steps if isinstance(step, Ask)}
    assert named - {None} == DIFFERENCES.keys()
    docs = (ROOT / "docs" / "spark.md").read_text()
    for row in DIFFERENCES.values():
        assert f"| {row.what} | {row.ours} | {row.theirs} | {row.why} |" in docs


def test_cases_have_names_of_their_own() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) >= 60
