"""The admin client: operations on topics, configs, groups, access control and the cluster.

To add an operation:

1. Put its arguments and results as frozen dataclasses into a file of `types/`, with units in the
   names or docstrings, and export them below.
2. Check the target of its API in `routing.py`, and its release in `releases.py`.
3. Write a method in the class of its area, such as `TopicOperations` in `topics.py`; a new class
   derives from `Operations` and becomes a base class of `Admin`. The method gets a `Requester` by
   `self._requester(timeout_ms)` and uses one of

   - `requester.request(message)` for one request to any broker or the controller. An error code of
     the response itself is raised.
   - `requester.request_items(ItemRequest(...), keys)` for many items: `build` makes the request
     for some of the items, `read` yields an `ItemResult` per item of the response. Items are
     grouped by broker (coordinators, leaders), missing and duplicate results become
     `ProtocolError`, and errors that pass are retried. End with
     `finish_items(results, "topics", return_errors=return_errors)`, which raises `PartialFailure`.
   - `requester.request_all(message)` for all brokers: the response or error of each. Merge them,
     drop duplicates, and call `raise_broker_failures(found, failed, len(responses))`.

4. For an older API, catch `UnsupportedVersion` of the newer one; if none is left, let it pass: it
   names the release needed.
"""

from aiokafkawire.admin.admin import Admin
from aiokafkawire.admin.types.acl_operation import AclOperation
from aiokafkawire.admin.types.acls import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from aiokafkawire.admin.types.cluster import ClusterDescription, Node
from aiokafkawire.admin.types.configs import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
)
from aiokafkawire.admin.types.credentials import (
    DelegationToken,
    ScramCredentialInfo,
    ScramMechanism,
    TokenInformation,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from aiokafkawire.admin.types.features import (
    FeatureMetadata,
    FeatureUpdate,
    FeatureUpgradeType,
    FinalizedVersionRange,
    SupportedVersionRange,
)
from aiokafkawire.admin.types.groups import (
    ClassicGroupDescription,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    GroupLag,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
    OffsetReset,
    PartitionLag,
)
from aiokafkawire.admin.types.log_dirs import (
    LogDirDescription,
    ReplicaInfo,
    ReplicaLogDirInfo,
    TopicPartitionReplica,
)
from aiokafkawire.admin.types.partitions import (
    HIGH_WATERMARK,
    ElectionType,
    ListedOffset,
    NewPartitions,
    OffsetSpec,
    PartitionReassignment,
)
from aiokafkawire.admin.types.quorum import (
    QuorumInfo,
    QuorumNode,
    QuorumReplicaState,
    RaftVoterEndpoint,
)
from aiokafkawire.admin.types.quotas import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilterComponent,
    QuotaMatch,
)
from aiokafkawire.admin.types.share_groups import (
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffsetInfo,
)
from aiokafkawire.admin.types.streams_groups import (
    StreamsEndpoint,
    StreamsGroupDescription,
    StreamsGroupMemberAssignment,
    StreamsGroupMemberDescription,
    StreamsGroupSubtopologyDescription,
    StreamsTaskIds,
    StreamsTaskOffset,
    StreamsTopicInfo,
)
from aiokafkawire.admin.types.topics import (
    CreatedTopic,
    EnsuredTopic,
    NewTopic,
    TopicDescription,
    TopicListing,
    TopicPartitionInfo,
)
from aiokafkawire.admin.types.transactions import (
    AbortTransactionSpec,
    HangingTransaction,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)

__all__ = (
    "HIGH_WATERMARK",
    "AbortTransactionSpec",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "Admin",
    "AlterConfigOp",
    "AlterConfigOpType",
    "ClassicGroupDescription",
    "ClientQuotaAlteration",
    "ClientQuotaEntity",
    "ClientQuotaFilterComponent",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "CreatedTopic",
    "DelegationToken",
    "ElectionType",
    "EnsuredTopic",
    "FeatureMetadata",
    "FeatureUpdate",
    "FeatureUpgradeType",
    "FinalizedVersionRange",
    "GroupLag",
    "GroupListing",
    "GroupState",
    "GroupType",
    "HangingTransaction",
    "ListedOffset",
    "LogDirDescription",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetReset",
    "OffsetSpec",
    "PartitionLag",
    "PartitionReassignment",
    "PatternType",
    "ProducerState",
    "QuorumInfo",
    "QuorumNode",
    "QuorumReplicaState",
    "QuotaMatch",
    "RaftVoterEndpoint",
    "ReplicaInfo",
    "ReplicaLogDirInfo",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramMechanism",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionOffsetInfo",
    "StreamsEndpoint",
    "StreamsGroupDescription",
    "StreamsGroupMemberAssignment",
    "StreamsGroupMemberDescription",
    "StreamsGroupSubtopologyDescription",
    "StreamsTaskIds",
    "StreamsTaskOffset",
    "StreamsTopicInfo",
    "SupportedVersionRange",
    "TokenInformation",
    "TopicDescription",
    "TopicListing",
    "TopicPartitionInfo",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
)
