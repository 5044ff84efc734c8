"""Regular expressions of RE2."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.broker.groups.consumer_group.regexes import InvalidRegex, TopicPattern


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("re-.*|t", ["re-1", "re-", "t"], ["re", "t2", "xt"]),
        ("e-", ["e-"], ["re-1", "e-1"]),
        ("", [""], ["a"]),
        ("a+b?c*", ["a", "aab", "abcc"], ["b", "abb"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{1,3}b", ["ab", "aaab"], ["b", "aaaab"]),
        ("a{,3}", ["a{,3}"], ["a", "aaa"]),
        ("(?i)orders", ["Orders", "ORDERS"], ["order"]),
        ("(?i:o)rders", ["Orders"], ["OrderS"]),
        ("(?P<name>a|b)(?:c)(?<n>d)", ["acd", "bcd"], ["cd"]),
        ("[a-c0-9_.-]+", ["a.b-c_7"], ["d", ""]),
        ("[^a-c]", ["d", "-"], ["a", "dd"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[[:alpha:]][[:^digit:]]", ["ab", "a-"], ["1b", "a1"]),
        (r"\w+\d\D", ["ab1-"], ["ab-"]),
        (r"\S\s", ["a "], ["  "]),
        (r"[\d\-]+", ["1-2"], ["a"]),
        (r"\Qa.b*\Ec", ["a.b*c"], ["axbbc"]),
        (r"^orders$", ["orders"], ["orders2"]),
        (r"\Aorders\z", ["orders"], ["xorders"]),
        (r"a\b-\Bb?", ["a-"], ["ab"]),
        (r"\x61\x{62}\143", ["abc"], ["abx"]),
        (r"\pL\p{Lu}\PN", ["aB-"], ["ab-", "aB1"]),
        (r"a\.b", ["a.b"], ["axb"]),
        ("(a*)*b", ["b", "aab"], ["a"]),
        ("(|a)+", ["", "aa"], ["b"]),
        ("a*?b+?", ["aab"], ["a"]),
    ],
)
def test_whole_text_must_match(pattern: str, matching: list[str], other: list[str]) -> None:
    compiled = TopicPattern(pattern)
    assert [text for text in matching if not compiled.matches(text)] == []
    assert [text for text in other if compiled.matches(text)] == []


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("re(", "missing closing )"),
        ("re)", "missing closing )"),
        ("a(?=b)", "invalid or unsupported Perl syntax"),
        ("a(?!b)", "invalid or unsupported Perl syntax"),
        ("(?<=a)b", "invalid or unsupported Perl syntax"),
        ("(?>a)", "invalid or unsupported Perl syntax"),
        ("(?P<a b>c)", "invalid named capture"),
        (r"(a)\1", "invalid escape sequence"),
        (r"\y", "invalid escape sequence"),
        (r"\x{}", "invalid escape sequence"),
        (r"\x{FFFFFF}", "invalid escape sequence"),
        ("a\\", "trailing backslash at end of expression"),
        ("*a", "missing argument to repetition operator"),
        ("a|*", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("a{3,2}", "invalid repeat count"),
        ("((a{100}){100}){100}", "invalid repeat count"),
        ("a{99999999999999999999}", "invalid repeat count"),
        ("[a", "missing closing ]"),
        ("[b-a]", "invalid character class range"),
        ("[[:nope:]]", "invalid character class range"),
        (r"\p{Nope}", "invalid character class range"),
        ("(" * 1_000, "expression nests too deeply"),
        ("(abcdefghij){1000}" * 10, "expression too large"),
        ("a" * 40_000, "the expression is too long"),
    ],
)
def test_invalid_pattern_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidRegex) as caught:
        TopicPattern(pattern)
    assert str(caught.value) == reason


def test_match_takes_linear_time() -> None:
    pattern = TopicPattern("(a+)+(a|aa)*$")
    started = time.perf_counter()
    assert not pattern.matches("a" * 248 + "!")
    assert time.perf_counter() - started < 2


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@given(st.text("ab|()*+?.[]", max_size=8), st.text("ab", max_size=5))
def test_results_equal_python(pattern: str, text: str) -> None:
    try:
        compiled = TopicPattern(pattern)
    except InvalidRegex:
        return
    try:
        expected = re.compile(pattern)
    except re.error:
        return
    if re.search(r"[*+?]\+|\[\[", pattern):
        return  # Python 3.11 has possessive repetition.
    assert compiled.matches(text) == bool(expected.fullmatch(text))
