"""The embedded broker answers as real brokers did when they were asked the same.

`python -m tests.brokers.compare_as_of --record` makes new recordings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.broker.conformance import CASES, RELEASES, Recording, embedded

MAX_DIFFERENCES = 3

FAST = ("0.8.2.2", "4.3.0")

AT_ONCE = "a topic is there as soon as it was asked for; a real one is made behind the answer"
ASTRAY = "a replica on a node that nobody knows is refused; ZooKeeper's brokers wait for it in vain"
DRAFTS = "0.8.2 has drafts of JoinGroup and Heartbeat, which later releases do not speak"

DIFFERENCES: Mapping[str, Mapping[str, str]] = {
    "0.8.2.2": {"metadata_auto_creates_a_topic": AT_ONCE, "unknown_version": DRAFTS},
    "0.9.0.1": {"metadata_auto_creates_a_topic": AT_ONCE},
    "0.10.2.2": {"metadata_auto_creates_a_topic": AT_ONCE, "create_on_an_unknown_broker": ASTRAY},
    "1.1.1": {"metadata_auto_creates_a_topic": AT_ONCE, "create_on_an_unknown_broker": ASTRAY},
    "2.8.2": {"metadata_auto_creates_a_topic": AT_ONCE, "create_on_an_unknown_broker": ASTRAY},
    "3.9.1": {"metadata_auto_creates_a_topic": AT_ONCE},
    "4.3.0": {"metadata_auto_creates_a_topic": AT_ONCE},
}
"""Cases with different responses by release, with the reason."""


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True, scope="module")
@pytest.mark.parametrize(
    "version",
    [pytest.param(each, marks=() if each in FAST else pytest.mark.slow) for each in RELEASES],
)
async def test_responses_equal_those_of_the_release(
    version: str, record_property: Callable[[str, object], None]
) -> None:
    real = Recording.read(version)
    apis, responses = await embedded(version)
    assert apis == {name: real.apis[name] for name in apis}
    assert list(responses) == list(real.responses), "record the questions again"
    allowed = DIFFERENCES[version]
    differ = {name for name, answer in responses.items() if answer != real.responses[name]}
    for name in sorted(differ - set(allowed)):
        assert responses[name] == real.responses[name]
    assert differ == set(allowed), "what is agreed upon now is no difference"
    assert len(allowed) <= MAX_DIFFERENCES
    record_property(
        "summary", f"as_of {version}: {len(responses)} questions, {len(differ)} answered otherwise"
    )


def test_every_recording_has_forty_responses() -> None:
    for version in RELEASES:
        responses = Recording.read(version).responses
        assert sum(map(len, responses.values())) >= 40, version
    assert len({each.name for each in CASES}) == len(CASES)
