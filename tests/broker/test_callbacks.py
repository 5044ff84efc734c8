"""Who wants to hear of a change."""

from __future__ import annotations

from aiokafkawire.broker.callbacks import Callbacks


def test_each_is_called_at_every_change_in_the_order_of_coming() -> None:
    watchers = Callbacks()
    heard: list[str] = []

    def first() -> None:
        heard.append("first")

    def second() -> None:
        heard.append("second")

    watchers.add(first)
    watchers.add(second)
    watchers.add(first)
    watchers.notify()
    assert heard == ["first", "second"]
    watchers.remove(first)
    watchers.remove(first)
    watchers.notify()
    assert heard == ["first", "second", "second"]
    assert len(watchers) == 1


def test_one_that_goes_while_it_is_called_does_not_keep_others_from_it() -> None:
    watchers = Callbacks()
    heard: list[str] = []

    def leaving() -> None:
        watchers.remove(leaving)
        heard.append("leaving")

    watchers.add(leaving)
    watchers.add(lambda: heard.append("other"))
    watchers.notify()
    watchers.notify()
    assert heard == ["leaving", "other", "other"]
