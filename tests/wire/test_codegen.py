from aiokafkawire.wire.codegen import FunctionSource, VersionLayout
from aiokafkawire.wire.messages.fetch import FetchResponse
from aiokafkawire.wire.messages.metadata import MetadataResponse
from aiokafkawire.wire.schema import TypeKind, schema_for


def test_compile() -> None:
    source = FunctionSource("double(n)")
    factor = source.constant("factor", 2)
    with source.block("if n is None:"):
        source.line("return None")
    source.line(f"return n * {factor}")
    double = source.compile("double", "a test")
    assert double(21) == 42
    assert double(None) is None
    assert double.__code__.co_filename == "<a test>"


def test_names_are_unique() -> None:
    source = FunctionSource("f()")
    assert len({source.name("n"), source.name("n"), source.constant("n", 1)}) == 3


def test_min_size_bytes() -> None:
    topics = next(f for f in schema_for(MetadataResponse).fields if f.name == "topics")
    assert topics.kind.element is not None
    # v0: error code, name, partitions. v9: the same compact, the rest, and no tagged field.
    assert VersionLayout(0, flexible=False).min_size_bytes(topics.kind.element) == 2 + 2 + 4
    assert (
        VersionLayout(9, flexible=True).min_size_bytes(topics.kind.element) == 2 + 1 + 1 + 1 + 4 + 1
    )
    responses = next(f for f in schema_for(FetchResponse).fields if f.name == "responses")
    assert VersionLayout(0, flexible=False).min_size_bytes(responses.kind) == 4
    assert VersionLayout(12, flexible=True).min_size_bytes(responses.kind) == 1
    nested = TypeKind(element=TypeKind(struct=FetchResponse))
    assert VersionLayout(0, flexible=False).min_size_bytes(nested) == 4
