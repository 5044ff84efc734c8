import subprocess
import sys

import pytest

from aiokafkawire.wire import (
    APIS,
    Api,
    ApiKey,
    api_for,
    encode,
    from_json,
    message_class,
    message_names,
)
from aiokafkawire.wire.messages.join_group import JoinGroupRequest
from aiokafkawire.wire.schema import schema_for


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_table_matches_the_classes(api: Api) -> None:
    for cls, suffix in ((api.request, "Request"), (api.response, "Response")):
        assert cls.__name__ == api.name + suffix
        assert schema_for(cls).name == api.name + suffix
        assert message_class(api.name + suffix) is cls
        assert cls.api_key == api.key
        assert (cls.min_version, cls.max_version) == (api.min_version, api.max_version), (
            f"the versions of {cls.__name__} differ from APIS in wire/api.py"
        )
        assert cls.flexible_from == api.flexible_from


def test_table_is_complete() -> None:
    assert list(APIS) == list(ApiKey)
    assert [int(key) for key in APIS] == list(range(95))


def test_unstable_versions_are_marked() -> None:
    assert [api.name for api in APIS.values() if api.latest_version_unstable] == ["InitProducerId"]
    assert APIS[ApiKey.INIT_PRODUCER_ID].max_stable_version == 5
    assert APIS[ApiKey.FETCH].max_stable_version == 18
    assert [api.name for api in APIS.values() if api.first_version_unstable] == [
        "ShareGroupHeartbeat",
        "ShareGroupDescribe",
        "ShareFetch",
        "ShareAcknowledge",
    ]
    assert APIS[ApiKey.SHARE_FETCH].min_stable_version == 1
    assert APIS[ApiKey.FETCH].min_stable_version == 0


def test_api_for() -> None:
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=[]
    )
    assert api_for(request).name == "JoinGroup"


def test_message_class_of_data_messages() -> None:
    assert message_class("RequestHeader").__name__ == "RequestHeaderData"
    assert message_class("ConsumerProtocolAssignment").max_version == 3
    assert message_class("GroupMetadataValue").max_version == 4
    for name in ("JoinGroup", "Request", "Offsets", "JoinGroupRequestResponse", "FetchKey"):
        with pytest.raises(KeyError):
            message_class(name)


def test_message_class_of_every_name() -> None:
    names = message_names()
    assert len(set(names)) == len(names)
    for name in names:
        assert schema_for(message_class(name)).name == name


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("GroupCoordinatorRequest", "FindCoordinatorRequest"),
        ("ConsumerMetadataRequest", "FindCoordinatorRequest"),
        ("ConsumerMetadataResponse", "FindCoordinatorResponse"),
        ("OffsetsRequest", "ListOffsetsRequest"),
        ("OffsetRequest", "ListOffsetsRequest"),
        ("OffsetResponse", "ListOffsetsResponse"),
        ("ListOffsetRequest", "ListOffsetsRequest"),
        ("TopicMetadataRequest", "MetadataRequest"),
    ],
)
def test_message_class_of_older_names(alias: str, name: str) -> None:
    assert message_class(alias) is message_class(name)
    assert alias not in message_names()


def test_older_name_of_list_config_resources_has_the_same_bytes() -> None:
    older = message_class("ListClientMetricsResourcesResponse")
    newer = message_class("ListConfigResourcesResponse")
    form = {"throttleTimeMs": 1, "errorCode": 0}
    raw = encode(from_json(older, 0, form | {"clientMetricsResources": [{"name": "m"}]}), 0)
    assert (
        encode(from_json(newer, 0, form | {"configResources": [{"resourceName": "m"}]}), 0) == raw
    )


def test_message_modules_are_imported_on_first_use() -> None:
    script = (
        "import sys, aiokafkawire.wire as wire\n"
        "found = [m for m in sys.modules if m.startswith('aiokafkawire.wire.messages.')]\n"
        "assert found == [], found\n"
        "wire.message_class('FetchRequest')\n"
        "assert 'aiokafkawire.wire.messages.fetch' in sys.modules\n"
        "assert 'aiokafkawire.wire.messages.metadata' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
