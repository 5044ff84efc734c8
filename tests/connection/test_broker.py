"""One broker: lanes, deadlines, cancellation, and what goes wrong with a peer."""

from __future__ import annotations

from typing import Any

import anyio

from aiokafkawire.wire import ApiKey, Response
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

from .scripted import ScriptedBroker, client_of, serve

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


async def heartbeat(_: Any, __: Any) -> Response | None:
    return HeartbeatResponse(error_code=0)


def soon(seconds: float = 5) -> float:
    return anyio.current_time() + seconds


async def test_a_request_is_answered():
    broker = ScriptedBroker({ApiKey.HEARTBEAT: heartbeat})
    async with serve(broker) as server, client_of(server.address) as client:
        for _ in range(3):
            response = await client.request(HEARTBEAT, deadline=soon())
            assert response.error_code == 0
        assert server.accepted == 1
    assert [header.api_version for header in broker.seen] == [4, 4, 4, 4]
