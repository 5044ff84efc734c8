from __future__ import annotations

from verify.soak.tables import table


def test_columns_are_of_one_width_and_numbers_stand_at_the_right() -> None:
    assert table(("who", "n", "s"), [["a", 12_345, 1.25], ["longer", 7, 10.0]]) == [
        "  who          n     s",
        "  ------  ------  ----",
        "  a       12,345   1.2",
        "  longer       7  10.0",
    ]


def test_a_table_without_rows_has_its_head() -> None:
    assert table(("who",), []) == ["  who", "  ---"]
