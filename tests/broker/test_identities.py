"""What InitProducerId hands out."""

from __future__ import annotations

from itertools import count

import pytest

from aiokafkawire.broker import identities
from aiokafkawire.broker.identities import MAX_EPOCH, Identities
from aiokafkawire.broker.refusal import Refusal
from aiokafkawire.types import ProducerIdAndEpoch
from aiokafkawire.wire import ErrorCode


@pytest.fixture
def ids() -> Identities:
    return Identities(count(40).__next__)


def refused(ids: Identities, *args: object) -> ErrorCode:
    with pytest.raises(Refusal) as caught:
        ids.init(*args)  # type: ignore[arg-type]
    return caught.value.code


def test_without_a_transactional_id_every_identity_is_new(ids: Identities) -> None:
    assert ids.init(None) == ProducerIdAndEpoch(40, 0)
    assert ids.init(None, 40, 0) == ProducerIdAndEpoch(41, 0)


def test_the_same_transactional_id_bumps_the_epoch(ids: Identities) -> None:
    assert ids.init("t") == ProducerIdAndEpoch(40, 0)
    assert ids.init("t") == ProducerIdAndEpoch(40, 1)
    assert ids.init("other") == ProducerIdAndEpoch(41, 0)


def test_a_producer_bumps_its_own_epoch_and_may_ask_again(ids: Identities) -> None:
    ids.init("t")
    assert ids.init("t", 40, 0) == ProducerIdAndEpoch(40, 1)
    assert ids.init("t", 40, 0) == ProducerIdAndEpoch(40, 1)
    assert ids.init("t", 40, 1) == ProducerIdAndEpoch(40, 2)
    assert refused(ids, "t", 40, 0) is ErrorCode.PRODUCER_FENCED
    assert refused(ids, "t", 99, 0) is ErrorCode.PRODUCER_FENCED


def test_an_exhausted_epoch_gives_a_new_id(ids: Identities) -> None:
    for _ in range(MAX_EPOCH + 1):
        last = ids.init("t")
    assert last == ProducerIdAndEpoch(40, MAX_EPOCH)
    assert ids.init("t") == ProducerIdAndEpoch(41, 0)


@pytest.mark.parametrize("args", [(None, 1, -1), (None, -1, 1), ("",)])
def test_what_makes_no_sense_is_refused(ids: Identities, args: tuple[object, ...]) -> None:
    assert refused(ids, *args) is ErrorCode.INVALID_REQUEST


def test_the_longest_unused_transactional_id_is_forgotten(
    ids: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identities, "MAX_TRANSACTIONAL_IDS", 2)
    for name in "abc":
        ids.init(name)
    assert ids.init("c") == ProducerIdAndEpoch(42, 1)
    assert ids.init("a") == ProducerIdAndEpoch(43, 0)
