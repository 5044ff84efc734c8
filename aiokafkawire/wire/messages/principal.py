"""DefaultPrincipalData: the principal of a forwarded request."""

from aiokafkawire.wire.schema import Message, data

__all__ = ("DefaultPrincipalData",)


@data(name="DefaultPrincipalData", versions="0", flexible="0+")
class DefaultPrincipalData(Message):
    type: str
    name: str
    token_authenticated: bool
