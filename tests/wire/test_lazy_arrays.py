"""Lazy arrays behave exactly as arrays that are decoded at once."""

import copy
import pickle
from typing import Any
from uuid import UUID

import pytest

from aiokafkawire import wire
from aiokafkawire.errors import MalformedMessage
from aiokafkawire.wire import decoder
from aiokafkawire.wire.codegen import VersionLayout
from aiokafkawire.wire.decoder import DECODE_ERRORS, make_decoder
from aiokafkawire.wire.lazy_arrays import (
    MAX_ELEMENT_LAYOUTS,
    MAX_INNER_LENGTH,
    MIN_LAZY_LENGTH,
    LazyArrays,
    iter_fields,
    supports_lazy_arrays,
)
from aiokafkawire.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import LazyStruct, Message, Struct, data, field, struct

VERSIONS = (0, 5, 9, 12)


@struct
class Plain(Struct):
    small: int8
    topic_id: UUID
    nodes: list[int32] | None = field(nullable="0+")
    online: bool
    since: int16 = field(versions="2+", default=-1)
    more: list[int32] = field(versions="2+", default_factory=list)
    known: int32 = field(versions="1+", tag=3, default=7)


@data(name="Holder", versions="0-2", flexible="1+")
class Holder(Message, LazyStruct):
    items: list[Plain]
    others: list[Plain]


def plain(number: int, length: int = 2, **others: Any) -> Plain:
    topic_id = UUID(int=number)
    nodes = list(range(number, number + length))
    return Plain(small=number % 100, topic_id=topic_id, nodes=nodes, online=number > 3, **others)


def holder(*items: Plain, count: int = MIN_LAZY_LENGTH) -> Holder:
    return Holder(items=[*items, *map(plain, range(count - len(items)))], others=[])


def metadata(version: int, partitions: int = MIN_LAZY_LENGTH) -> MetadataResponse:
    made = [
        MetadataResponsePartition(
            error_code=index % 3,
            partition_index=index,
            leader_id=index + 5,
            replica_nodes=[index, 300, -1],
            isr_nodes=[index, 70_000],
        )
        for index in range(partitions)
    ]
    topic = MetadataResponseTopic(error_code=0, name="t", partitions=made)
    return MetadataResponse(brokers=[], topics=[topic])


def is_made(obj: Struct, name: str) -> bool:
    try:
        type(obj).__dict__[name].__get__(obj)
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize("version", VERSIONS)
def test_array_is_decoded_on_first_access(version: int) -> None:
    message = metadata(version)
    topic = wire.decode(MetadataResponse, version, wire.encode(message, version)).topics[0]
    assert not is_made(topic, "partitions")
    assert topic.partitions == message.topics[0].partitions
    assert is_made(topic, "partitions")
    first = topic.partitions[0]
    first.leader_id = 17
    topic.partitions.append(first)
    assert topic.partitions[0].leader_id == topic.partitions[-1].leader_id == 17
    assert first.unknown_tagged_fields == ()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_type_in_lazy_arrays(version: int) -> None:
    message = holder()
    found = wire.decode(Holder, version, wire.encode(message, version))
    assert not is_made(found, "items")
    assert found == message
    assert [item.topic_id for item in found.items] == [UUID(int=n) for n in range(MIN_LAZY_LENGTH)]
    assert found.items[1].more is not found.items[2].more


def fields_of(item: Plain) -> tuple[object, ...]:
    nodes = None if item.nodes is None else tuple(item.nodes)
    more = tuple(item.more)
    return item.small, item.topic_id, nodes, item.online, item.since, more, item.known


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "first",
    [
        pytest.param([], id="uniform"),
        pytest.param([Plain(small=1, topic_id=UUID(int=1), nodes=None, online=True)], id="null"),
        pytest.param([plain(1, 5)], id="other length"),
    ],
)
def test_iter_fields(version: int, first: list[Plain]) -> None:
    message = holder(*first)
    found = wire.decode(Holder, version, wire.encode(message, version))
    expected = [fields_of(item) for item in message.items]
    assert list(iter_fields(found, "items")) == expected
    assert is_made(found, "items") == bool(first)
    assert list(iter_fields(found, "items")) == expected
    assert list(iter_fields(found, "others")) == []
    assert found == message
    assert list(iter_fields(found, "items")) == expected
    assert list(iter_fields(message, "items")) == expected


@pytest.mark.parametrize("version", [0, 1, 2])
def test_iter_some_fields(version: int) -> None:
    message = holder()
    expected = [(tuple(item.more), item.small) for item in message.items]
    for items in (wire.decode(Holder, version, wire.encode(message, version)), message):
        assert list(iter_fields(items, "items", "more", "small")) == expected
        assert [small for (small,) in iter_fields(items, "items", "small")] == [
            item.small for item in message.items
        ]


def test_every_operation_on_a_message_decodes_the_array() -> None:
    message = metadata(12)
    raw = wire.encode(message, 12)

    def found() -> MetadataResponse:
        return wire.decode(MetadataResponse, 12, raw)

    assert repr(found()) == repr(message)
    assert found() == found() == message
    assert wire.encode(found(), 12) == raw
    assert wire.to_json(found(), 12) == wire.to_json(message, 12)
    assert copy.deepcopy(found()) == message
    assert pickle.loads(pickle.dumps(found())) == message
    shallow = copy.copy(found().topics[0])
    assert shallow == message.topics[0]
    given = found().topics[0]
    given.partitions = []
    assert given.partitions == []


