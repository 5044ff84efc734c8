import json
from typing import Any

import pytest

from aiokafkawire import wire
from aiokafkawire.errors import UnsupportedVersion
from aiokafkawire.wire.messages.api_versions import ApiVersionsResponse
from aiokafkawire.wire.messages.fetch import FetchRequest
from aiokafkawire.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokafkawire.wire.messages.init_producer_id import InitProducerIdRequest
from aiokafkawire.wire.messages.metadata import MetadataRequest
from aiokafkawire.wire.messages.produce import ProduceRequest


def test_names_and_values() -> None:
    form = {
        "transactionalId": None,
        "acks": -1,
        "timeoutMs": 5,
        "topicData": [
            {
                "topicId": "AAAAAAAAAAAAAAAAAAAAAQ",
                "partitionData": [{"index": 0, "records": "cmVjb3Jkcw=="}],
            }
        ],
    }
    message = wire.from_json(ProduceRequest, 13, form)
    assert message.topic_data[0].topic_id.int == 1
    assert message.topic_data[0].partition_data[0].records == b"records"
    assert wire.to_json(message, 13) == form


def test_explicit_wire_name() -> None:
    message = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1, enable_2pc=True)
    assert wire.to_json(message, 6)["enable2Pc"] is True


def test_tagged_fields_at_their_default_are_omitted() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    assert wire.to_json(response, 3) == {"errorCode": 0, "apiKeys": [], "throttleTimeMs": 0}
    response.finalized_features_epoch = 4
    response.unknown_tagged_fields = ((9, b"z"), (8, b""))
    assert wire.to_json(response, 3) == {
        "errorCode": 0,
        "apiKeys": [],
        "throttleTimeMs": 0,
        "finalizedFeaturesEpoch": 4,
        "_unknownTaggedFields": [{"tag": 8, "data": ""}, {"tag": 9, "data": "eg=="}],
    }


def test_error_codes_are_numbers() -> None:
    response = HeartbeatResponse(error_code=wire.ErrorCode.REBALANCE_IN_PROGRESS)
    assert json.dumps(wire.to_json(response, 0)) == '{"errorCode": 27}'


def test_fields_missing_in_the_version() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i")
    with pytest.raises(UnsupportedVersion, match=r"HeartbeatRequest\.group_instance_id"):
        wire.to_json(request, 0)
    request = HeartbeatRequest(
        group_id="g", generation_id=1, member_id="m", unknown_tagged_fields=((1, b""),)
    )
    with pytest.raises(UnsupportedVersion, match="no tagged fields"):
        wire.to_json(request, 0)
    with pytest.raises(UnsupportedVersion, match="only 0 to 18"):
        wire.from_json(FetchRequest, 19, {})


HEARTBEAT: dict[str, Any] = {"groupId": "g", "generationId": 1, "memberId": "m"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"groupId": None}, "HeartbeatRequest.groupId: null is not allowed"),
        ({"groupId": 5}, "HeartbeatRequest.groupId: 5 is not a string"),
        ({"generationId": True}, "HeartbeatRequest.generationId: True is not a int32"),
        ({"generationId": 2**31}, "HeartbeatRequest.generationId: "),
        ({"other": 1}, "HeartbeatRequest: unknown in version 0: other"),
        ({"groupInstanceId": "i"}, "unknown in version 0: groupInstanceId"),
    ],
)
def test_invalid_json(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest") as caught:
        wire.from_json(HeartbeatRequest, 0, HEARTBEAT | change)
    assert text in str(caught.value)


def test_missing_field_is_named_with_its_path() -> None:
    with pytest.raises(ValueError, match=r"HeartbeatRequest\.groupId: missing"):
        wire.from_json(HeartbeatRequest, 0, {})
    with pytest.raises(ValueError, match=r"MetadataRequest\.topics\[0\]\.name: missing"):
        wire.from_json(MetadataRequest, 0, {"topics": [{}]})
    with pytest.raises(ValueError, match=r"topics\[0\]: 'orders' is not an object"):
        wire.from_json(MetadataRequest, 0, {"topics": ["orders"]})
    with pytest.raises(ValueError, match=r"topics: 'orders' is not a list"):
        wire.from_json(MetadataRequest, 0, {"topics": "orders"})
    with pytest.raises(ValueError, match="_unknownTaggedFields"):
        wire.from_json(
            HeartbeatRequest,
            4,
            HEARTBEAT | {"groupInstanceId": None, "_unknownTaggedFields": [{"tag": 1}]},
        )
