from __future__ import annotations

from aiokafkawire.cli.tables import format_table, json_line, pluralize


def test_numbers_stand_to_the_right_and_nothing_is_a_dash():
    rows = [("orders", 0, None, [1, 2]), ("a", 12, "", [])]
    assert format_table(("topic", "n", "none", "list"), rows, "  ") == (
        "  topic    n  none  list\n  orders   0  -     1,2\n  a       12  -     -\n"
    )


def test_a_column_with_text_is_left_aligned():
    assert format_table(("value",), [(1,), ("word",)]) == "value\n1\nword\n"


def test_a_name_stays_in_its_cell():
    assert format_table(("group",), [("a\nb\x1b[2J",), (["\t"],)]) == "group\na\\nb\\x1b[2J\n\\t\n"


def test_an_empty_table_has_its_heads():
    assert format_table(("a", "b"), []) == "a  b\n"


def test_json_is_on_one_line():
    assert json_line({"a": "ü\n", "b": None}) == '{"a":"ü\\n","b":null}\n'


def test_one_is_not_many():
    assert [pluralize(number, "member") for number in range(3)] == [
        "0 members",
        "1 member",
        "2 members",
    ]
