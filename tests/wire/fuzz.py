"""Decode mutated frames: `python -m tests.wire.fuzz --frames 5000000`.

Two kinds of frames. Mutated ones begin as golden vectors and are cut, lengthened, spliced and
overwritten, or read as what they are not. Large ones hold nothing but one array of the smallest
elements that it can have. Whatever comes, nothing but `MalformedMessage` may be raised, and that
before anybody looks at what was decoded; the memory that decoding takes at its peak, and looking,
stays below `MAX_BYTES_PER_BYTE` times the frame and `ALLOWANCE_BYTES`.
"""

import argparse
import contextlib
import itertools
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, cast

from aiokafkawire import wire
from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire import codec, kafka07, proposal
from aiokafkawire.wire.primitives import encode_unsigned_varint
from aiokafkawire.wire.schema import Field, Message, Struct, TypeKind, schema_for
from tests.wire import vectors

MAX_BYTES_PER_BYTE = 64
ALLOWANCE_BYTES = 1 << 20
MANY_BYTES = 300
"""Size of the mutated frames with one large array."""
LOOKED_AT = 1_000
"""Number of elements that are read from an array."""

Decode = Callable[[bytes], object]

EXTREMES = (
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\x00",
    b"\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\x01",
)
"""Lengths and counts that are mostly invalid."""


class Broken(AssertionError):
    """A frame that violates a rule, with all that is needed to reproduce it."""


@dataclass(frozen=True)
class Target:
    """A decoder under test."""

    name: str
    decode: Decode


@cache
def targets() -> tuple[Target, ...]:
    """Return the decoders of every message version and of the formats without versions."""
    found = [
        Target(f"{name} v{version}", _decoder(cls, version))
        for name in wire.message_names()
        for cls in (wire.message_class(name),)
        for version in range(cls.min_version, cls.max_version + 1)
    ]
    found += [
        Target("kafka07 request", kafka07.decode_request),
        Target("kafka07 FETCH response", kafka07.decode_fetch_response),
        Target("kafka07 MULTIFETCH response", kafka07.decode_multi_fetch_response),
        Target("kafka07 OFFSETS response", kafka07.decode_offsets_response),
        Target("kafka07 messages", lambda raw: list(kafka07.iter_messages(raw))),
        Target("proposed request", proposal.decode_request),
        Target("proposed ProduceResponse", proposal.decode_produce_response),
        Target("proposed FetchResponse", proposal.decode_fetch_response),
    ]
    return tuple(found)


@cache
def corpus() -> dict[str, list[bytes]]:
    """Return valid frames by the name of their target."""
    found: dict[str, list[bytes]] = {}
    for name, lines in vectors.by_message().items():
        for _, vector in lines:
            raw = bytes.fromhex(vector["hex"])
            found.setdefault(f"{name} v{vector['version']}", []).append(raw)
    for line in vectors.lines("kafka07"):
        for step in line["steps"]:
            found.setdefault("kafka07 request", []).append(bytes.fromhex(step["send"])[4:])
            if step["receive"] not in {None, "closed"}:
                answer = bytes.fromhex(step["receive"])[4:]
                found.setdefault("kafka07 FETCH response", []).append(answer)
    for frame in large_frames():
        found.setdefault(frame.target.name, []).append(frame.of_size(MANY_BYTES))
    return found


@cache
def warm_up() -> None:
    """Compile all decoders, so that their memory is not counted for the first frame."""
    make_ready(*targets())


def make_ready(*chosen: Target) -> None:
    """Compile the decoders of these targets.

    A decoder is one long function, and while memory is traced the line of each allocation in it is
    searched for from its first line on, which takes most of the time. It needs none here.
    """
    for target in chosen:
        with contextlib.suppress(MalformedMessage):
            target.decode(b"")
    for made in codec._DECODERS.values():
        function = cast("FunctionType", made)
        function.__code__ = function.__code__.replace(co_linetable=b"")


def decode(target: Target, raw: bytes, what: str) -> bool:
    """Return True if a frame is decoded, False if it is rejected. Raises `Broken`."""
    try:
        decoded = target.decode(raw)
    except MalformedMessage:
        return False
    except Exception as error:
        raise Broken(f"{target.name}, {what}: {error!r}\n{raw[:4_096].hex()}") from error
    try:
        look_at(decoded)
    except Exception as error:
        raise Broken(f"{target.name}, {what}, accessed: {error!r}\n{raw[:4_096].hex()}") from error
    return True


def look_at(value: object) -> None:
    """Access all lazy arrays."""
    if isinstance(value, Struct):
        for item in schema_for(type(value)).fields:
            if (item.kind.element or item.kind).struct is not None:
                look_at(getattr(value, item.name))
    elif isinstance(value, list):
        for element in value[:LOOKED_AT]:
            look_at(element)


