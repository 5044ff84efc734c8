"""Output of our codecs of 0.7 and of the proposal, read by the drawings of the documents alone."""

from collections.abc import Callable
from typing import Any

import pytest

from aiokafkawire.wire import kafka07, proposal
from tests.spec.grammar import Grammar, Item, grammars, keys

KAFKA07 = "002_kafka07"
PROPOSAL = "003_proposal"

TOPIC = "tëst"
MESSAGES = kafka07.encode_messages([kafka07.Kafka07Message(payload=b"a")])

DATA = (
    proposal.ProposedTopicData(
        topic=TOPIC,
        partition_data=(
            proposal.ProposedPartitionData(partition=1, messages=MESSAGES),
            proposal.ProposedPartitionData(partition=2, messages=b""),
        ),
    ),
    proposal.ProposedTopicData(topic="u", partition_data=()),
)


class Drawing:
    """A reader that knows nothing but a transcription."""

    def __init__(self, raw: bytes, count_bytes: int) -> None:
        self.raw = raw
        self.position = 0
        self.count_bytes = count_bytes

    def fields(self, items: tuple[Item, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for item in items:
            if item.elements is not None:
                found[item.name] = self.array(item.elements)
                continue
            size = found.get(f"{item.name}_length", len(self.raw) - self.position)
            found[item.name] = self.value(item.type, size)
        return found

    def array(self, elements: tuple[Item, ...]) -> list[Any]:
        found: list[Any] = []
        count = self.integer(self.count_bytes) if self.count_bytes else None
        while len(found) < count if count is not None else self.position < len(self.raw):
            (first, *rest) = elements
            alone = not rest and not first.name
            found.append(self.value(first.type, 0) if alone else self.fields(elements))
        return found

    def value(self, kind: str | None, size: int) -> Any:
        assert kind is not None
        if kind.startswith("int"):
            return self.integer(int(kind[3:]) // 8)
        if kind == "string":
            return self.take(self.integer(2)).decode()
        return self.take(self.integer(4) if kind == "message_set" else size)

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), signed=True)

    def take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        assert 0 <= start <= self.position <= len(self.raw)
        return self.raw[start : self.position]


def read(grammar: Grammar, raw: bytes) -> dict[str, Any]:
    drawing = Drawing(raw, 2 if grammar.document == PROPOSAL else 0)
    found = drawing.fields(grammar.items)
    assert drawing.position == len(raw)
    return found


def as_dict(message: Any) -> dict[str, Any]:
    """The fields of one of our messages, and of those in it."""
    return {
        name: [as_dict(item) if hasattr(item, "__slots__") else item for item in value]
        if isinstance(value, tuple)
        else value
        for name, value in ((slot, getattr(message, slot)) for slot in message.__slots__)
    }


PROPOSED = {
    "ProduceRequest": proposal.ProposedProduceRequest(
        version_id=3,
        correlation_id=4,
        client_id="me",
        required_acks=-1,
        ack_timeout=5,
        data=DATA,
    ),
    "ProduceResponse": proposal.ProposedProduceResponse(
        correlation_id=4, version_id=3, error=6, errors=(-1, 7), offsets=(8, -9)
    ),
    "FetchRequest": proposal.ProposedFetchRequest(
        correlation_id=4,
        version_id=3,
        client_id="me",
        replica_id=-1,
        max_wait=5,
        min_bytes=6,
        topic_offsets=(
            proposal.ProposedOffsetData(topic=TOPIC, partitions=(1, 2), offsets=(3, 4)),
        ),
    ),
    "FetchResponse": proposal.ProposedFetchResponse(
        correlation_id=4, version_id=3, error=6, data=DATA
    ),
}


@pytest.mark.parametrize("grammar", grammars(PROPOSAL), ids=str)
def test_the_proposal(grammar: Grammar, record_property: Callable[[str, object], None]) -> None:
    message: Any = PROPOSED[grammar.message]
    is_request = grammar.message.endswith("Request")
    encode = proposal.encode_request if is_request else proposal.encode_response
    raw = encode(message)
    found = read(grammar, raw)
    assert found.pop("size") == len(raw) - 4
    if is_request:
        kind = proposal.ProposedRequestType[grammar.message.removesuffix("Request").upper()]
        assert found.pop("request_type_id") == kind
    assert found == as_dict(message)
    for item in grammar.items:
        record_property("counted", f"fields of the protocol documents, {grammar.document}")
        assert item.name in {"size", "request_type_id", *message.__slots__}


REQUESTS: dict[str, kafka07.Request] = {
    "PRODUCE": kafka07.Kafka07ProducerRequest(topic=TOPIC, partition=1, messages=MESSAGES),
    "FETCH": kafka07.Kafka07FetchRequest(topic=TOPIC, partition=1, offset=2, max_size=3),
    "OFFSETS": kafka07.Kafka07OffsetRequest(topic=TOPIC, partition=1, time=-2, max_number=3),
}


@pytest.mark.parametrize("grammar", grammars(KAFKA07), ids=str)
def test_kafka07(grammar: Grammar, record_property: Callable[[str, object], None]) -> None:
    for _ in grammar.items:
        record_property("counted", f"fields of the protocol documents, {grammar.document}")
    if grammar.message == "MESSAGE":
        check_message(grammar)
    elif grammar.message == "FETCH_response":
        response = kafka07.Kafka07FetchResponse(error=3, messages=MESSAGES)
        raw = kafka07.encode_response(response)
        assert read(grammar, raw) == {
            "response_length": len(raw) - 4,
            "error_code": 3,
            "messages": MESSAGES,
        }
    elif grammar.message == "OFFSETS_response":
        raw = kafka07.encode_response(kafka07.Kafka07OffsetResponse(offsets=(5, 0)))
        assert read(grammar, raw) == {
            "response_length": len(raw) - 4,
            "error_code": 0,
            "number_of_offsets": 2,
            "offsets": [5, 0],
        }
    else:
        check_request(grammar, REQUESTS[grammar.message])


def check_message(grammar: Grammar) -> None:
    magic = int(grammar.version)
    message = kafka07.Kafka07Message(payload=b"hello", magic=magic, attributes=2 * magic)
    raw = kafka07.encode_messages([message])
    found = read(grammar, raw)
    assert found == {
        "length": len(raw) - 4,
        "magic": magic,
        **({"compression": 2} if magic else {}),
        "checksum": 0x3610A686,  # of the payload alone
        "payload": b"hello",
    }


def check_request(grammar: Grammar, request: kafka07.Request) -> None:
    raw = kafka07.encode_request(request)
    found = read(grammar, raw)
    assert found.pop("request_length") == len(raw) - 4
    assert found.pop("request_type") == keys(KAFKA07)[grammar.message]
    for name in ("topic", "messages"):
        if f"{name}_length" in found:
            assert found.pop(f"{name}_length") == len(found[name])
    found["topic"] = found["topic"].decode()
    assert found == as_dict(request)


def test_the_types_of_requests() -> None:
    assert keys(KAFKA07) == {kind.name: int(kind) for kind in kafka07.RequestKey}
