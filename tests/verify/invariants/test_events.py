"""Events to and from JSON lines."""

from __future__ import annotations

from aiokafkawire import TopicPartition
from verify.invariants import events

TP = TopicPartition("t", 1)

EVENTS: list[events.Event] = [
    events.Opened(0.5, "p", "producer", {"acks": "all", "idempotent": True, "linger_ms": 5}),
    events.Sending(1.0, "p", 1, "t", (b"p-1|\xff", b"p-2|"), None, 3, 60.0),
    events.Acknowledged(1.5, "p", 1, "t", 1, ((7, b"p-1|\xff"),)),
    events.Failed(1.5, "p", 1, (b"p-2|",), "DeliveryUnknown", True),
    events.Subscribed(2.0, "c", ("t",), None),
    events.Assigned(2.5, "c", (TP,)),
    events.Polled(3.0, "c", "t", 1, ((7, b"p-1|\xff"),), 8, "1"),
    events.PositionSought(3.5, "c", (TP,), "beginning"),
    events.Committing(4.0, "c", 5, ((TP, 8),)),
    events.Committing(4.5, "c", 6, None),
    events.TopicCreated(5.0, "", "t", 3),
]


def test_events_come_back_as_they_were() -> None:
    assert list(events.from_lines(events.to_line(event) + "\n" for event in EVENTS)) == EVENTS


def test_a_line_that_was_cut_off_is_left_out() -> None:
    lines = [events.to_line(event) + "\n" for event in EVENTS[:2]]
    assert list(events.from_lines([lines[0], lines[1][:20]])) == EVENTS[:1]


def test_histories_are_merged_by_time_and_keep_their_own_order() -> None:
    first = [
        events.TopicCreated(1.0, "", "a", 1),
        events.TopicCreated(2.0, "", "b", 1),
        events.TopicCreated(2.0, "", "c", 1),
    ]
    second = [events.TopicCreated(1.5, "", "d", 1), events.TopicCreated(3.0, "", "e", 1)]
    assert [event.topic for event in events.merged([first, second])] == ["a", "d", "b", "c", "e"]


def test_values_identify_their_producer() -> None:
    assert events.parse_value(events.make_value("a-b", 17, b"x|y")) == ("a-b", 17, b"x|y")
    assert events.parse_value(b"a-17") is None
    assert events.parse_value(b"a-b|") is None
    assert events.parse_value(b"17|") is None
    assert events.parse_value(b"") is None


def test_each_kind_of_event_is_known_by_its_name() -> None:
    assert events.kinds()["Polled"] is events.Polled
