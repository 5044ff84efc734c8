"""Wrong arguments of `Worker.on`: each error names the argument, the value and what to write."""

from __future__ import annotations

import re
from typing import Any

import pytest

from aiokafkawire.worker import RetryPolicy, Worker
from tests.worker.helpers import ignore


@pytest.fixture
def worker() -> Worker:
    return Worker(bootstrap_servers="localhost:1", group_id="billing")


@pytest.mark.parametrize(
    ("topics", "text"),
    [
        ((), "on() needs a topic: write @worker.on('orders')"),
        ((["a", "b"],), "topics must be strings, not ['a', 'b']: write @worker.on('a', 'b')"),
        ((("a",),), "topics must be strings, not ('a',): write @worker.on('a')"),
        ((b"a",), "topics must be strings, not b'a': write @worker.on('orders')"),
        ((None,), "topics must be strings, not None: write @worker.on('orders')"),
    ],
)
def test_topics_are_strings(worker: Worker, topics: tuple[Any, ...], text: str):
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        worker.on(*topics)


def test_the_decorator_needs_parentheses(worker: Worker):
    text = r"^on\(\) needs a topic, not <function ignore at .*>: write @worker\.on\('orders'\)$"
    with pytest.raises(TypeError, match=text):
        worker.on(ignore)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"retries": 3},
            "retries must be a RetryPolicy, not 3: write retries=RetryPolicy(attempts=3)",
        ),
        (
            {"retries": 0},
            "retries must be a RetryPolicy, not 0: write retries=RetryPolicy(attempts",
        ),
        ({"retries": {"attempts": 5}}, "retries must be a RetryPolicy, not {'attempts': 5}: write"),
        ({"retries": RetryPolicy}, "retries must be a RetryPolicy, not <class"),
        (
            {"batch": 5},
            "batch must be a BatchPolicy, not 5: write batch=BatchPolicy(max_records=5)",
        ),
        ({"batch": True}, "batch must be a BatchPolicy, not True: write batch=BatchPolicy(max"),
        ({"timeout_ms": "5s"}, "timeout_ms must be a number, not '5s': write timeout_ms=5_000"),
        ({"value": 3}, "value: pass a type or a function, not 3, such as value=json.loads"),
        ({"key": set}, "key: set is not supported: pass a pydantic model"),
    ],
)
def test_arguments_have_their_types(worker: Worker, arguments: dict[str, Any], text: str):
    with pytest.raises(TypeError, match=re.escape(text)):
        worker.on("orders", **arguments)


def test_a_handler_takes_one_argument(worker: Worker):
    async def bill(key: bytes, value: bytes) -> None: ...

    def nothing() -> None: ...

    for function in (bill, nothing):
        with pytest.raises(TypeError, match=rf"not {function.__name__}\(.*write async def"):
            worker.on("orders")(function)


def test_a_method_needs_its_instance(worker: Worker):
    class Service:
        async def bill(self, record: Any) -> None: ...

    with pytest.raises(TypeError, match=r"write worker\.on\('orders'\)\(service\.bill\)"):
        worker.on("orders")(Service.bill)
    worker.on("orders")(Service().bill)


def test_other_arguments_of_a_handler_may_have_defaults(worker: Worker):
    @worker.on("orders")
    async def bill(record: Any, currency: str = "EUR", *rest: Any, **options: Any) -> None: ...

    worker.on("lengths")(len)