def check(target: Target, raw: bytes, what: str) -> tuple[bool, int]:
    """Decode a frame with traced memory; return success and the peak. Raises `Broken`."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    decoded = decode(target, raw, what)
    peak = tracemalloc.get_traced_memory()[1] - before
    if peak > MAX_BYTES_PER_BYTE * len(raw) + ALLOWANCE_BYTES:
        raise Broken(
            f"{target.name}, {what}: {peak} bytes for {len(raw)}, {peak / len(raw):.1f} a byte\n"
            f"{raw[:4_096].hex()}"
        )
    return decoded, peak


def mutated_frames(seed: int, count: int) -> Iterator[tuple[Target, bytes]]:
    """`count` frames, the same for the same seed."""
    rng = random.Random(seed)
    known, good = targets(), corpus()
    every = [raw for frames in good.values() for raw in frames]
    for _ in range(count):
        target = rng.choice(known)
        own = good.get(target.name)
        # Sometimes bytes of an unrelated frame.
        raw = rng.choice(every if own is None or rng.random() < 0.05 else own)
        yield target, mutate(rng, raw, every)


def mutate(rng: random.Random, raw: bytes, others: Sequence[bytes]) -> bytes:
    """Apply one to four changes."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randint(0, len(data))
        match rng.randrange(7):
            case 0:
                del data[at:]
            case 1:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 2:
                data[at : at + 1] = bytes((rng.randrange(256),))
            case 3:
                change = rng.choice(EXTREMES)
                data[at : at + len(change)] = change
            case 4:
                del data[at : at + rng.randint(1, 8)]
            case 5:
                piece = data[at : at + rng.randint(1, 64)]
                data[at:at] = piece * rng.randint(1, 8)
            case _:
                other = rng.choice(others)
                start = rng.randint(0, len(other))
                data[at:] = other[start : start + 512]
    return bytes(data)


