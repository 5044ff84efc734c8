"""Every codec: there and back, framings of other writers, damage, and bounds that hold."""

from __future__ import annotations

import gzip
import random
import tomllib
import tracemalloc
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiokafkawire.errors import CorruptRecord
from aiokafkawire.records import Compression, compression
from aiokafkawire.records.compression import (
    GZIP_MAX_MEMBERS,
    LZ4_MAGIC,
    LZ4_MAX_BLOCKS,
    MAX_COPIED_BYTES,
    XERIAL_HEADER,
    XERIAL_MAX_SMALL_BLOCKS,
    compress,
    decompress,
    xxh32,
)
from aiokafkawire.records.kernel import COMPILED
from aiokafkawire.runtime.memory import MMAP_THRESHOLD_BYTES

CODECS = [codec for codec in Compression if codec]
MIB = 1 << 20


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("magic", [0, 1, 2])
@settings(max_examples=20)
@given(piece=st.binary(max_size=300), times=st.sampled_from([1, 2, 3000]))
@example(piece=b"", times=1)
def test_round_trip(codec: Compression, magic: int, piece: bytes, times: int) -> None:
    data = piece * times
    packed = compress(codec, data, magic=magic)
    assert decompress(codec, packed, len(data), magic=magic) == data
    assert decompress(codec, memoryview(b"__" + packed)[2:], MIB, magic=magic) == data
    if data:
        with pytest.raises(CorruptRecord, match=f"more than {len(data) - 1} bytes"):
            decompress(codec, packed, len(data) - 1, magic=magic)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_levels_are_passed_on(codec: Compression) -> None:
    data = b"".join(b"%d " % (n * n) for n in range(20_000))
    fast, dense = compress(codec, data, level=1), compress(codec, data, level=9)
    assert dense != fast
    assert decompress(codec, dense, len(data)) == decompress(codec, fast, len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=60)
@given(data=st.data())
def test_damage_is_an_error_or_other_data(codec: Compression, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, b"some text, some text " * 20))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(packed)))
    for damaged in (packed, packed[:cut]):
        for magic in (0, 2):
            try:
                assert len(decompress(codec, damaged, 10_000, magic=magic)) <= 10_000
            except CorruptRecord:
                continue


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_corrupt(codec: Compression) -> None:
    for garbage in (b"\xff" * 40, b"\x01", b"\x1f\x8b", bytes(range(99))):
        with pytest.raises(CorruptRecord):
            decompress(codec, garbage, MIB)


@pytest.mark.parametrize("codec", [5, 7])
def test_unknown_codec(codec: int) -> None:
    with pytest.raises(CorruptRecord, match=f"codec {codec}"):
        decompress(codec, b"x", MIB)
    with pytest.raises(ValueError, match=f"codec {codec}"):
        compress(codec, b"x")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "size", [MAX_COPIED_BYTES, MAX_COPIED_BYTES + 1, 3 * MMAP_THRESHOLD_BYTES + 7]
)
def test_much_stays_where_it_was_decompressed(codec: Compression, size: int) -> None:
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    found = decompress(codec, compress(codec, data), size)
    assert found == data
    assert isinstance(found, bytes) == (size <= MAX_COPIED_BYTES or not COMPILED)
    assert memoryview(found).readonly


