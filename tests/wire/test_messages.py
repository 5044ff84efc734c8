"""What the message classes promise to those who make them."""

import pytest

from aiokafkawire import wire
from aiokafkawire.wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from aiokafkawire.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from aiokafkawire.wire.messages.headers import RequestHeaderData
from aiokafkawire.wire.schema import ALL, Message, Struct, VersionRange, schema_of

CLASSES: list[type[Message]] = [
    cls for api in wire.APIS.values() for cls in (api.request, api.response)
] + [RequestHeaderData, ConsumerProtocolAssignment]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_only_a_field_of_all_versions_is_required(cls: type[Message]) -> None:
    def check(struct: type[Struct], versions: VersionRange) -> None:
        for item in schema_of(struct).fields:
            low = max(item.versions.low, versions.low)
            high = min(item.versions.high, versions.high)
            assert low <= high, f"{struct.__name__}.{item.name} is in no version"
            if item.required:
                assert (low, high) == versions, f"{struct.__name__}.{item.name} needs a default"
            kind = item.kind.element or item.kind
            if kind.struct is not None:
                check(kind.struct, VersionRange(low, high))

    check(cls, VersionRange(cls.min_version, cls.max_version))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_all_names_are_public(cls: type[Message]) -> None:
    module = __import__(cls.__module__, fromlist=["__all__"])
    assert cls.__name__ in module.__all__
    for item in schema_of(cls).fields:
        kind = item.kind.element or item.kind
        if kind.struct is not None:
            assert kind.struct.__name__ in module.__all__


def test_shared_structs() -> None:
    assert LeaderIdAndEpoch() == LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
    assert NodeEndpoint(node_id=1, host="h", port=9092).rack is None
    assert schema_of(NodeEndpoint).present(0)[0].versions == ALL
