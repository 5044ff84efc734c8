"""Properties of all message classes."""

from collections import defaultdict

import pytest

from aiokafkawire import wire
from aiokafkawire.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from aiokafkawire.wire.schema import ALL, Message, Struct, schema_for

CLASSES: list[type[Message]] = [wire.message_class(name) for name in wire.message_names()]


def structs_of(cls: type[Message]) -> dict[type[Struct], set[int]]:
    """Yield a message and its nested structs, with the versions that have them."""
    found: dict[type[Struct], set[int]] = defaultdict(set)

    def walk(struct: type[Struct], versions: set[int]) -> None:
        found[struct] |= versions
        for item in schema_for(struct).fields:
            kind = item.kind.element or item.kind
            if kind.struct is not None:
                walk(kind.struct, {version for version in versions if version in item.versions})

    walk(cls, set(range(cls.min_version, cls.max_version + 1)))
    return found


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: schema_for(cls).name)
def test_only_fields_of_all_versions_are_required(cls: type[Message]) -> None:
    for struct, versions in structs_of(cls).items():
        for item in schema_for(struct).fields:
            present = {version for version in versions if version in item.versions}
            assert present, f"{struct.__name__}.{item.name} is in no version"
            if item.required:
                assert present == versions, f"{struct.__name__}.{item.name} needs a default"


def test_defaults_exist_for_fields_missing_in_a_version() -> None:
    for cls in CLASSES:
        for struct in structs_of(cls):
            for item in schema_for(struct).fields:
                if not item.required or item.kind.struct is None:
                    item.default_value()


def test_all_names_are_public() -> None:
    for cls in CLASSES:
        module = __import__(cls.__module__, fromlist=["__all__"])
        assert cls.__name__ in module.__all__
        for item in schema_for(cls).fields:
            kind = item.kind.element or item.kind
            if kind.struct is not None:
                assert kind.struct.__name__ in module.__all__, cls


def test_shared_structs() -> None:
    assert LeaderIdAndEpoch() == LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
    assert NodeEndpoint(node_id=1, host="h", port=9092).rack is None
    assert schema_for(NodeEndpoint).present(0)[0].versions == ALL
