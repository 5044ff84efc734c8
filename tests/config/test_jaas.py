"""Parsing of `sasl.jaas.config`."""

from __future__ import annotations

import traceback
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafkawire.config.jaas import parse_jaas
from aiokafkawire.errors import InvalidOption

SECRET = "only-the-tests-know-this-secret"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (
            f'{PLAIN} required username="alice" password="s";',
            {"username": "alice", "password": "s"},
        ),
        (f"{PLAIN} required;", {}),
        (f"{PLAIN} REQUIRED a=b ;", {"a": "b"}),
        (f"{PLAIN} required\n  a='b'\n\tc = \"d\"\n;\n", {"a": "b", "c": "d"}),
        (f"{PLAIN} required /* why */ a=b // the end\n;", {"a": "b"}),
        (f'{PLAIN} required a="";', {"a": ""}),
        (rf'{PLAIN} required a="say \"yes\" \\ or no";', {"a": r'say "yes" \ or no'}),
        (rf'{PLAIN} required a="tab\t, A\101";', {"a": "tab\t, AA"}),
        (f"{PLAIN} required a=\"x=y;z, 'q'\";", {"a": "x=y;z, 'q'"}),
        (f'{PLAIN} required "user_a,b=c"="comma=pw";', {"user_a,b=c": "comma=pw"}),
        (f'{PLAIN} required a="jos\xe9 \u2168";', {"a": "jos\xe9 \u2168"}),
        (f"{PLAIN} required a=b-c.d_e$f:9093;", {"a": "b-c.d_e$f:9093"}),
    ],
)
def test_a_login_module_has_a_name_and_options(text: str, options: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.name, module.short_name) == (PLAIN, "PlainLoginModule")
    assert module.options == options


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", 'sasl.jaas.config is not of the form LoginModule required name="value" … ;'),
        (f"password={SECRET}", "sasl.jaas.config is not of the form LoginModule required"),
        (f'{PLAIN} password="{SECRET}";', "sasl.jaas.config is not of the form LoginModule"),
        (f'{PLAIN} required password="{SECRET}"', "sasl.jaas.config must end with a semicolon"),
        (
            f"{PLAIN} required password={SECRET};;",
            "sasl.jaas.config must have one login module: a semicolon ends it",
        ),
        (
            f'{PLAIN} required username="a" password "{SECRET}";',
            f'sasl.jaas.config: option 2 of {PLAIN} is not of the form name="value"',
        ),
        (
            f'{PLAIN} required password="{SECRET};',
            "sasl.jaas.config: a quote has no end, at character 75",
        ),
        (
            f"{PLAIN} required a=b/{SECRET};",
            "sasl.jaas.config: a value needs quotes, at character 69",
        ),
    ],
)
def test_a_wrong_text_is_refused_without_showing_it(text: str, error: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        parse_jaas(text)
    assert str(refused.value).startswith(error)
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_a_module_does_not_show_its_options() -> None:
    assert SECRET not in repr(parse_jaas(f'{PLAIN} required password="{SECRET}";'))


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for whole in (text, f"{PLAIN} required {text};", f'{PLAIN} required a="{text}";'):
        with suppress(InvalidOption):
            parse_jaas(whole)


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=3))
def test_quoted_texts_are_kept(options: dict[str, str]) -> None:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'

    pairs = " ".join(f"{quoted(name)}={quoted(value)}" for name, value in options.items())
    assert parse_jaas(f"{PLAIN} required {pairs};").options == options
