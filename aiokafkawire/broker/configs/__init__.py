"""Configs of topics, brokers, groups and client metrics: definitions, and what clients set."""

from aiokafkawire.broker.configs.brokers import BROKER_CONFIGS, STATIC_CONFIGS
from aiokafkawire.broker.configs.definitions import (
    ConfigDef,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    InvalidConfigValue,
)
from aiokafkawire.broker.configs.dynamic import DynamicConfigs, LogConfig
from aiokafkawire.broker.configs.resources import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from aiokafkawire.broker.configs.topics import TOPIC_CONFIGS

__all__ = (
    "BROKER_CONFIGS",
    "CLIENT_METRICS_CONFIGS",
    "GROUP_CONFIGS",
    "STATIC_CONFIGS",
    "TOPIC_CONFIGS",
    "ConfigDef",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigType",
    "DynamicConfigs",
    "InvalidConfigValue",
    "LogConfig",
)