def bomb(codec: Compression) -> bytes:
    return compress(codec, bytes(64 * MIB))


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_stopped_while_it_goes_off(codec: Compression) -> None:
    packed = bomb(codec)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord, match="more than 1048576 bytes"):
            decompress(codec, packed, MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB + 2 * len(packed)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("codec", "frame"),
    [
        # A zstd frame of 9 bytes whose header claims 512 MiB, and one that claims 2^63.
        (Compression.ZSTD, bytes.fromhex("28b52ffda0000000200100")),
        (Compression.ZSTD, bytes.fromhex("28b52ffde000000000000000800100")),
        # A raw snappy block that claims 512 MiB, and a gzip trailer that claims 4 GiB.
        (Compression.SNAPPY, bytes.fromhex("8080808002") + b"\0a"),
        (Compression.SNAPPY, XERIAL_HEADER + b"\0\0\0\x07" + bytes.fromhex("8080808002") + b"\0a"),
        (Compression.GZIP, gzip.compress(b"x", mtime=0)[:-4] + b"\xff\xff\xff\xff"),
        (Compression.LZ4, bytes.fromhex("04224d186840000000200000000000") + bytes(4)),
    ],
)
def test_a_header_that_claims_much_allocates_little(codec: Compression, frame: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            decompress(codec, frame, 1 << 30)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_snappy_is_read_raw_and_framed_and_written_framed() -> None:
    data = bytes(range(256)) * 300
    packed = compress(Compression.SNAPPY, data)
    assert packed.startswith(XERIAL_HEADER)
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert decompress(Compression.SNAPPY, raw, len(data)) == data
    assert decompress(Compression.SNAPPY, packed + packed, 2 * len(data)) == data * 2


@pytest.mark.parametrize(
    "data",
    [XERIAL_HEADER[:12], XERIAL_HEADER + b"\0\0\0\x09", XERIAL_HEADER + b"\0\0\0\x09ab",
     XERIAL_HEADER + b"\xff\xff\xff\xffab"],
)  # fmt: skip
def test_snappy_frames_that_lie(data: bytes) -> None:
    with pytest.raises(CorruptRecord, match="SNAPPY"):
        decompress(Compression.SNAPPY, data, MIB)


def test_lz4_blocks_are_independent() -> None:
    frame = compress(Compression.LZ4, bytes(200_000))
    version, independent = frame[4] >> 6, frame[4] >> 5 & 1
    assert (version, independent) == (1, 1)


def test_lz4_of_format_0_has_the_other_checksum() -> None:
    wrong = compress(Compression.LZ4, b"hello" * 9, magic=0)
    right = compress(Compression.LZ4, b"hello" * 9, magic=1)
    assert [at for at in range(len(right)) if right[at] != wrong[at]] == [6]
    assert decompress(Compression.LZ4, right, 99, magic=0) == b"hello" * 9
    with pytest.raises(CorruptRecord, match="LZ4"):
        decompress(Compression.LZ4, wrong, 99, magic=1)


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)]
)
def test_xxh32(data: bytes, expected: int) -> None:
    assert xxh32(data) == expected


def test_gzip_members_are_joined_and_what_follows_is_ignored() -> None:
    one, two = gzip.compress(b"one"), gzip.compress(b"two")
    assert decompress(Compression.GZIP, one + two, 6) == b"onetwo"
    assert decompress(Compression.GZIP, one + two + b"\xc0", 6) == b"onetwo"
    with pytest.raises(CorruptRecord, match="more than 5 bytes"):
        decompress(Compression.GZIP, one + two + b"\xc0", 5)
    with pytest.raises(CorruptRecord, match="too early"):
        decompress(Compression.GZIP, one[:-3], 6)


def test_zstd_frames_may_be_joined_and_of_lz4_the_first_is_read() -> None:
    for codec, expected in (
        (Compression.ZSTD, b"one" + b"two" * 50_000),
        (Compression.LZ4, b"one"),  # as the Java client does
    ):
        packed: Any = compress(codec, b"one") + compress(codec, b"two" * 50_000)
        assert decompress(codec, packed, MIB) == expected


def test_small_snappy_blocks_are_bounded() -> None:
    empty, one = b"\0\0\0\1\0", b"\0\0\0\3\1\0a"
    packed = XERIAL_HEADER + one * XERIAL_MAX_SMALL_BLOCKS
    assert decompress(Compression.SNAPPY, packed, MIB) == b"a" * XERIAL_MAX_SMALL_BLOCKS
    for bad in (
        packed + empty * 100,
        XERIAL_HEADER + empty * (XERIAL_MAX_SMALL_BLOCKS + 1),
        XERIAL_HEADER * (XERIAL_MAX_SMALL_BLOCKS + 2),
    ):
        with pytest.raises(CorruptRecord, match="SNAPPY data is damaged: it has more than"):
            decompress(Compression.SNAPPY, bad, MIB)


