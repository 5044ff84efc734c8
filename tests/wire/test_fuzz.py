"""A short run of `python -m tests.wire.fuzz`, and proof that it detects errors."""

import struct
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from aiokafkawire import wire
from aiokafkawire.wire.messages.metadata import MetadataResponse
from tests.wire import fuzz
from tests.wire.fuzz import Broken, Target
from tests.wire.test_lazy_arrays import metadata

SEED = 20_000


@pytest.mark.slow
def test_mutated_frames_are_decoded_or_rejected(
    record_property: Callable[[str, object], None],
) -> None:
    decoded = fuzz.fuzz_mutated(SEED, 2_000)
    assert 100 < decoded < 1_000
    record_property("summary", f"mutated frames: 2000, {decoded} of them decoded")


@pytest.mark.slow
def test_memory_of_large_frames_is_limited() -> None:
    frames = fuzz.large_frames()
    assert len(frames) > 100
    for frame in frames[::24]:
        fuzz.fuzz_large(frame, 1 << 16)


@pytest.mark.slow
def test_memory_of_the_largest_elements_is_limited() -> None:
    (frame,) = (
        frame
        for frame in fuzz.large_frames()
        if frame.target.name == "StreamsGroupHeartbeatRequest v0"
        and frame.path.endswith("copartition_groups")
    )
    assert 30 < fuzz.fuzz_large(frame, 1 << 18) < fuzz.MAX_BYTES_PER_BYTE


def test_large_frames_decode_to_their_elements() -> None:
    (frame,) = (f for f in fuzz.large_frames() if f.target.name == "MetadataRequest v0")
    raw = frame.of_size(1_000)
    assert raw == (500).to_bytes(4) + bytes(1_000)
    request = wire.decode(wire.message_class("MetadataRequest"), 0, raw)
    assert len(getattr(request, "topics")) == 500  # noqa: B009


def test_the_same_seed_gives_the_same_frames() -> None:
    first, second, other = (list(fuzz.mutated_frames(seed, 20)) for seed in (1, 1, 2))
    assert first == second != other


@pytest.fixture
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("_traced")
def test_wrong_exceptions_and_excess_memory_are_detected() -> None:
    def fails(raw: bytes) -> None:
        raise IndexError(len(raw))

    with pytest.raises(Broken, match=r"bad v0, here: IndexError\(2\)"):
        fuzz.check(Target("bad v0", fails), b"ab", "here")
    with pytest.raises(Broken, match="bytes for 2"):
        fuzz.check(Target("greedy", lambda raw: bytes(2 << 20)), b"ab", "here")
    assert fuzz.check(Target("good", lambda raw: bytes(1 << 19)), b"ab", "here")[1] > 1 << 19


def test_errors_on_first_access_are_detected() -> None:
    response = metadata(9)
    raw = wire.encode(response, 9)
    assert fuzz.decode(
        Target("good v9", lambda raw: wire.decode(MetadataResponse, 9, raw)), raw, ""
    )

    def late(raw: bytes) -> MetadataResponse:
        found = wire.decode(MetadataResponse, 9, raw)
        found.topics[0]._lazy_array = (
            "partitions",
            lambda raw: [struct.unpack(">i", raw)],
            lambda raw: iter(()),
            b"",
        )
        return found

    with pytest.raises(Broken, match="late v9, here, accessed: error"):
        fuzz.decode(Target("late v9", late), raw, "here")
