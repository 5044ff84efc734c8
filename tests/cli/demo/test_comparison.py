from __future__ import annotations

from collections import Counter

import pytest

from aiokafkawire.cli.demo.comparison import compare
from aiokafkawire.cli.demo.inputs import Truth

TRUTH = Truth(lines=4, size_bytes=20, words=Counter({b"a": 3, b"b": 1}))


def test_equal_counts_are_a_success() -> None:
    comparison = compare(TRUTH, 4, [[0, 2], [1], [3]], Counter({b"a": 3, b"b": 1}))
    assert comparison.good
    assert comparison.last_line == "sent 4, processed 4, lost 0, counted twice 0"
    assert (comparison.words, comparison.distinct_words) == (4, 2)


@pytest.mark.parametrize(
    ("numbers", "words", "last_line"),
    [
        ([[0, 1, 2]], {b"a": 3, b"b": 1}, "sent 4, processed 3, lost 1, counted twice 0"),
        (
            [[0, 1, 2, 3], [1, 1]],
            {b"a": 3, b"b": 1},
            "sent 4, processed 4, lost 0, counted twice 2",
        ),
        ([[0, 1, 2, 2]], {b"a": 3, b"b": 1}, "sent 4, processed 3, lost 1, counted twice 1"),
        ([[0, 1, 2, 3]], {b"a": 2, b"b": 2}, "sent 4, processed 4, lost 0, counted twice 0"),
        ([[0, 1, 2, 3]], {b"a": 3}, "sent 4, processed 4, lost 0, counted twice 0"),
        (
            [[0, 1, 2, 3]],
            {b"a": 3, b"b": 1, b"c": 1},
            "sent 4, processed 4, lost 0, counted twice 0",
        ),
        ([[0, 1, 2, 3, 9]], {b"a": 3, b"b": 1}, "sent 4, processed 4, lost 0, counted twice 0"),
    ],
)
def test_differences_are_reported(
    numbers: list[list[int]], words: dict[bytes, int], last_line: str
) -> None:
    comparison = compare(TRUTH, 4, numbers, Counter(words))
    assert not comparison.good
    assert comparison.last_line == last_line


def test_unsent_lines_are_a_failure() -> None:
    assert not compare(TRUTH, 3, [[0, 1, 2, 3]], Counter({b"a": 3, b"b": 1})).good
