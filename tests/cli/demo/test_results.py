from __future__ import annotations

import sqlite3
from array import array
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.cli.demo.results import Results, Tally, create_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "results.sqlite"
    create_store(file)
    return file


def tally(partition: int, first: int, after: int, **words: int) -> Tally:
    return Tally(
        partition,
        first,
        after,
        array("I", range(first, after)),
        Counter({word.encode(): number for word, number in words.items()}),
    )


def numbers(results: Results) -> list[int]:
    return sorted(number for piece in results.line_numbers() for number in piece)


def test_results_and_positions_move_together(path: Path) -> None:
    results = Results(path)
    assert results.position(3) == 0
    assert results.add([tally(3, 0, 2, a=1, b=2), tally(4, 0, 1, a=5)]) == []
    assert results.add([tally(3, 2, 3, a=10)]) == []
    assert results.positions() == {3: 3, 4: 1}
    assert results.words() == Counter({b"a": 16, b"b": 2})
    assert numbers(results) == [0, 0, 1, 2]
    results.close()


def test_opening_the_store_does_not_need_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "not in WAL mode"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("begin immediate")
    Results(path).close()
    writer.close()


def test_records_counted_by_another_worker_do_not_count_again(path: Path) -> None:
    ours, theirs = Results(path), Results(path)
    assert ours.add([tally(0, 0, 5, a=1)]) == []
    assert theirs.add([tally(0, 0, 5, a=1), tally(1, 0, 1, b=1)]) == [0]
    assert theirs.add([tally(0, 3, 9, a=1)]) == [0]
    assert theirs.add([tally(0, 7, 9, a=1)]) == [0]
    assert ours.positions() == {0: 5, 1: 1}
    assert ours.words() == Counter({b"a": 1, b"b": 1})
    ours.close()
    theirs.close()


def test_a_failed_transaction_changes_nothing(path: Path) -> None:
    results = Results(path)
    bad = tally(1, 0, 1, a=1)
    bad.words[b"x"] = "many"  # type: ignore[assignment]
    bad.words[b"y"] = None  # type: ignore[assignment]
    with pytest.raises(sqlite3.IntegrityError):
        results.add([tally(0, 0, 1, a=1), bad])
    assert results.positions() == {}
    assert results.words() == Counter()
    assert results.add([tally(0, 0, 1, a=1)]) == []
    results.close()


@given(steps=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4), st.booleans()), max_size=12))
@pytest.mark.slow
def test_redelivery_in_any_order_counts_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]]
) -> None:
    path = tmp_path_factory.mktemp("results") / "results.sqlite"
    create_store(path)
    workers = [Results(path), Results(path)]
    believed = [0, 0]  # each worker's own idea of the position
    for who, count, reload in steps:
        if reload:
            believed[who] = workers[who].position(0)
        first = believed[who]
        late = workers[who].add([tally(0, first, first + count, a=count)])
        if not late:
            believed[who] = first + count
    end = workers[0].position(0)
    assert numbers(workers[0]) == list(range(end))
    assert workers[0].words()[b"a"] == end
    for worker in workers:
        worker.close()
