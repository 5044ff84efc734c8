"""Kills that `tests.spark.exactly_once` draws, and its detection of wrong results."""

from __future__ import annotations

import random
from collections import Counter

from tests.spark.exactly_once import (
    MOMENTS,
    PARTITIONS,
    VICTIMS,
    Result,
    committed_rows,
    kills_of,
    report,
)
from tests.spark.kafka import append, create, fill, transactions


def test_kills_come_from_the_seed_alone():
    for plain in (False, True):
        drawn = [kills_of(number, random.Random(number), plain=plain) for number in range(60)]
        assert drawn == [kills_of(n, random.Random(n), plain=plain) for n in range(60)]
        assert {kills[0].victim for kills in drawn[:3]} == set(VICTIMS)
    kinds = Counter(kill.api for kills in drawn for kill in kills)
    assert set(kinds) < set(MOMENTS)


def test_rows_are_counted_as_a_reader_of_committed_records_sees_them(kafka):
    fill(kafka, "counted", *[[f"{number}"] for number in range(PARTITIONS)])
    transactions(kafka, "counted", (["4"], True), (["5", "6"], False))
    append(kafka, "counted", {1: ["1"]})
    found, stored = committed_rows(kafka, "counted")
    assert found == Counter({"0": 1, "1": 2, "2": 1, "3": 1, "4": 1})
    assert stored == 8


def test_no_rows_are_none(kafka):
    create(kafka, "nothing", PARTITIONS)
    assert committed_rows(kafka, "nothing") == (Counter(), 0)


def test_a_run_is_right_only_with_every_row_once(capsys):
    assert Result([]).right
    assert not Result([], missing=1).right
    assert not Result([], repeated=1).right
    report(3, Result([], repeated=1, starts=2))
    assert "WRONG 2 drivers, 0 missing, 1 twice" in capsys.readouterr().out
