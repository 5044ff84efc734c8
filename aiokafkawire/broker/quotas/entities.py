"""Quotas by entity: users, client ids, pairs of them, and addresses (KIP-546, KIP-612)."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafkawire.broker.api_error import ApiError, invalid_request
from aiokafkawire.wire import ErrorCode

__all__ = (
    "CLIENT_ID",
    "CONNECTION_CREATION_RATE",
    "CONSUMER_BYTE_RATE",
    "CONTROLLER_MUTATION_RATE",
    "IP",
    "LOCALHOST",
    "PRODUCER_BYTE_RATE",
    "REQUEST_PERCENTAGE",
    "USER",
    "ClientQuotas",
    "Entity",
    "EntityFilter",
    "QuotaChange",
)

CLIENT_ID, USER, IP = "client-id", "user", "ip"
ENTITY_TYPES = (CLIENT_ID, USER, IP)
"""Entity types, in the order in which responses list them."""

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

CLIENT_KEYS = {
    PRODUCER_BYTE_RATE: int,
    CONSUMER_BYTE_RATE: int,
    REQUEST_PERCENTAGE: float,
    CONTROLLER_MUTATION_RATE: float,
}
IP_KEYS = {CONNECTION_CREATION_RATE: int}

FRACTION = 1e-6
"""A whole number may differ from one by this, as clients send floating-point numbers."""

MAX_ENTITIES = 10_000
"""Limit of entities with quotas."""

LOCALHOST = "localhost"

EXACT, DEFAULT, ANY = 0, 1, 2
"""Match types of a filter."""

Entity = tuple[tuple[str, str | None], ...]
"""Pairs of type and name; the name None is the default of its type."""


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """New values of an entity; None removes a quota."""

    entity: Mapping[str, str | None]
    values: Sequence[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """Condition on one entity type. `match` is the name, for the match type EXACT."""

    entity_type: str
    match_type: int
    match: str | None

    def accepts(self, entity: Mapping[str, str | None]) -> bool:
        """Return True if the entity has the type, with a matching name."""
        if self.entity_type not in entity:
            return False
        name = entity[self.entity_type]
        return self.match_type == ANY or name == (self.match if self.match_type == EXACT else None)


class ClientQuotas:
    """All quotas of the cluster."""

    def __init__(self) -> None:
        self._values: dict[Entity, dict[str, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        return iter(list(self._values.items()))

    def value(self, entity: Entity, key: str) -> float | None:
        """Return a quota of exactly this entity, None without one."""
        return self._values.get(entity, {}).get(key)

    def has(self, key: str) -> bool:
        """Return True if any entity has this quota."""
        return any(key in values for values in self._values.values())

    def alter(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False
    ) -> dict[Entity, ApiError | None]:
        """Apply the valid changes; return the error of each entity."""
        results: dict[Entity, ApiError | None] = {}
        for change in changes:
            entity = make_entity(change.entity)
            try:
                keys = [key for key, _ in change.values]
                if entity in results or len(set(keys)) != len(keys):
                    raise invalid_request(f"Ignoring duplicate entity {_java_text(entity)}")
                self._check(entity, change)
            except ApiError as error:
                results[entity] = error
                continue
            results[entity] = None
            if not validate_only:
                self._apply(entity, change.values)
        return results

    def describe(
        self, filters: Sequence[EntityFilter], *, strict: bool
    ) -> list[tuple[Entity, Mapping[str, float]]]:
        """Return the entities that match all filters; with `strict`, without further types.

        Raises:
            ApiError: A filter is invalid.
        """
        _check_filters(filters)
        return [
            (entity, dict(sorted(values.items())))
            for entity, values in self._values.items()
            if all(each.accepts(dict(entity)) for each in filters)
            and not (strict and len(entity) > len(filters))
        ]

    def to_json(self) -> list[dict[str, Any]]:
        """Return the quotas to store."""
        return [
            {"entity": [list(pair) for pair in entity], "values": values}
            for entity, values in self._values.items()
        ]

    def load(self, stored: Sequence[Mapping[str, Any]]) -> None:
        """Replace all quotas by stored ones."""
        self._values.clear()
        for each in stored:
            entity = make_entity(dict(each["entity"]))
            self._values[entity] = {key: float(value) for key, value in each["values"].items()}

    def _check(self, entity: Entity, change: QuotaChange) -> None:
        keys = _keys_of(change.entity)
        for key, value in change.values:
            if key not in keys:
                raise invalid_request(f"Invalid configuration key {key}")
            if value is not None:
                _check_value(key, value, keys[key])
        if entity not in self._values and len(self._values) >= MAX_ENTITIES:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, f"at most {MAX_ENTITIES} entities have quotas"
            )

    def _apply(self, entity: Entity, changed: Sequence[tuple[str, float | None]]) -> None:
        values = self._values.setdefault(entity, {})
        for key, value in changed:
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        if not values:
            del self._values[entity]


def make_entity(names: Mapping[str, str | None]) -> Entity:
    """Return the entity of types and names."""
    known = [kind for kind in ENTITY_TYPES if kind in names]
    others = [kind for kind in names if kind not in ENTITY_TYPES]
    return tuple((kind, names[kind]) for kind in (*known, *others))


def _java_text(entity: Entity) -> str:
    """Return the entity as in Kafka's error messages."""
    pairs = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{pairs}}})"


def _keys_of(entity: Mapping[str, str | None]) -> Mapping[str, type]:
    """Return the quotas that the entity can have. Raises `ApiError` for an invalid entity."""
    if not entity:
        raise invalid_request("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in ENTITY_TYPES:
            raise invalid_request(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise invalid_request(f"Empty {kind} not supported")
    if IP not in entity:
        return CLIENT_KEYS
    if len(entity) > 1:
        raise invalid_request(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or"
            " ClientId"
        )
    address = entity[IP]
    if address is not None and not _is_address(address):
        raise invalid_request(f"{address} is not a valid IP or resolvable host.")
    return IP_KEYS


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return text == LOCALHOST
    return True


def _check_value(key: str, value: float, kind: type) -> None:
    if not value > 0:
        raise invalid_request(f"Quota {key} must be greater than 0")
    if not math.isfinite(value) or (kind is int and abs(round(value) - value) > FRACTION):
        raise invalid_request(f"{key} cannot be a fractional value.")


def _check_filters(filters: Sequence[EntityFilter]) -> None:
    seen: set[str] = set()
    for each in filters:
        if not each.entity_type:
            raise invalid_request("Invalid empty entity type.")
        if each.entity_type in seen:
            raise invalid_request(
                f"Entity type {each.entity_type} cannot appear more than once in the filter."
            )
        if each.entity_type not in ENTITY_TYPES:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {each.entity_type}"
            )
        seen.add(each.entity_type)
        _check_match(each)
    if IP in seen and len(seen) > 1:
        raise invalid_request(
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        )


def _check_match(condition: EntityFilter) -> None:
    names = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", ANY: "MATCH_TYPE_SPECIFIED"}
    name = names.get(condition.match_type)
    if name is None:
        raise invalid_request(f"Unknown match type {condition.match_type}")
    if condition.match_type == EXACT:
        if condition.match is None:
            raise invalid_request(f"Request specified {name}, but set match string to null.")
    elif condition.match is not None:
        raise invalid_request(f"Request specified {name}, but also specified a match string.")
