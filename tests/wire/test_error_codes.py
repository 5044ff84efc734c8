import pytest

from aiokafkawire.errors import BrokerError, UnknownServerError
from aiokafkawire.wire import ErrorCode, error_for, raise_for


def test_every_code_of_kafka_4_4_is_known() -> None:
    assert sorted(ErrorCode) == list(range(-1, 137))


def test_retriable_and_invalidates_metadata() -> None:
    stale = {code.value for code in ErrorCode if code.invalidates_metadata}
    assert stale == {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
    retriable = {code.value for code in ErrorCode if code.retriable}
    others = {2, 7, 14, 15, 16, 19, 20, 41, 51, 70, 71, 75, 78, 88, 89, 106, 122, 123, 133}
    assert retriable == stale | others


def test_error_has_its_context() -> None:
    error = error_for(6, topic="orders", partition=3, broker="kafka:9092")
    assert type(error) is BrokerError
    assert (error.code, error.name, error.retriable) == (6, "NOT_LEADER_OR_FOLLOWER", True)
    assert "orders" in str(error)
    assert "kafka:9092" in str(error)
    assert not error_for(29).retriable


@pytest.mark.parametrize("code", [-1, -2, 137, 32_767])
def test_unknown_codes_keep_their_number(code: int) -> None:
    error = error_for(code, topic="orders")
    assert isinstance(error, UnknownServerError)
    assert error.code == code
    assert not error.retriable


def test_raise_for() -> None:
    raise_for(0)
    with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
        raise_for(36, topic="orders")
