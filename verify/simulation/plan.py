"""Plan of one run as data: drawn from the seed before the run, and reduced when the run fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verify.simulation.security import PLAINTEXT, Security

__all__ = ("BROKER_HOST", "Plan", "PlannedClient", "Step")

BROKER_HOST = "10.0.0.1"
"""Host of all nodes; each has its own port."""


@dataclass(frozen=True, slots=True)
class Step:
    """An action at a time, including its end: a killed node is restarted.

    `kind` is a name in `faults.FAULTS`, or one registered by the scenario with `Harness.on`. It
    begins `iterations` of the event loop after its time.
    """

    at_s: float
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    iterations: int = 0

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        later = f" + {self.iterations}" if self.iterations else ""
        return f"{self.at_s:9.3f} s{later}  {self.kind}({arguments})"


@dataclass(frozen=True, slots=True)
class PlannedClient:
    """An application: name, address of its host, kind, and arguments."""

    name: str
    host: str
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name} at {self.host}: {self.kind}({arguments})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that defines a run, except the seed.

    `broker`: arguments of `Broker` (nodes, as_of, …); `network`: fields of `NetworkOptions`;
    `topics`: number of partitions per topic; `options`: data of the scenario; `records`: total
    number of sent records, as the scenario defines it; `security`: that of all connections. A
    scenario must run with any subset of its clients and steps, and with fewer records, so that a
    failing run can be shrunk.
    """

    broker: Mapping[str, Any]
    network: Mapping[str, Any] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    records: int = 0
    clients: tuple[PlannedClient, ...] = ()
    steps: tuple[Step, ...] = ()
    security: Security = PLAINTEXT

    def of(self, kind: str) -> list[PlannedClient]:
        """Return the clients of one kind."""
        return [client for client in self.clients if client.kind == kind]

    def only(
        self,
        *,
        steps: Iterable[int] | None = None,
        clients: Iterable[int] | None = None,
        records: int | None = None,
    ) -> Plan:
        """Return the plan with only these steps and clients (by number), and this number of
        records."""
        return dataclasses.replace(
            self,
            steps=self.steps if steps is None else tuple(self.steps[n] for n in steps),
            clients=self.clients if clients is None else tuple(self.clients[n] for n in clients),
            records=self.records if records is None else records,
        )

    def __str__(self) -> str:
        lines = [
            f"broker {dict(self.broker)}, {self.security}",
            f"network {dict(self.network)}",
            f"topics {dict(self.topics)}, {self.records} records, {dict(self.options)}",
            *(f"client {number}: {client}" for number, client in enumerate(self.clients)),
            *(f"step {number}: {step}" for number, step in enumerate(self.steps)),
        ]
        return "\n".join(lines)
