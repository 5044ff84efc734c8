"""Rates of one node's clients, and throttle times by Kafka's rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aiokafkawire.broker.quotas.controller_mutations import MutationQuota, TokenBucket
from aiokafkawire.broker.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    LOCALHOST,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuotas,
    Entity,
    make_entity,
)
from aiokafkawire.broker.quotas.rates import SAMPLES, WINDOW_S, SampledRate

__all__ = ("ClientQuotaManager",)

MAX_SENSORS = 10_000
"""Limit of clients whose rates a node measures; idle ones are dropped first."""

MAX_REQUEST_THROTTLE_S = WINDOW_S
"""Longest throttle time of `request_percentage`, as in Kafka."""

MAX_CONNECTION_THROTTLE_S = WINDOW_S
"""Longest time until a connection beyond `connection_creation_rate` is closed, as in Kafka."""

LOOPBACK = frozenset({"127.0.0.1", "::1"})

Sensor = tuple[str, str | None, str | None]
"""Quota, user and client id that share a rate; None where the quota does not distinguish."""


class ClientQuotaManager:
    """Measures one node's clients against the quotas of the cluster."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self.quotas = quotas
        self._rates: dict[Sensor, SampledRate] = {}
        self._buckets: dict[Sensor, TokenBucket] = {}

    def record(self, key: str, user: str, client_id: str, value: float, now: float) -> float:
        """Record a use of a quota; return the throttle time in seconds, 0 within the quota."""
        found = self._find(key, user, client_id)
        if found is None:
            return 0.0
        limit, sensor = found
        rate = self._sensor(sensor, now)
        rate.record(value, now)
        excess = rate.rate(now) - limit
        if excess <= 0:
            return 0.0
        throttle_s = excess / limit * rate.window_s(now)
        return min(throttle_s, MAX_REQUEST_THROTTLE_S) if key == REQUEST_PERCENTAGE else throttle_s

    def unrecord(self, key: str, user: str, client_id: str, value: float, now: float) -> None:
        """Take back what `record` recorded, as the response does not contain it."""
        found = self._find(key, user, client_id)
        if found is not None:
            self._sensor(found[1], now).record(-value, now)

    def max_fetch_bytes(self, user: str, client_id: str) -> int | None:
        """Return the largest response that the quota permits at all, None without a quota."""
        found = self._find(CONSUMER_BYTE_RATE, user, client_id)
        return None if found is None else int(found[0] * (SAMPLES - 1) * WINDOW_S)

    def mutation_quota(
        self, user: str, client_id: str, now: Callable[[], float], *, is_strict: bool
    ) -> MutationQuota | None:
        """Return the quota of a request that creates or deletes partitions, None without one."""
        found = self._find(CONTROLLER_MUTATION_RATE, user, client_id)
        if found is None:
            return None
        limit, sensor = found
        bucket = self._buckets.get(sensor)
        if bucket is None:
            if len(self._buckets) >= MAX_SENSORS:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[sensor] = TokenBucket()
        return MutationQuota(limit, bucket, now, is_strict=is_strict)

    def record_connection(self, host: str, now: float) -> float:
        """Record a connection of an address; return the throttle time in seconds.

        A connection that exceeds the quota does not count.
        """
        limit = self._connection_limit(host) if self.quotas else None
        if limit is None:
            return 0.0
        rate = self._sensor((CONNECTION_CREATION_RATE, host, None), now)
        rate.record(1, now)
        excess = rate.rate(now) - limit
        if excess <= 0:
            return 0.0
        throttle_s = excess / limit * rate.window_s(now)
        rate.record(-1, now)
        return min(throttle_s, MAX_CONNECTION_THROTTLE_S)

    def _connection_limit(self, host: str) -> float | None:
        names = (host, LOCALHOST, None) if host in LOOPBACK else (host, None)
        limits = (self.quotas.value(make_entity({IP: n}), CONNECTION_CREATION_RATE) for n in names)
        return next((limit for limit in limits if limit is not None), None)

    def _find(self, key: str, user: str, client_id: str) -> tuple[float, Sensor] | None:
        """Return the quota that applies, and the clients that share it."""
        if not self.quotas:
            return None
        for entity in _by_precedence(user, client_id):
            limit = self.quotas.value(entity, key)
            if limit is not None:
                kinds = {kind for kind, _ in entity}
                return limit, (
                    key,
                    user if USER in kinds else None,
                    client_id if CLIENT_ID in kinds else None,
                )
        return None

    def _sensor(self, sensor: Sensor, now: float) -> SampledRate:
        rate = self._rates.get(sensor)
        if rate is None:
            if len(self._rates) >= MAX_SENSORS:
                idle = min(self._rates, key=lambda each: self._rates[each].last_recorded_at)
                del self._rates[idle]
            rate = self._rates[sensor] = SampledRate()
        return rate


def _by_precedence(user: str, client_id: str) -> Iterator[Entity]:
    """Yield the entities whose quotas can apply, the most specific first."""
    for name in (user, None):
        yield make_entity({USER: name, CLIENT_ID: client_id})
        yield make_entity({USER: name, CLIENT_ID: None})
        yield make_entity({USER: name})
    yield make_entity({CLIENT_ID: client_id})
    yield make_entity({CLIENT_ID: None})
