from __future__ import annotations

import pytest

from aiokafkawire.cli.formats import TOKENS, compile_format, default_formatter
from aiokafkawire.errors import InvalidOption
from aiokafkawire.records import Record

RECORD = Record(
    "orders",
    3,
    17,
    timestamp_ms=1_700_000_000_000,
    key=b"k",
    value=b"v\xff",
    headers=(("a", b"1"), ("b", None)),
)
NULLS = Record("orders", 0, 0)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%s", b"v\xff"),
        ("%S", b"2"),
        ("%R", b"\0\0\0\2"),
        ("%k", b"k"),
        ("%K", b"1"),
        ("%t [%p] at %o\\n", b"orders [3] at 17\n"),
        ("%T", b"1700000000000"),
        ("%h", b"a=1,b="),
        ("100%%", b"100%"),
        ("", b""),
        ("\\x00%k\\t", b"\0k\t"),
    ],
)
def test_tokens(text: str, printed: bytes) -> None:
    assert compile_format(text)(RECORD) == printed


def test_nulls_are_empty_or_what_is_asked_for() -> None:
    assert compile_format("%k,%s,%K,%S,%R")(NULLS) == b",,-1,-1,\xff\xff\xff\xff"
    assert compile_format("%k,%s", null=b"NULL")(NULLS) == b"NULL,NULL"
    assert compile_format("%h", null=b"NULL")(RECORD) == b"a=1,b=NULL"


@pytest.mark.parametrize("text", ["%x", "abc%", "%é"])
def test_unknown_tokens_are_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(InvalidOption, match="%s %S"):
        compile_format(text)


def test_every_token_prints_something() -> None:
    for token in TOKENS:
        assert compile_format("%" + token)(RECORD)


def test_without_a_format() -> None:
    assert default_formatter(b"\n", None, b"")(RECORD) == b"v\xff\n"
    assert default_formatter(b"\n", b":", b"")(RECORD) == b"k:v\xff\n"
    assert default_formatter(b"\0", b":", b"NULL")(NULLS) == b"NULL:NULL\0"