def test_buffer_may_be_reused_before_the_first_access() -> None:
    message = metadata(12)
    raw = bytearray(wire.encode(message, 12))
    found = wire.decode(MetadataResponse, 12, raw)
    raw[:] = bytes(len(raw))
    assert found == message


def test_unknown_attributes() -> None:
    topic = wire.decode(MetadataResponse, 0, wire.encode(metadata(0), 0)).topics[0]
    with pytest.raises(AttributeError, match="leaders"):
        getattr(topic, "leaders")  # noqa: B009
    with pytest.raises(AttributeError, match="partitions"):
        _ = MetadataResponseTopic.__new__(MetadataResponseTopic).partitions


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(plain(1, length=3), id="another length"),
        pytest.param(plain(1, length=MAX_INNER_LENGTH + 1), id="too long"),
        pytest.param(plain(1, length=200), id="a count of two bytes"),
        pytest.param(plain(1, known=8), id="a tagged field"),
        pytest.param(plain(1, unknown_tagged_fields=((9, b"x"),)), id="an unknown field"),
        pytest.param(
            Plain(small=1, topic_id=wire.ZERO_UUID, nodes=None, online=True), id="a null array"
        ),
    ],
)
@pytest.mark.parametrize("place", [0, 3, MIN_LAZY_LENGTH - 1])
def test_array_with_one_different_element(version: int, odd: Plain, place: int) -> None:
    items = [plain(n) for n in range(MIN_LAZY_LENGTH)]
    items[place] = odd
    message = holder(*items)
    found = wire.decode(Holder, version, wire.encode(message, version))
    assert is_made(found, "items")
    assert found == message


@data(name="Hurried", versions="0", flexible="none")
class Hurried(Message):
    items: list[Plain]


def test_short_and_other_arrays_are_decoded_at_once() -> None:
    hurried = Hurried(items=holder().items)
    assert is_made(wire.decode(Hurried, 0, wire.encode(hurried, 0)), "items")
    message = holder(count=MIN_LAZY_LENGTH - 1)
    assert is_made(wire.decode(Holder, 2, wire.encode(message, 2)), "items")
    message = Holder(items=holder().items, others=holder().items)
    found = wire.decode(Holder, 2, wire.encode(message, 2))
    assert (is_made(found, "items"), is_made(found, "others")) == (False, True)
    assert found == message


@pytest.mark.parametrize("version", VERSIONS)
def test_malformed_arrays_are_rejected_at_decoding(version: int) -> None:
    raw = wire.encode(metadata(version), version)
    decode = make_decoder(MetadataResponse, version)
    for size in range(len(raw)):
        with pytest.raises(DECODE_ERRORS):
            decode(raw[:size], 0, size)
        with pytest.raises(MalformedMessage):
            wire.decode(MetadataResponse, version, raw[:size])


@pytest.mark.parametrize("version", VERSIONS)
def test_changed_byte_has_the_same_effect_as_in_eager_decoding(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = make_decoder(MetadataResponse, version)
    monkeypatch.setattr(decoder, "supports_lazy_arrays", lambda cls, version: False)
    at_once = make_decoder(MetadataResponse, version)
    raw = bytearray(wire.encode(metadata(version), version))
    for place in range(len(raw)):
        kept = raw[place]
        for changed in {kept ^ 1, kept ^ 0x80, 0, 0xFF, 17}:
            raw[place] = changed
            assert outcome(later, raw) == outcome(at_once, raw)
        raw[place] = kept


def outcome(decode: decoder.Decoder, raw: bytearray) -> object:
    try:
        return decode(bytes(raw), 0, len(raw))
    except DECODE_ERRORS:
        return None


def test_number_of_element_layouts_is_limited() -> None:
    layout = VersionLayout(2, flexible=True)
    arrays = LazyArrays("items", Plain, layout)
    try_defer = 0
    for first in range(MAX_INNER_LENGTH + 1):
        for second in range(MAX_INNER_LENGTH + 1):
            item = plain(1, first, more=[0] * second)
            raw = memoryview(wire.encode(holder(*[item] * MIN_LAZY_LENGTH), 2))[1:-2]
            found = arrays.try_defer(raw, 0, len(raw), MIN_LAZY_LENGTH)
            if found is not None:
                (_, make, _, content), end = found
                assert end == len(raw)
                assert make(content) == [item] * MIN_LAZY_LENGTH
                try_defer += 1
    assert try_defer == MAX_ELEMENT_LAYOUTS


def test_supports_lazy_arrays() -> None:
    assert supports_lazy_arrays(MetadataResponsePartition, 0)
    assert not supports_lazy_arrays(MetadataResponseTopic, 0)
    assert not supports_lazy_arrays(Empty, 0)
    assert not supports_lazy_arrays(Nested, 0)
    assert not supports_lazy_arrays(Ids, 0)


@struct
class Empty(Struct):
    later: int32 = field(versions="1+", default=0)


@struct
class Nested(Struct):
    inner: Plain


@struct
class Ids(Struct):
    ids: list[UUID]