def test_snappy_blocks_of_1_kib_are_not_small() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(1024)))  # the Java client's smallest
    count = 2 * XERIAL_MAX_SMALL_BLOCKS
    packed = XERIAL_HEADER + (len(block).to_bytes(4) + block) * count
    assert len(decompress(Compression.SNAPPY, packed, 1024 * count)) == 1024 * count


def test_gzip_members_before_stray_bytes_are_bounded() -> None:
    member = gzip.compress(b"a")
    packed = member * GZIP_MAX_MEMBERS
    assert decompress(Compression.GZIP, packed + b"?", MIB) == b"a" * GZIP_MAX_MEMBERS
    assert decompress(Compression.GZIP, packed + member, MIB) == b"a" * (GZIP_MAX_MEMBERS + 1)
    with pytest.raises(CorruptRecord, match="GZIP data is damaged: it has more than 100 members"):
        decompress(Compression.GZIP, packed + member + b"?", MIB)


def lz4_frame(blocks: list[bytes], flags: int) -> bytes:
    """A frame of stored blocks, each of fewer than 16 bytes, and all of them if `flags` has 4."""
    head = bytes((0x60 | flags, 0x40))
    if flags & 8:
        head += len(b"".join(blocks)).to_bytes(8, "little")
    parts = [LZ4_MAGIC, head, bytes((xxh32(head) >> 8 & 255,))]
    for block in blocks:
        parts += [(len(block) | 1 << 31).to_bytes(4, "little"), block]
        if flags & 16:
            parts.append(xxh32(block).to_bytes(4, "little"))
    parts.append(bytes(4))
    if flags & 4:
        parts.append(xxh32(b"".join(blocks)).to_bytes(4, "little"))
    return b"".join(parts)


@pytest.mark.parametrize("flags", range(0, 32, 4))
@settings(max_examples=30)
@given(data=st.binary(max_size=15), stray=st.binary(max_size=12))
def test_what_follows_an_lz4_frame_is_ignored(flags: int, data: bytes, stray: bytes) -> None:
    frame = lz4_frame([data[:5], data[5:]] if len(data) > 5 else [data] * bool(data), flags)
    assert decompress(Compression.LZ4, frame + stray, MIB) == data
    assert decompress(Compression.LZ4, memoryview(frame + stray), MIB) == data
    for size in range(len(frame)):
        with pytest.raises(CorruptRecord, match="LZ4 data is damaged"):
            decompress(Compression.LZ4, frame[:size], MIB)


def test_what_follows_a_long_lz4_frame_is_ignored() -> None:
    data = random.Random(1).randbytes(300_000) + bytes(300_000)
    for level in (0, 9):
        packed = compress(Compression.LZ4, data, level)
        assert decompress(Compression.LZ4, packed + b"stray", MIB) == data


def test_a_frame_of_tiny_lz4_blocks_is_searched_only_so_far() -> None:
    blocks = [b"a"] * LZ4_MAX_BLOCKS
    assert decompress(Compression.LZ4, lz4_frame(blocks, 0), MIB) == b"a" * LZ4_MAX_BLOCKS
    assert decompress(Compression.LZ4, lz4_frame(blocks[1:], 0) + b"?", MIB) == b"".join(blocks[1:])
    longer = lz4_frame(blocks, 0) + b"?"
    assert compression._first_lz4_frame(longer) is longer


def test_an_outdated_cramjam_is_named_at_import(monkeypatch: pytest.MonkeyPatch) -> None:
    def old_compressor(level: int | None = None) -> None:
        """The signature of cramjam 2.7.0."""

    monkeypatch.setattr(cramjam.lz4, "Compressor", old_compressor)
    monkeypatch.setattr(cramjam, "__version__", "2.7.0")
    spec = spec_from_file_location("aiokafkawire.records._again", compression.__file__)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r"cramjam 2\.8\.0 or later, .*2\.7\.0.*pip install"):
        spec.loader.exec_module(module_from_spec(spec))


def test_the_lowest_cramjam_is_declared() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    dependencies = tomllib.loads(pyproject.read_text())["project"]["dependencies"]
    assert f"cramjam>={compression.CRAMJAM_MIN_VERSION}" in dependencies
