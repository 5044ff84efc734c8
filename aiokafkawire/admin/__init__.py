"""The admin client: operations on topics, configs, groups, access control and the cluster.

To add an operation:

1. Put its arguments and results as frozen dataclasses into a file of `types/`, with units in the
   names or docstrings, and export them in `types/__init__.py` and below.
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
     drop duplicates, and raise `partial_failure(found, failed, "brokers")` if some failed.

4. For an older API, catch `UnsupportedVersion` of the newer one; if none is left, let it pass: it
   names the release needed.
"""

from aiokafkawire.admin.admin import Admin
from aiokafkawire.admin.types import (
    AbortTransactionSpec,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ClassicGroupDescription,
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilterComponent,
    ClusterDescription,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    CreatedTopic,
    DelegationToken,
    GroupLag,
    GroupListing,
    GroupState,
    GroupType,
    HangingTransaction,
    MemberDescription,
    NewTopic,
    Node,
    OffsetReset,
    PartitionLag,
    PatternType,
    ProducerState,
    QuotaMatch,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffsetInfo,
    StreamsEndpoint,
    StreamsGroupDescription,
    StreamsGroupMemberAssignment,
    StreamsGroupMemberDescription,
    StreamsGroupSubtopologyDescription,
    StreamsTaskIds,
    StreamsTaskOffset,
    StreamsTopicInfo,
    TokenInformation,
    TopicConfigEntry,
    TopicDescription,
    TopicListing,
    TopicPartitionInfo,
    TransactionDescription,
    TransactionListing,
    TransactionState,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

__all__ = (
    "AbortTransactionSpec",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "Admin",
    "ClassicGroupDescription",
    "ClientQuotaAlteration",
    "ClientQuotaEntity",
    "ClientQuotaFilterComponent",
    "ClusterDescription",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "CreatedTopic",
    "DelegationToken",
    "GroupLag",
    "GroupListing",
    "GroupState",
    "GroupType",
    "HangingTransaction",
    "MemberDescription",
    "NewTopic",
    "Node",
    "OffsetReset",
    "PartitionLag",
    "PatternType",
    "ProducerState",
    "QuotaMatch",
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
    "TokenInformation",
    "TopicConfigEntry",
    "TopicDescription",
    "TopicListing",
    "TopicPartitionInfo",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
)
