"""The admin client that applications use."""

from __future__ import annotations

from typing import Never, Unpack

from aiokafkawire.admin.acls import AclOperations
from aiokafkawire.admin.cluster import ClusterOperations
from aiokafkawire.admin.configs import ConfigOperations
from aiokafkawire.admin.credentials import CredentialOperations
from aiokafkawire.admin.ensure import EnsureOperations
from aiokafkawire.admin.features import FeatureOperations
from aiokafkawire.admin.group_offsets import GroupOffsetOperations
from aiokafkawire.admin.groups import GroupOperations
from aiokafkawire.admin.log_dirs import LogDirOperations
from aiokafkawire.admin.offsets import OffsetOperations
from aiokafkawire.admin.quorum import QuorumOperations
from aiokafkawire.admin.quotas import QuotaOperations
from aiokafkawire.admin.reassignments import ReassignmentOperations
from aiokafkawire.admin.requester import Requester
from aiokafkawire.admin.share_groups import ShareGroupOperations
from aiokafkawire.admin.streams_groups import StreamsGroupOperations
from aiokafkawire.admin.topic_partitions import PartitionOperations
from aiokafkawire.admin.topics import TopicOperations
from aiokafkawire.admin.transactions import TransactionOperations
from aiokafkawire.cluster import Cluster
from aiokafkawire.config import AdminConfig, AdminOptions, make_config
from aiokafkawire.config.name_hints import ADMIN_HINTS
from aiokafkawire.connection import parse_api_version
from aiokafkawire.errors import InvalidOption
from aiokafkawire.logs import log_fields
from aiokafkawire.runtime import NEVER, BaseClient, Runtime, Session, Supervisor, client_label
from aiokafkawire.telemetry import (
    ADMIN,
    ClientTelemetryReporter,
    MetricsSource,
    PushesMetrics,
)
from aiokafkawire.types import PingResult, require_timeout

__all__ = ("Admin",)


class _AdminSession(Session):
    """The objects that an admin client has between start and stop."""

    def __init__(self, config: AdminConfig, runtime: Runtime, supervisor: Supervisor) -> None:
        self.runtime = runtime
        self.cluster = Cluster(config, runtime, supervisor)
        source = MetricsSource(ADMIN, self.cluster.metrics)
        self.telemetry = ClientTelemetryReporter(self.cluster, runtime, supervisor, source)


class Admin(
    BaseClient[_AdminSession],
    PushesMetrics,
    EnsureOperations,
    TopicOperations,
    PartitionOperations,
    ConfigOperations,
    ClusterOperations,
    FeatureOperations,
    QuorumOperations,
    LogDirOperations,
    ReassignmentOperations,
    OffsetOperations,
    GroupOperations,
    GroupOffsetOperations,
    ShareGroupOperations,
    StreamsGroupOperations,
    AclOperations,
    CredentialOperations,
    QuotaOperations,
    TransactionOperations,
    absent=ADMIN_HINTS,
):
    """Describes and changes topics, configs, groups, access control and the cluster itself.

    ::

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("orders", num_partitions=6)])

    The methods have the names of Java's Admin interface in snake_case. Each finds the brokers that
    can answer (the controller, coordinators, partition leaders, or all brokers), sends its requests
    in parallel, and retries errors that pass until its deadline: `timeout_ms` of the call, or
    `default_api_timeout_ms`.

    A call about many items, such as topics, raises `PartialFailure` if some of them failed; it has
    the results of the others. With `return_errors=True` the call returns the errors as results. A
    call for which the brokers are too old uses an older API, or raises `UnsupportedVersion` with
    the release needed.

    Use an admin client only in the event loop that started it. Several tasks may share it. Every
    call may be cancelled; a broker may then carry out what has been sent.

    Args:
        options: The fields of `AdminConfig`; only `bootstrap_servers` is required, or
            `bootstrap_controllers`.

    Raises:
        InvalidOption: An option is unknown, out of range, or contradicts another one.
        TypeError: A positional argument was given.
    """

    def __init__(self, *positional: Never, **options: Unpack[AdminOptions]) -> None:
        """Check the options. The client connects in `start` or `async with`.

        `help(aiokafkawire.config.AdminOptions)` lists all options.
        """
        if positional:
            raise TypeError(
                f"Admin takes keyword arguments only, not a {type(positional[0]).__name__}:"
                " Admin(bootstrap_servers='host:port')"
            )
        self.config = _make_config(options)
        parse_api_version(self.config.api_version)
        super().__init__(
            "admin client",
            client_label("Admin", self.config),
            log_prefix=f"admin {self.config.client_id}",
            fields=log_fields(client_id=self.config.client_id),
            hooks=self.config.hooks,
        )

    async def start(self) -> None:
        """Connect to the cluster; the same as entering `async with`.

        With `connect_on_start=False` it returns at once and the client connects in the background;
        calls wait for that. After a failure it may be called again. A stopped client cannot be
        started again.

        Raises:
            NoBrokerAvailable: No broker answered within `default_api_timeout_ms`.
            AuthenticationFailed: A broker rejected the credentials.
        """
        await super().start()

    async def stop(self) -> None:
        """Close all connections. Calls in progress raise `ClientClosed`.

        May be called in any task of the event loop, and again without effect.
        """
        await super().stop()

    async def _start(self, runtime: Runtime, supervisor: Supervisor) -> _AdminSession:
        session = _AdminSession(self.config, runtime, supervisor)
        timeout_s = self.config.default_api_timeout_ms / 1_000
        await session.cluster.start(runtime.clock.now() + timeout_s)
        return session

    async def _close(self, body_error: BaseException | None) -> Exception | None:
        self._lifecycle.check_loop()
        session = self._lifecycle.session
        fatal = self._lifecycle.take_unreported_failure()
        deadline = NEVER
        if session is not None:
            deadline = session.runtime.clock.now() + self.config.close_timeout_ms / 1_000
        await self._lifecycle.stop(_close_session, deadline)
        return fatal

    def _telemetry(self) -> ClientTelemetryReporter:
        return self._lifecycle.require_session_in_loop().telemetry

    async def ping(
        self, timeout_ms: float = 2_000, *, topic: str | None = None, group: str | None = None
    ) -> PingResult:
        """Check whether a broker responds; see `Producer.ping`."""
        session = self._lifecycle.require_session_in_loop()
        return await session.cluster.pinger.ping(timeout_ms, topic=topic, group=group)

    def metrics(self) -> dict[str, int | float]:
        """Return the current metrics of the connections; names end in their unit."""
        return self._lifecycle.require_session_in_loop().cluster.metrics()

    def _requester(self, timeout_ms: int | None) -> Requester:
        session = self._lifecycle.require_session_in_loop()
        if timeout_ms is None:
            timeout_ms = self.config.default_api_timeout_ms
        else:
            require_timeout("timeout_ms", timeout_ms)
            if timeout_ms < 0:
                raise ValueError(f"timeout_ms must be at least 0, not {timeout_ms}")
        deadline = session.runtime.clock.now() + timeout_ms / 1_000
        return Requester(session.cluster, session.runtime, deadline)


def _make_config(options: AdminOptions) -> AdminConfig:
    controllers = options.get("bootstrap_controllers")
    if controllers is None:
        return make_config(AdminConfig, options)
    if "bootstrap_servers" in options:
        raise InvalidOption("bootstrap_controllers cannot be combined with bootstrap_servers")
    return make_config(AdminConfig, {**options, "bootstrap_servers": controllers})


async def _close_session(session: _AdminSession) -> None:
    await session.telemetry.close()
    await session.cluster.aclose()
