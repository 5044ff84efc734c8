"""One connection of a client: requests in, responses out, one after the other."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from typing import Protocol

import anyio

from aiokafkawire.broker.apis import CONTROLLER_HANDLERS, HANDLERS
from aiokafkawire.broker.call import Call, Disconnect, Peer, State
from aiokafkawire.broker.client_log import ClientLog, error_codes
from aiokafkawire.broker.faults import (
    Answer,
    Close,
    Corrupt,
    Delay,
    Drop,
    Faults,
    Outcome,
    RequestLog,
    SeenRequest,
)
from aiokafkawire.broker.releases import NODE_CLIENT_ID, NotServed, Release, Versions
from aiokafkawire.errors import (
    KafkaError,
    MalformedFrame,
    MalformedMessage,
    UnsupportedVersion,
)
from aiokafkawire.runtime import NEVER, Buffer, Signal, Transport
from aiokafkawire.wire import ApiKey, ErrorCode, Response
from aiokafkawire.wire.api import APIS
from aiokafkawire.wire.codec import decode_prefix
from aiokafkawire.wire.frame import FrameReader
from aiokafkawire.wire.header import RequestHeader, decode_request_header, encode_response
from aiokafkawire.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

__all__ = ("MAX_QUEUED_BYTES", "MAX_QUEUED_REQUESTS", "ServerConnection", "Site")

logger = logging.getLogger("aiokafkawire.broker")

_HANDLERS = {**HANDLERS, **CONTROLLER_HANDLERS}

MAX_QUEUED_REQUESTS = 32
MAX_QUEUED_BYTES = 2**20
"""Requests read ahead on one connection while an earlier one is carried out; beyond either bound
the client has to wait. Reading ahead is how the end of a client is noticed."""


class Site(Protocol):
    """What a connection needs of the node that it came in at."""

    @property
    def node_id(self) -> int: ...

    @property
    def state(self) -> State: ...

    @property
    def faults(self) -> Faults: ...

    @property
    def requests(self) -> RequestLog: ...

    def seen(self, request: SeenRequest) -> None:
        """A request came in."""
        ...

    async def not_paused(self) -> None:
        """Return once the node runs."""
        ...


class _Refused(Disconnect):
    """The request is of an API or a version that is not served."""


class ServerConnection:
    """Two tasks run it: `read` fills a queue of frames, `serve` answers them in order."""

    def __init__(self, site: Site, transport: Transport, number: int) -> None:
        self._site = site
        self._transport = transport
        self._number = number
        self._peer = Peer(transport.peer.rpartition(":")[0])
        self._frames: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._filled = Signal()
        self._emptied = Signal()
        self._ended = False
        self._muted = False
        self._client: str | None = None
        self._internal = False
        self.idle_since = site.state.clock.now()
        self.name = f"node {site.node_id}: connection {number} from {transport.peer}"

    @property
    def _release(self) -> Release:
        return self._site.state.releases[self._site.node_id]

    async def run(self) -> None:
        """Serve the client until it leaves or is to be disconnected."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.read)
            await self.serve()
            tasks.cancel_scope.cancel()

    async def read(self) -> None:
        """Read until the client leaves or sends what is no frame."""
        reader = FrameReader(self._site.state.options.max_request_bytes)
        try:
            while True:
                count = await self._transport.receive_into(reader.get_buffer())
                if count == 0:
                    return
                for frame in reader.received(count):
                    await self._queue(frame)
        except MalformedFrame as error:
            self._unreadable(error)
            logger.warning("%s: closed: %s", self.name, error)
        except OSError as error:
            logger.debug("%s: lost: %s", self.name, error)
        finally:
            self._ended = True
            self._peer.leave()
            self._filled.set()

    async def serve(self) -> None:
        """Answer what `read` queued, to its end."""
        try:
            while (frame := await self._next()) is not None:
                buffers = await self._answer(frame)
                if buffers:
                    await self._site.not_paused()
                    await self._transport.send(buffers)
        except _Refused:
            pass  # it is logged
        except Disconnect as reason:
            logger.warning("%s: closed: %s", self.name, reason)
        except OSError as error:
            logger.debug("%s: lost: %s", self.name, error)
        except Exception:
            # A defect here must cost this client its connection, not everybody the broker.
            logger.exception("%s: closed: a request could not be carried out", self.name)
        finally:
            if self._client is not None:
                self._log.disconnected(self.name, self._client, internal=self._internal)
            self._transport.abort()
            with anyio.CancelScope(shield=True):
                await self._transport.aclose()

    @property
    def _log(self) -> ClientLog:
        return self._site.state.client_log

    def _introduce(self, header: RequestHeader, message: object = None) -> str:
        """Describe the client by its first request."""
        client = "a client without id"
        if header.client_id is not None:
            client = f"client {header.client_id!r}"
        if isinstance(message, ApiVersionsRequest) and message.client_software_name:
            client += f" ({message.client_software_name} {message.client_software_version})"
        if self._client is None:
            self._client = client
            self._internal = (header.client_id or "").startswith(NODE_CLIENT_ID)
            self._log.connected(self.name, client, internal=self._internal)
        return self._client

    def hang_up(self) -> None:
        """End it as soon as it is idle."""
        self._ended = True
        self._filled.set()

    async def _queue(self, frame: memoryview) -> None:
        while self._frames and (
            len(self._frames) >= MAX_QUEUED_REQUESTS or self._queued_bytes >= MAX_QUEUED_BYTES
        ):
            await self._emptied.wait()
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        self._filled.set()

    async def _next(self) -> memoryview | None:
        self.idle_since = self._site.state.clock.now()
        while not self._frames:
            if self._ended:
                return None
            await self._filled.wait()
        self.idle_since = NEVER
        frame = self._frames.popleft()
        self._queued_bytes -= len(frame)
        self._emptied.set()
        return frame

    async def _answer(self, frame: memoryview) -> list[Buffer]:
        """The bytes to send for a request; none if it gets no answer."""
        await self._site.not_paused()
        release = self._release
        try:
            header = decode_request_header(frame)
        except UnsupportedVersion as error:
            self._unreadable(error)
            return self._refuse(str(error), self._client or "a client")
        except MalformedMessage as error:
            self._unreadable(error)
            raise Disconnect(str(error)) from error
        served = release.served.get(header.api_key)
        if served is None or not served.low <= header.api_version <= served.high:
            return self._refuse_version(header, served)
        try:
            cls = APIS[header.api_key].request
            # Brokers do not mind what follows a request: librdkafka leaves bytes there.
            message, _ = decode_prefix(cls, header.api_version, frame[header.header_size :])
        except MalformedMessage as error:
            self._unreadable(error)
            return self._refuse(str(error), self._introduce(header))
        if self._client is None:
            self._introduce(header, message)
        seen = SeenRequest(
            api_key=header.api_key,
            version=header.api_version,
            node_id=self._site.node_id,
            client_id=header.client_id or "",
            correlation_id=header.correlation_id,
            connection=self._number,
            size_bytes=len(frame),
            message=message,
            at=self._site.state.clock.now(),
        )
        self._site.seen(seen)
        response, corrupt = await self._respond(seen)
        if response is None or self._muted:
            return []
        buffers = encode_response(response, header.api_version, header.correlation_id)
        now = self._site.state.clock.now()
        self._site.requests.answered(seen, now, sum(map(len, buffers)))
        return buffers if corrupt is None else corrupt.frame(buffers)

    def _unreadable(self, error: KafkaError) -> None:
        self._site.requests.unreadable.append(f"{self.name}: {error}")

    def _refuse(self, reason: str, client: str) -> list[Buffer]:
        """What an API or a version is answered that this release does not have."""
        closes = self._release.not_served is NotServed.CLOSED
        consequence = "closed" if closes else "not answered"
        self._log.refused(self.name, client, reason, consequence)
        if closes:
            raise _Refused(reason)
        return []

    def _refuse_version(self, header: RequestHeader, served: Versions | None) -> list[Buffer]:
        request = f"{APIS[header.api_key].name} (API key {header.api_key}) v{header.api_version}"
        if served is None:
            return self._refuse(f"{request} is not served", self._introduce(header))
        if header.api_key is not ApiKey.API_VERSIONS:
            return self._refuse(
                f"{request} is not served (v{served.low} to v{served.high} are)",
                self._introduce(header),
            )
        own = ApiVersion(api_key=header.api_key, min_version=served.low, max_version=served.high)
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[own] if self._release.tells_range else [],
        )
        return encode_response(response, 0, header.correlation_id)

    async def _respond(self, seen: SeenRequest) -> tuple[Response | None, Corrupt | None]:
        """What faults make of a request, else what its handler answers, and what damages it."""
        for fault in self._site.faults.matching(seen):
            outcome: Outcome
            if callable(fault.action):
                result = fault.action(seen)
                outcome = await result if inspect.isawaitable(result) else result
            else:
                outcome = fault.action
            if outcome is None:
                continue
            fault.hits += 1
            if isinstance(outcome, Delay):
                clock = self._site.state.clock
                await clock.sleep_until(clock.now() + outcome.seconds)
                continue
            if isinstance(outcome, Corrupt):
                response = await self._handle(seen)
                return (None if response is None else outcome.response(response)), outcome
            return await self._misbehave(seen, outcome), None
        return (None if self._muted else await self._handle(seen)), None

    async def _misbehave(
        self, seen: SeenRequest, outcome: Drop | Close | Answer | Response | None
    ) -> Response | None:
        """Carry out a fault that decides."""
        if isinstance(outcome, Answer):
            failed = _HANDLERS[seen.api_key].failed
            answer = failed(seen.message, seen.version, outcome.error_code)
            if outcome.carried_out:
                return None if await self._handle(seen) is None else answer
            outcome = answer
        if outcome is None or isinstance(outcome, Response):
            self._site.requests.settle(seen, outcome, carried_out=False)
            return outcome
        if outcome.carried_out:
            await self._handle(seen)
        else:
            self._site.requests.settle(seen, None, carried_out=False)
        if isinstance(outcome, Close):
            raise Disconnect(f"as told, instead of an answer to {seen.api_key.name}")
        self._muted = True
        return None

    async def _handle(self, seen: SeenRequest) -> Response | None:
        call = Call(
            state=self._site.state,
            node_id=self._site.node_id,
            version=seen.version,
            client_id=seen.client_id,
            peer=self._peer,
        )
        response = await _HANDLERS[seen.api_key].handle(call, seen.message)
        if logger.isEnabledFor(logging.DEBUG):
            self._log_errors(seen, response)
        self._site.requests.settle(seen, response, carried_out=True)
        return response

    def _log_errors(self, seen: SeenRequest, response: Response | None) -> None:
        codes = list(dict.fromkeys(code.name for code in error_codes(response)))
        if codes:
            logger.debug(
                "%s: %s v%d of %s is answered %s",
                self.name,
                APIS[seen.api_key].name,
                seen.version,
                self._client,
                ", ".join(codes),
            )
