"""Comparison of the workers' counts with the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from aiokafkawire.cli.demo.inputs import Truth

__all__ = ("Comparison", "compare")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of the demo.

    Attributes:
        sent: Lines sent.
        processed: Lines counted at least once.
        lost: Lines never counted.
        counted_twice: Surplus counts of lines.
        wrong_words: Words whose count differs from the input's.
        counts: The workers' word counts.
    """

    sent: int
    processed: int
    lost: int
    counted_twice: int
    wrong_words: int
    counts: Counter[bytes]

    @property
    def words(self) -> int:
        return self.counts.total()

    @property
    def distinct_words(self) -> int:
        return len(self.counts)

    @property
    def good(self) -> bool:
        """True if all lines were sent and counted exactly once."""
        return self.sent == self.processed and not (
            self.lost or self.counted_twice or self.wrong_words
        )

    @property
    def last_line(self) -> str:
        return (
            f"sent {self.sent}, processed {self.processed},"
            f" lost {self.lost}, counted twice {self.counted_twice}"
        )


def compare(
    truth: Truth,
    sent: int,
    line_numbers: Iterable[Iterable[int]],
    words: Counter[bytes],
) -> Comparison:
    """Compare line by line and word by word.

    A line counted n times adds n - 1 to `counted_twice`. A line number beyond the input adds to
    `wrong_words`.
    """
    seen = bytearray(truth.lines)
    again = unknown_lines = 0
    for numbers in line_numbers:
        for number in numbers:
            if number >= truth.lines:
                unknown_lines += 1
            elif seen[number]:
                again += 1
            else:
                seen[number] = 1
    processed = sum(seen)
    wrong = sum(1 for word in truth.words.keys() | words.keys() if truth.words[word] != words[word])
    return Comparison(
        sent=sent,
        processed=processed,
        lost=truth.lines - processed,
        counted_twice=again,
        wrong_words=wrong + unknown_lines,
        counts=words,
    )
