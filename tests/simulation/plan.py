"""Plan of one run as data: drawn from the seed before the run, and reduced when the run fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ("BROKER_HOST", "Plan", "PlannedClient", "Step")

BROKER_HOST = "10.0.0.1"
"""Where all nodes are, each at a port of its own."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens at a time, the end of it included: a node that is killed comes back.

    `kind` is a name of `faults.FAULTS`, or one that the scenario's run has given a meaning with
    `Harness.on`.
    """

    at_s: float
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.at_s:9.3f} s  {self.kind}({arguments})"


@dataclass(frozen=True, slots=True)
class PlannedClient:
    """An application: its name, its host's address, what it does, and how."""

    name: str
    host: str
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name} at {self.host}: {self.kind}({arguments})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that a run is but the seed of its chance.

    `broker`: arguments of `Broker` (nodes, as_of, …); `network`: fields of `NetworkOptions`;
    `topics`: partitions of each; `options`: what the scenario likes; `records`: how many are sent
    in all (a scenario says what it makes of it). A scenario must be able to run with any of its
    clients and steps left out, and with fewer records: so a failing run is made short.
    """

    broker: Mapping[str, Any]
    network: Mapping[str, Any] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    records: int = 0
    clients: tuple[PlannedClient, ...] = ()
    steps: tuple[Step, ...] = ()

    def of(self, kind: str) -> list[PlannedClient]:
        """The clients of one kind."""
        return [client for client in self.clients if client.kind == kind]

    def only(
        self,
        *,
        steps: Iterable[int] | None = None,
        clients: Iterable[int] | None = None,
        records: int | None = None,
    ) -> Plan:
        """The plan with these of its steps and clients alone (by their numbers), fewer records."""
        return dataclasses.replace(
            self,
            steps=self.steps if steps is None else tuple(self.steps[n] for n in steps),
            clients=self.clients if clients is None else tuple(self.clients[n] for n in clients),
            records=self.records if records is None else records,
        )

    def __str__(self) -> str:
        lines = [
            f"broker {dict(self.broker)}",
            f"network {dict(self.network)}",
            f"topics {dict(self.topics)}, {self.records} records, {dict(self.options)}",
            *(f"client {number}: {client}" for number, client in enumerate(self.clients)),
            *(f"step {number}: {step}" for number, step in enumerate(self.steps)),
        ]
        return "\n".join(lines)