def fuzz_mutated(seed: int, count: int) -> int:
    """Try `count` mutated frames, a fifth with traced memory; return how many are decoded."""
    warm_up()
    frames = enumerate(mutated_frames(seed, count))
    decoded = 0
    tracemalloc.start()
    try:
        for number, (target, raw) in itertools.islice(frames, count // 5):
            decoded += check(target, raw, f"seed {seed}, frame {number}")[0]
    finally:
        tracemalloc.stop()
    for number, (target, raw) in frames:
        decoded += decode(target, raw, f"seed {seed}, frame {number}")
    return decoded


# Frames of nothing but one array.


@dataclass(frozen=True)
class Hole:
    """Position of the elements, after their count."""

    element: bytes
    compact: bool


@dataclass(frozen=True)
class Tagged:
    """Return a section with one tagged field."""

    tag: int
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class LargeFrame:
    """A message of minimum size, except for the elements of one array."""

    target: Target
    path: str
    parts: tuple[Any, ...]

    def of_size(self, size_bytes: int) -> bytes:
        """Return the frame with enough elements for about that size."""
        return b"".join(_filled(self.parts, size_bytes))


@cache
def large_frames() -> tuple[LargeFrame, ...]:
    """Return one per array of each message, and per layout of its elements."""
    found: dict[tuple[object, ...], LargeFrame] = {}
    for name in wire.message_names():
        cls = wire.message_class(name)
        for version in range(cls.min_version, cls.max_version + 1):
            target = Target(f"{name} v{version}", _decoder(cls, version))
            for path, shape, parts in _Smallest(cls, version).arrays(cls):
                found.setdefault(shape, LargeFrame(target, path, parts))
    return tuple(found.values())


def fuzz_large(frame: LargeFrame, size_bytes: int) -> float:
    """Check one; return its peak memory per byte of the frame."""
    make_ready(frame.target)
    raw = frame.of_size(size_bytes)
    tracemalloc.start()
    try:
        decoded, peak = check(frame.target, raw, f"{frame.path} of {len(raw)} bytes")
    finally:
        tracemalloc.stop()
    if not decoded:
        raise Broken(f"{frame.target.name}, {frame.path} of {len(raw)} bytes: refused")
    return peak / len(raw)


class _Smallest:
    def __init__(self, cls: type[Message], version: int) -> None:
        self.version = version
        self.flexible = cls.is_flexible(version)

    def arrays(
        self, cls: type[Struct]
    ) -> Iterator[tuple[str, tuple[object, ...], tuple[Any, ...]]]:
        """Yield each array in a struct: path, layout of its elements, and bytes of the struct."""
        schema = schema_for(cls)
        present, tagged = schema.present(self.version), schema.tagged(self.version)
        for index, item in enumerate(present):
            for path, shape, parts in self._arrays_in(item):
                before = tuple(map(self._field, present[:index]))
                after = tuple(map(self._field, present[index + 1 :]))
                end = (b"\0",) if self.flexible else ()
                yield path, shape, (*before, *parts, *after, *end)
        for item in tagged:
            for path, shape, parts in self._arrays_in(item):
                assert item.tag is not None
                yield path, shape, (*map(self._field, present), Tagged(item.tag, parts))

    def _arrays_in(self, item: Field) -> Iterator[tuple[str, tuple[object, ...], tuple[Any, ...]]]:
        compact = self.flexible and item.compact
        element = item.kind.element
        if element is not None:
            hole = Hole(self.value(element), compact)
            yield item.name, (compact, *self._shape(element)), (hole,)
            if element.struct is not None:
                for path, shape, parts in self.arrays(element.struct):
                    yield f"{item.name}[0].{path}", shape, (_size(1, "i", compact), *parts)
        elif item.kind.struct is not None:
            mark = (b"\1",) if self.version in item.nullable else ()
            for path, shape, parts in self.arrays(item.kind.struct):
                yield f"{item.name}.{path}", shape, (*mark, *parts)

    def _shape(self, kind: TypeKind) -> tuple[object, ...]:
        """Return the memory layout of a decoded value; equal layouts take equal memory."""
        if kind.element is not None:
            return ("array",)
        if kind.struct is None:
            return (kind.primitive,)
        schema = schema_for(kind.struct)
        present = schema.present(self.version)
        made = tuple(type(item.default_value()) for item in schema.fields if item not in present)
        return (*(self._shape(item.kind) for item in present), *made)

    def _field(self, item: Field) -> bytes:
        if item.kind.struct is not None and self.version in item.nullable:
            return b"\xff"
        return self.value(item.kind, compact=item.compact)

    def value(self, kind: TypeKind, *, compact: bool = True) -> bytes:
        """Return the minimum bytes of a value; among them those that decode to the most memory."""
        compact = compact and self.flexible
        if kind.struct is not None:
            fields = schema_for(kind.struct).present(self.version)
            end = b"\0" if self.flexible else b""
            return b"".join(map(self._field, fields)) + end
        if kind.primitive is not None and kind.primitive.code:
            return bytes(kind.primitive.size_bytes)
        is_string = kind.primitive is not None and kind.primitive.name == "string"
        return _size(0, "h" if is_string else "i", compact)


def _decoder(cls: type[Message], version: int) -> Decode:
    return lambda raw: wire.decode(cls, version, raw)


def _size(size: int, code: str, compact: bool) -> bytes:
    if compact:
        return encode_unsigned_varint(size + 1)
    return size.to_bytes(2 if code == "h" else 4)


def _filled(parts: Sequence[Any], size_bytes: int) -> list[bytes]:
    filled = []
    for part in parts:
        if isinstance(part, Hole):
            count = max(1, size_bytes // len(part.element))
            filled.append(_size(count, "i", part.compact) + count * part.element)
        elif isinstance(part, Tagged):
            inside = b"".join(_filled(part.parts, size_bytes))
            tag, size = encode_unsigned_varint(part.tag), encode_unsigned_varint(len(inside))
            filled.append(b"\1" + tag + size + inside)
        else:
            filled.append(part)
    return filled


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both kinds, print the results, and fail at the first broken frame."""
    options = _options(arguments)
    started = time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        frames = large_frames()
        ratios = list(pool.map(_large_by_index, range(len(frames)), chunksize=8))
        worst = sorted(range(len(frames)), key=ratios.__getitem__, reverse=True)[: options.worst]
        largest = pool.map(_large_by_index, worst, itertools.repeat(8 << 20))
        print(f"{len(ratios)} frames of 1 MiB of the smallest elements; the worst, and with 8 MiB:")
        for index, ratio in zip(worst, largest, strict=True):
            name = f"{frames[index].target.name} {frames[index].path}"
            print(f"  {name}: {ratios[index]:.1f} bytes a byte, {ratio:.1f}")
        print(f"{time.monotonic() - started:.0f} s", flush=True)
        sizes = [options.frames // 100] * 100
        seeds = range(options.seed, options.seed + len(sizes))
        decoded = sum(pool.map(fuzz_mutated, seeds, sizes))
    print(f"{sum(sizes):,} mutated frames, seeds {seeds[0]} to {seeds[-1]}:")
    print(f"  {decoded:,} decoded, the others refused; all within the bounds")
    print(f"{time.monotonic() - started:.0f} s in all")


def _large_by_index(index: int, size_bytes: int = 1 << 20) -> float:
    return fuzz_large(large_frames()[index], size_bytes)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.wire.fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000, help="how many mutated frames")
    parser.add_argument("--seed", type=int, default=1, help="the first of a hundred seeds")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--worst", type=int, default=6, help="how many also with 8 MiB")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
