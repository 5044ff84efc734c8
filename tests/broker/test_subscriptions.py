"""Subscribed topics of a group's members."""

from __future__ import annotations

from aiokafkawire.broker.groups.subscriptions import is_consumer_group, subscribed_topics
from aiokafkawire.wire.consumer_protocol import encode_subscription

from .test_classic_group import Driver


def reading(*topics: str) -> tuple[tuple[str, bytes], ...]:
    return (("range", encode_subscription(topics=list(topics))),)


def test_all_members_count() -> None:
    driver = Driver()
    assert subscribed_topics(driver.group) == frozenset()
    driver.join("", new="a", protocols=reading("x", "y"))
    driver.join("", new="b", protocols=reading("y", "z"))
    driver.join("a", protocols=reading("x", "y"))
    assert is_consumer_group(driver.group)
    assert subscribed_topics(driver.group) == {"x", "y", "z"}
    driver.leave("b")
    driver.leave("a")
    assert subscribed_topics(driver.group) == frozenset()


def test_what_cannot_be_read_may_be_anything() -> None:
    driver = Driver()
    driver.join("", new="a", protocols=(("range", b"?"),))
    assert subscribed_topics(driver.group) is None


def test_other_groups_have_no_subscriptions() -> None:
    driver = Driver()
    driver.join("", new="a", protocol_type="connect", protocols=(("range", b"?"),))
    assert not is_consumer_group(driver.group)
    assert subscribed_topics(driver.group) == frozenset()
