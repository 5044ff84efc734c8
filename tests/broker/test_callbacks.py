"""Callbacks that are called on a change."""

from __future__ import annotations

from aiokafkawire.broker.callbacks import Callbacks


def test_each_is_called_at_every_change_in_the_order_of_coming() -> None:
    watchers = Callbacks()
    called: list[str] = []

    def first() -> None:
        called.append("first")

    def second() -> None:
        called.append("second")

    watchers.add(first)
    watchers.add(second)
    watchers.add(first)
    watchers.notify()
    assert called == ["first", "second"]
    watchers.remove(first)
    watchers.remove(first)
    watchers.notify()
    assert called == ["first", "second", "second"]
    assert len(watchers) == 1


def test_one_that_goes_while_it_is_called_does_not_keep_others_from_it() -> None:
    watchers = Callbacks()
    called: list[str] = []

    def leaving() -> None:
        watchers.remove(leaving)
        called.append("leaving")

    watchers.add(leaving)
    watchers.add(lambda: called.append("other"))
    watchers.notify()
    watchers.notify()
    assert called == ["leaving", "other", "other"]
