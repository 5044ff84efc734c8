"""Connection of one command to a cluster, with one deadline for all requests."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from aiokafkawire.cli.arguments import client_options, require_utf8
from aiokafkawire.cli.common_options import DEFAULT_TIMEOUT_MS, client_arguments
from aiokafkawire.cli.error_text import FAILED, OK, CommandFailed, explain, one_line
from aiokafkawire.cli.run_loop import Interruption, run_command
from aiokafkawire.cli.standard_streams import print_stderr, require_stdout
from aiokafkawire.cli.streams import OutputStream
from aiokafkawire.cluster import Cluster, Route, ToController
from aiokafkawire.config import ClientConfig, did_you_mean, make_config
from aiokafkawire.connection import VersionedRequest
from aiokafkawire.errors import KafkaError
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import RealRuntime, Runtime, Supervisor
from aiokafkawire.wire import ErrorCode, Request, Response, error_for

__all__ = (
    "AdminCommand",
    "ClientSession",
    "admin_command",
    "admin_options",
    "open_session",
    "print_results",
    "require_topics",
    "response_error",
)

R = TypeVar("R", bound=Response)

CLOSE_TIMEOUT_MS = 5_000


class ClientSession(NamedTuple):
    """A connected cluster; `deadline` is in seconds of the runtime's clock."""

    cluster: Cluster
    runtime: Runtime
    deadline: float

    @property
    def timeout_ms(self) -> int:
        """Milliseconds until the deadline, at least 1."""
        return max(int((self.deadline - self.runtime.clock.now()) * 1000), 1)

    async def request(
        self,
        message: Request[R] | VersionedRequest[R],
        to: Route,
        *,
        max_version: int | None = None,
    ) -> R:
        """Send a request to its route and return the response. Retry until the deadline.

        Raises `UnsupportedVersion` at once for an API that the brokers do not support, even if
        they are too old to report the controller.
        """
        metadata = self.cluster.metadata
        if to == ToController() and metadata.controller_id not in metadata.nodes and metadata.nodes:
            anyone = self.cluster.broker_client(min(metadata.nodes))
            (await anyone.get_api_versions(self.deadline)).latest_usable_version(
                message.api_key, max_version
            )
        return await self.cluster.request(
            message, to=to, deadline=self.deadline, max_version=max_version
        )


def admin_options(
    brokers: str | None, assignments: Sequence[str], config: Path | None = None
) -> dict[str, Any]:
    """Return the client options of an admin command. Raises `InvalidOption`."""
    return client_options(
        ClientConfig,
        assignments,
        {"bootstrap_servers": brokers},
        {
            "allow_auto_create_topics": False,
            "close_timeout_ms": CLOSE_TIMEOUT_MS,
            "default_api_timeout_ms": DEFAULT_TIMEOUT_MS,
        },
        config=config,
    )


@asynccontextmanager
async def open_session(
    options: dict[str, Any], *, all_topics: bool = False
) -> AsyncIterator[ClientSession]:
    """Connect to the cluster; fetch metadata of all topics if asked. Raises `NoBrokerAvailable`."""
    config = make_config(ClientConfig, options)
    runtime = RealRuntime()
    supervisor = Supervisor("aiokafkawire", fields=log_fields(client_id=config.client_id))
    await supervisor.start()
    try:
        cluster = Cluster(config, runtime, supervisor)
        cluster.all_topics = all_topics
        deadline = runtime.clock.now() + config.default_api_timeout_ms / 1000
        await cluster.start(deadline)
        yield ClientSession(cluster, runtime, deadline)
        await cluster.aclose()
    finally:
        supervisor.abort()
        await supervisor.stop()


def response_error(code: int, message: str | None = None, **context: Any) -> KafkaError | None:
    """Return the error for an error code, None for code 0; `message` is the broker's own text."""
    if code == ErrorCode.NONE:
        return None
    error = error_for(code, **context)
    if message:
        error.reason += f": {message}"
    return error


def require_topics(session: ClientSession, names: Sequence[str]) -> None:
    """Raise `CommandFailed` for a topic that does not exist. Needs metadata of all topics."""
    known = session.cluster.metadata.topics
    for name in names:
        if name not in known:
            raise CommandFailed(
                f"topic {name!r} does not exist{did_you_mean(name, list(known))};"
                " `aiokafkawire topics list` lists the topics"
            )


async def print_results(text: str) -> None:
    """Write to stdout."""
    await OutputStream(sys.stdout.fileno()).write(text.encode())


SessionWork = Callable[[ClientSession], Awaitable[Sequence[Exception]]]


class AdminCommand(NamedTuple):
    """Options of an admin command, as `client_arguments` parsed them."""

    options: dict[str, Any]
    backend: str
    quiet: bool = False

    def note_empty(self, what: str) -> None:
        """Report on stderr that a list is empty: stdout has no line then."""
        if not self.quiet:
            print_stderr(f"% no {what}")

    def execute(
        self, work: SessionWork, *, all_topics: bool = False, has_output: bool = True
    ) -> int:
        """Connect, run `work`, print one line per error, and return the exit code.

        With `has_output`, fail before connecting if stdout is closed.
        """
        if has_output:
            require_stdout()
        failed: list[Exception] = []

        async def run_in_session(_: Interruption) -> None:
            async with open_session(self.options, all_topics=all_topics) as session:
                failed.extend(await work(session))

        try:
            run_command(run_in_session, backend=self.backend)
        except BrokenPipeError:
            # The reader of stdout has exited, as `head` does.
            return OK
        for error in failed:
            print_stderr(one_line(f"aiokafkawire: {explain(error)}"))
        return FAILED if failed else OK


def admin_command(function: Callable[..., int]) -> Callable[..., int]:
    """Add `client_arguments`; pass them as an `AdminCommand` in the first argument."""

    @functools.wraps(function)
    def command(
        *,
        brokers: str | None,
        config: Path | None,
        assignments: tuple[str, ...],
        quiet: bool,
        backend: str,
        **others: Any,
    ) -> int:
        for value in others.values():
            require_utf8(value)
        options = admin_options(brokers, assignments, config)
        return function(AdminCommand(options, backend, quiet), **others)

    return client_arguments(ClientConfig)(command)
