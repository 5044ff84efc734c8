import subprocess
import sys

import pytest

from aiokafkawire.wire import APIS, Api, ApiKey, api_of, message_class
from aiokafkawire.wire.messages.join_group import JoinGroupRequest
from aiokafkawire.wire.schema import schema_of


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_table_agrees_with_the_classes(api: Api) -> None:
    for cls, suffix in ((api.request, "Request"), (api.response, "Response")):
        assert cls.__name__ == api.name + suffix
        assert schema_of(cls).name == api.name + suffix
        assert message_class(api.name + suffix) is cls
        assert cls.api_key == api.key
        assert (cls.min_version, cls.max_version) == (api.min_version, api.max_version)


def test_the_main_apis_are_there() -> None:
    assert [int(key) for key in APIS] == [
        *(0, 1, 2, 3, *range(8, 17), 18, 19, 20),
        *(22, 23, 32, 37, 42, 47, 60),
    ]


def test_unstable_versions_are_marked() -> None:
    unstable = [api.name for api in APIS.values() if api.latest_unstable]
    assert unstable == ["InitProducerId"]
    assert APIS[ApiKey.INIT_PRODUCER_ID].max_stable_version == 5
    assert APIS[ApiKey.FETCH].max_stable_version == 18


def test_api_of_a_message() -> None:
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=[]
    )
    assert api_of(request).name == "JoinGroup"


def test_message_class_finds_what_is_no_request() -> None:
    assert message_class("RequestHeader").__name__ == "RequestHeaderData"
    assert message_class("ConsumerProtocolAssignment").max_version == 3
    with pytest.raises(KeyError):
        message_class("JoinGroup")


def test_message_modules_are_imported_when_first_needed() -> None:
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
