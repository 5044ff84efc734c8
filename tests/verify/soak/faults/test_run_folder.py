"""The leftovers of a killed run are removed by the next one; those of a live one are not."""

from __future__ import annotations

from pathlib import Path

from verify.soak.faults.run_folder import PREFIX, folder, leftovers


def test_a_folder_is_removed_at_the_end(tmp_path: Path) -> None:
    with folder(tmp_path) as made:
        (made / "data").write_text("x")
        assert made.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_leftovers_are_removed_and_others_are_left(tmp_path: Path) -> None:
    dead, strange = tmp_path / f"{PREFIX}dead", tmp_path / "strange"
    for each in (dead, strange):
        each.mkdir()
        (each / "data").write_text("x")
    assert leftovers(tmp_path) == [dead]
    with folder(tmp_path) as living:
        assert not dead.exists()
        with folder(tmp_path) as another:
            assert living.exists()
            assert another != living
    assert list(tmp_path.iterdir()) == [strange]
