"""Answers of the EC2 API in any XML namespace.

libcloud's driver finds elements in one namespace alone, that of the API version which AWS answers
with. It finds nothing in an answer with another one, and lists no machines, without an error. Other
servers of this API write other namespaces: moto's lacks the last slash, and its errors have a
namespace, where AWS's have none. So elements are moved to where the driver looks.
"""

from __future__ import annotations

from typing import Any

from libcloud.compute.drivers import ec2
from libcloud.utils import py3
from typing_extensions import override

_UNTYPED: Any = py3
ET = _UNTYPED.ET
"""libcloud's XML parser: lxml where it is installed, else Python's own."""


class AnyNamespace(ec2.EC2Response):
    """An answer that libcloud's driver can read, whatever its namespace is."""

    @override
    def parse_body(self) -> Any:
        untyped: Any = super().parse_body
        body = untyped()
        if not isinstance(body, str | bytes | None):
            _move(body, f"{{{ec2.NAMESPACE}}}")
        return body

    @override
    def parse_error(self) -> Any:
        untyped: Any = super().parse_error
        try:
            body: Any = ET.XML(self.body)
        except (ET.ParseError, ValueError):  # the driver says then that it is no XML
            return untyped()
        _move(body, "")
        self.body = ET.tostring(body, encoding="unicode")
        return untyped()


def read_any_namespace(connection: Any) -> None:
    """Have this class of connections read its answers so, if it is one to the EC2 API. libcloud's
    place for this is an attribute of the class."""
    if getattr(connection, "responseCls", None) is ec2.EC2Response:
        connection.responseCls = AnyNamespace


def _move(body: Any, namespace: str) -> None:
    for element in body.iter():
        if isinstance(element.tag, str):  # a comment has a function
            element.tag = f"{namespace}{element.tag.rpartition('}')[2]}"
