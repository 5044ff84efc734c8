"""Java's Admin in a JVM of its own, driven through py4j."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.java_collections import JavaArray, JavaList, JavaMap, JavaSet
from py4j.java_gateway import (
    GatewayParameters,
    JavaGateway,
    JavaObject,
    is_instance_of,
    launch_gateway,
)
from py4j.protocol import Py4JJavaError

from tests.brokers.admin_parity.comparable import Failure, Struct, Unordered, key_text, snake_case
from tests.brokers.process import KILL_TIMEOUT_SECONDS, start_guard

__all__ = ("JavaAdmin",)

JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms32m", "-Xmx256m")
FUTURE_SECONDS = 60

_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_OBJECT_METHODS = frozenset({"getClass", "hashCode", "toString", "notify", "notifyAll", "wait"})
_AS_TEXT = frozenset({"Uuid", "Duration", "KafkaPrincipal"})
_FLATTENED = {
    "ClientMetricsResourceListing": "name",
    "ClientQuotaEntity": "entries",
    "DeletedRecords": "lowWatermark",
    "FilterResult": "binding",
    "FilterResults": "values",
    "MemberAssignment": "topicPartitions",
    "PartitionProducerState": "activeProducers",
    "ShareMemberAssignment": "topicPartitions",
    "UserScramCredentialsDescription": "credentialInfos",
}
"""Classes with a single field, which stands for the object."""

_RENAMED = {
    "consumer_id": "member_id",
    "coordinator": "coordinator_id",
    "elr": "eligible_leader_replicas",
    "expiry_timestamp": "expiry_timestamp_ms",
    "issue_timestamp": "issue_timestamp_ms",
    "last_timestamp": "last_timestamp_ms",
    "leader": "leader_id",
    "max_timestamp": "max_timestamp_ms",
    "size": "size_bytes",
    "timestamp": "timestamp_ms",
}
"""Fields that have another name in our results."""

_IGNORED = frozenset({"hmac_as_base64_string"})
_OPTIONALS = {
    "java.util.Optional": "get",
    "java.util.OptionalInt": "getAsInt",
    "java.util.OptionalLong": "getAsLong",
}


class JavaAdmin:
    """A JVM with an `Admin`, and conversions of what it returns.

    Args:
        java: The `java` program.
        jars: Folder of Kafka's jars.
        options: Properties of the client.
    """

    def __init__(self, java: Path, jars: Path, options: Mapping[str, str]) -> None:
        self._java = java
        self._jars = jars
        self._options = dict(options)
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._accessors: dict[str, list[str]] = {}
        self.gateway: Any = None
        self.admin: Any = None

    def start(self) -> None:
        """Start the JVM and its `Admin`."""
        port, token, self._process = launch_gateway(
            classpath=f"{self._jars}/*",
            javaopts=[*JAVA_OPTIONS, _QUIET],
            java_path=str(self._java),
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
            create_new_process_group=True,
        )
        self._guard = start_guard(self._process.pid)
        parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
        self.gateway = JavaGateway(gateway_parameters=parameters)
        try:
            self.admin = self.new_admin(self._options)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the JVM."""
        if self.gateway is not None:
            self.gateway.shutdown()
        if self._process is not None:
            self._process.kill()
            self._process.wait(KILL_TIMEOUT_SECONDS)
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()

    def new_admin(self, options: Mapping[str, str]) -> Any:
        """Return another `Admin` of the same JVM."""
        properties = self.gateway.jvm.java.util.Properties()
        for name, value in options.items():
            properties.setProperty(name, value)
        return self.gateway.jvm.org.apache.kafka.clients.admin.Admin.create(properties)

    # --- construction of arguments ---

    def type(self, name: str) -> Any:
        """Return a class of `clients.admin`, or of `common` by its dotted name below it."""
        package: Any = self.gateway.jvm.org.apache.kafka.common
        *parents, last = name.split(".")
        if not parents:
            package = self.gateway.jvm.org.apache.kafka.clients.admin
        for each in parents:
            package = package if each == "common" else getattr(package, each)
        return getattr(package, last)

    def partition(self, topic: str, partition: int) -> Any:
        return self.type("common.TopicPartition")(topic, partition)

    def some(self, value: Any) -> Any:
        return self.gateway.jvm.java.util.Optional.of(value)

    def records_to_delete(self, before_offset: int) -> Any:
        """Return a `RecordsToDelete`; py4j cannot call its static method that has a namesake."""
        java = self.gateway.jvm.java.lang
        types = self.gateway.new_array(java.Class, 1)
        types[0] = java.Long.TYPE
        arguments = self.gateway.new_array(java.Object, 1)
        arguments[0] = before_offset
        found = java.Class.forName("org.apache.kafka.clients.admin.RecordsToDelete")
        return found.getMethod("beforeOffset", types).invoke(None, arguments)

    def longs(self, values: Mapping[Any, int]) -> Any:
        """Return a map with values of type Long; py4j passes a small int as Integer."""
        jvm = self.gateway.jvm
        result = jvm.java.util.HashMap()
        for key, value in values.items():
            result.put(key, str(value))
        object_type, long_type, text_type = (
            jvm.java.lang.Class.forName(f"java.lang.{name}")
            for name in ("Object", "Long", "String")
        )
        handles = jvm.java.lang.invoke
        function = handles.MethodHandles.lookup().findStatic(
            long_type, "valueOf", handles.MethodType.methodType(long_type, text_type)
        )
        ignore_key = handles.MethodHandles.dropArguments(function, 0, [object_type])
        bi_function = jvm.java.lang.Class.forName("java.util.function.BiFunction")
        result.replaceAll(handles.MethodHandleProxies.asInterfaceInstance(bi_function, ignore_key))
        return result

    # --- conversion of results ---

    def call(self, result: Any) -> Any:
        """Return a result in the comparable form; wait for futures in it."""
        if isinstance(result, Struct):
            return result
        if isinstance(result, JavaMap):
            return {key_text(self.call(key)): self.call(result[key]) for key in result}
        if isinstance(result, JavaSet):
            return Unordered(self.call(each) for each in result)
        if isinstance(result, JavaList | JavaArray | list | tuple):
            return [self.call(each) for each in result]
        if isinstance(result, dict):
            return {key_text(key): self.call(value) for key, value in result.items()}
        if isinstance(result, JavaObject):
            return self._convert_object(result)
        return result

    def failure(self, error: Any) -> Failure:
        """Return the error code of a Java exception."""
        if isinstance(error, Py4JJavaError):
            error = error.java_exception
        while self._is(error, "java.util.concurrent.ExecutionException"):
            error = error.getCause()
        return Failure(self.type("protocol.Errors").forException(error).name())

    def _is(self, value: Any, name: str) -> bool:
        return bool(is_instance_of(self.gateway, value, name))

    def _convert_object(self, value: Any) -> Any:
        name = value.getClass().getName()
        if name in _OPTIONALS:
            return self.call(getattr(value, _OPTIONALS[name])()) if value.isPresent() else None
        if self._is(value, "org.apache.kafka.common.KafkaFuture"):
            return self._wait(value)
        if self._is(value, "java.lang.Enum"):
            return value.name()
        if self._is(value, "java.lang.Throwable"):
            return self.failure(value)
        if self._is(value, "java.util.Collection"):
            return Unordered(self.call(each) for each in value.toArray())
        simple = name.rpartition(".")[2].rpartition("$")[2]
        if simple in _AS_TEXT:
            return value.toString()
        if simple in _FLATTENED:
            return self.call(getattr(value, _FLATTENED[simple])())
        if simple == "TopicPartition":
            return f"{value.topic()}-{value.partition()}"
        if simple == "TopicPartitionReplica":
            return f"{value.topic()}-{value.partition()}-{value.brokerId()}"
        if simple == "ConfigResource":
            return f"{value.type().name()} {value.name()}"
        if simple == "Config":
            return {
                entry.name(): self._convert_object(entry) for entry in value.entries().toArray()
            }
        if name == "org.apache.kafka.common.Node":
            return value.id() if value.id() >= 0 else None
        if simple == "AclBinding":
            return self._acl(value.pattern(), value.entry())
        if simple == "AclBindingFilter":
            return self._acl(value.patternFilter(), value.entryFilter())
        found = {
            snake_case(accessor): getattr(value, accessor)
            for accessor in self._accessors_of(value, name)
        }
        return Struct(
            {
                _RENAMED.get(field, field): self.call(accessor())
                for field, accessor in found.items()
                if field not in _IGNORED and not field.endswith("_as_string")
            }
        )

    def _acl(self, pattern: Any, entry: Any) -> Struct:
        """Return a binding or filter as one struct."""
        return Struct(
            {
                "resource_type": pattern.resourceType().name(),
                "name": pattern.name(),
                "pattern_type": pattern.patternType().name(),
                "principal": entry.principal(),
                "host": entry.host(),
                "operation": entry.operation().name(),
                "permission_type": entry.permissionType().name(),
            }
        )

    def _wait(self, future: Any) -> Any:
        seconds = self.gateway.jvm.java.util.concurrent.TimeUnit.SECONDS
        try:
            result = future.get(FUTURE_SECONDS, seconds)
        except Py4JJavaError as error:
            return self.failure(error)
        return self.call(result)

    def _accessors_of(self, value: Any, name: str) -> list[str]:
        """Return the public methods without arguments that return a value."""
        known = self._accessors.get(name)
        if known is not None:
            return known
        found = set()
        static = self.gateway.jvm.java.lang.reflect.Modifier
        deprecated = self.gateway.jvm.java.lang.Class.forName("java.lang.Deprecated")
        for method in value.getClass().getMethods():
            if method.getParameterCount() or static.isStatic(method.getModifiers()):
                continue
            if method.getReturnType().getName() == "void" or method.getAnnotation(deprecated):
                continue
            found.add(method.getName())
        self._accessors[name] = sorted(found - _OBJECT_METHODS)
        return self._accessors[name]
