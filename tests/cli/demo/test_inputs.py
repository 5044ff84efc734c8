from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from aiokafkawire.cli.demo import inputs
from aiokafkawire.cli.error_text import CommandFailed


def truth_of(files: list[Path]) -> inputs.Truth:
    return list(inputs.count_without_kafka(files))[-1]


def test_the_default_is_the_source_of_the_standard_library() -> None:
    files = inputs.default_files()
    assert Path(os.__file__) in files
    assert all(path.suffix == ".py" for path in files)
    assert not any("site-packages" in path.parts for path in files)
    assert len(files) == len(set(files)) > 100


def test_lines_come_in_order_without_their_newlines(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"three\n\nlast")
    (tmp_path / "a").write_bytes(b"one two\ntwo\r\n")
    files = inputs.find_files(tmp_path)
    assert list(inputs.lines(files)) == [b"one two", b"two\r", b"three", b"", b"last"]
    truth = truth_of(files)
    assert truth.lines == 5
    assert truth.words == Counter({b"two": 2, b"one": 1, b"three": 1, b"last": 1})


def test_a_very_long_line_counts_as_several(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * (2 * inputs.MAX_LINE_BYTES + 5) + b"\nend\n")
    parts = list(inputs.lines([path]))
    assert [len(part) for part in parts] == [inputs.MAX_LINE_BYTES, inputs.MAX_LINE_BYTES, 5, 3]
    assert truth_of([path]).lines == 4


def test_counting_in_chunks_gives_the_same_counts(tmp_path: Path) -> None:
    path = tmp_path / "many"
    path.write_bytes(b"".join(b"word%d and more\n" % (n % 100) for n in range(40_000)))
    assert path.stat().st_size > 2 * inputs.MAX_LINE_BYTES
    assert len(list(inputs.count_without_kafka([path]))) > 2
    assert truth_of([path]).words == inputs.count_words(inputs.lines([path]))


def test_words() -> None:
    assert inputs.count_words([b"def f(x_1): # caf\xc3\xa9", b"f-f"]) == Counter(
        {b"def": 1, b"f": 3, b"x_1": 1, b"caf\xc3\xa9": 1}
    )
    assert inputs.count_words([b"ab", b"cd"]) == Counter({b"ab": 1, b"cd": 1})


@pytest.mark.parametrize("name", ["missing", "fifo", "empty"])
def test_an_input_that_cannot_be_read_twice_is_an_error(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CommandFailed, match=name):
        inputs.find_files(tmp_path / name)
