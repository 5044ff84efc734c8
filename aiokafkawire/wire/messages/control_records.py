"""Control records: markers that transactions and controllers append to logs."""

from uuid import UUID

from aiokafkawire.wire.primitives import ZERO_UUID, int16, int32, int64, uint16
from aiokafkawire.wire.schema import Message, Struct, data, field, struct

__all__ = (
    "ControlRecordTypeSchema",
    "EndTxnMarker",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "RecordedEndpoint",
    "RecordedKRaftVersionFeature",
    "RecordedVoter",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "Voter",
    "VotersRecord",
)


@data(name="ControlRecordTypeSchema", versions="0", flexible="none")
class ControlRecordTypeSchema(Message):
    """The key of a control record, after its version as int16.

    Type 0 aborts and 1 commits a transaction, 2 is a leader change, 3 and 4 are the header and
    footer of a snapshot, 5 is a KRaft version, 6 the voters.
    """

    type: int16


@data(name="EndTxnMarker", versions="0", flexible="none")
class EndTxnMarker(Message):
    """The value of a record that ends a transaction, after its version as int16."""

    coordinator_epoch: int32


@struct
class Voter(Struct):
    voter_id: int32
    voter_directory_id: UUID = field(versions="1+", default=ZERO_UUID)


@data(name="LeaderChangeMessage", versions="0-1", flexible="0+")
class LeaderChangeMessage(Message):
    version: int16
    leader_id: int32
    voters: list[Voter]
    granting_voters: list[Voter]


@data(name="SnapshotHeaderRecord", versions="0", flexible="0+")
class SnapshotHeaderRecord(Message):
    version: int16
    last_contained_log_timestamp: int64


@data(name="SnapshotFooterRecord", versions="0", flexible="0+")
class SnapshotFooterRecord(Message):
    version: int16


@data(name="KRaftVersionRecord", versions="0", flexible="0+")
class KRaftVersionRecord(Message):
    version: int16
    kraft_version: int16 = field(name="kRaftVersion")


@struct
class RecordedEndpoint(Struct):
    name: str
    host: str
    port: uint16


@struct
class RecordedKRaftVersionFeature(Struct):
    min_supported_version: int16
    max_supported_version: int16


@struct
class RecordedVoter(Struct):
    voter_id: int32
    voter_directory_id: UUID
    endpoints: list[RecordedEndpoint]
    kraft_version_feature: RecordedKRaftVersionFeature = field(name="kRaftVersionFeature")


@data(name="VotersRecord", versions="0", flexible="0+")
class VotersRecord(Message):
    version: int16
    voters: list[RecordedVoter]
