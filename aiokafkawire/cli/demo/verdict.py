"""Comparison of the workers' counts with the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from aiokafkawire.cli.demo.inputs import Truth

__all__ = ("Verdict", "judge")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`processed` counts each line that was counted at least once, `wrong_words` the words whose
    count is another than the input's; `counts` are the workers'.
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


def judge(
    truth: Truth,
    sent: int,
    line_numbers: Iterable[Iterable[int]],
    words: Counter[bytes],
) -> Verdict:
    """Compare line by line and word by word.

    A line counted n times counts n - 1 times as counted twice. A line that was never sent, or is
    none of the input's, makes the words wrong, so that nothing cancels out.
    """
    seen = bytearray(truth.lines)
    again = strangers = 0
    for numbers in line_numbers:
        for number in numbers:
            if number >= truth.lines:
                strangers += 1
            elif seen[number]:
                again += 1
            else:
                seen[number] = 1
    processed = sum(seen)
    wrong = sum(1 for word in truth.words.keys() | words.keys() if truth.words[word] != words[word])
    return Verdict(
        sent=sent,
        processed=processed,
        lost=truth.lines - processed,
        counted_twice=again,
        wrong_words=wrong + strangers,
        counts=words,
    )
