"""Quotas of users and client ids, and the throttling of clients that exceed them.

| Module | Content |
|---|---|
| `entities` | the quotas, and their changes by AlterClientQuotas |
| `rates` | rates over Kafka's quota window |
| `manager` | one node's rates by client, and throttle times |
| `controller_mutations` | the quota of partitions that clients create and delete |
| `enforcement` | throttling of requests and connections |
"""

from aiokafkawire.broker.quotas.entities import ClientQuotas, EntityFilter, QuotaChange
from aiokafkawire.broker.quotas.manager import ClientQuotaManager

__all__ = ("ClientQuotaManager", "ClientQuotas", "EntityFilter", "QuotaChange")
