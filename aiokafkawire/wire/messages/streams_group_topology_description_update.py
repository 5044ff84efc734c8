"""StreamsGroupTopologyDescriptionUpdate: send the topology of a Kafka Streams group (KIP-1331).

Key 93.
"""

from aiokafkawire.wire.primitives import int8, int16, int32
from aiokafkawire.wire.schema import Request, Response, Struct, request, response, struct

__all__ = (
    "StreamsGroupTopologyDescriptionUpdateRequest",
    "StreamsGroupTopologyDescriptionUpdateResponse",
    "TopologyDescription",
    "TopologyDescriptionGlobalStore",
    "TopologyDescriptionNode",
    "TopologyDescriptionSubtopology",
)


@struct
class TopologyDescriptionNode(Struct):
    """A node of a topology; `node_type` is 1 (source), 2 (processor) or 3 (sink)."""

    name: str
    node_type: int8
    source_topics: list[str]
    sink_topic: str | None = None
    stores: list[str]
    successors: list[str]


@struct
class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str
    nodes: list[TopologyDescriptionNode]


@struct
class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


@struct
class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology]
    global_stores: list[TopologyDescriptionGlobalStore]


@request(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest(
    Request["StreamsGroupTopologyDescriptionUpdateResponse"]
):
    group_id: str
    member_id: str
    topology_epoch: int32
    topology_description: TopologyDescription


@response(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse(Response):
    throttle_time_ms: int32
    error_code: int16
    error_message: str | None = None
