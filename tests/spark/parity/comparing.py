"""Comparison of answers."""

from __future__ import annotations

import json
from typing import Any

INITIAL = "#initial"

Answer = dict[str, Any]


def comparable(answer: Answer) -> Answer:
    """An answer without what is known to differ, and is named here.

    - Offsets are compared as what the JSON says, not as text.
    - Ours keeps where the first batch began in that batch's end, under `#initial`, and theirs in a
      file of its own.
    """
    if "ends" not in answer:
        return answer
    ends = [json.loads(end) for end in answer["ends"]]
    begin = json.loads(answer["begin"]) if answer["begin"] else None
    if ends and INITIAL in ends[0]:
        begin = ends[0].pop(INITIAL)
    return answer | {"ends": ends, "begin": begin}


def disagreement(ours: Answer, theirs: Answer) -> str | None:
    """In what two answers differ, if they do."""
    if ("error" in ours) != ("error" in theirs):
        return _both("one of them fails", ours.get("error", "-"), theirs.get("error", "-"))
    # What the errors say is the case's affair.
    left, right = ({**comparable(answer), "error": None} for answer in (ours, theirs))
    # Present only if the stream did not begin at offsets from its options.
    if left.get("begin") is None:
        left, right = left | {"begin": None}, right | {"begin": None}
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            return _both(name, left.get(name), right.get(name))
    return None


def _both(what: str, ours: Any, theirs: Any) -> str:
    return f"{what}\n  ours:   {ours!s:.3000}\n  theirs: {theirs!s:.3000}"
