"""Where the API server is, and which proxy leads to it: pure values (stages 1 and 6). Which proxy
the environment wants, `cloudprovider.internal.proxies` tells."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from attrs import field, frozen

_HOST: Final = re.compile(r"[0-9A-Za-z._~:%-]+")
_BASE_PATH: Final = re.compile(r"(?:/[!-~]*)?")
_PROXY_PORTS: Final = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}


@frozen
class Proxy:
    """A proxy. `scheme` is http, https (TLS to the proxy) or socks5; it looks up the name."""

    host: str
    port: int
    scheme: str = "http"
    user: str = ""
    password: str = field(default="", repr=False)
    origin: str = field(default="", eq=False)
    """Who asks for it, in words."""

    @classmethod
    def parse(cls, url: str, *, origin: str = "") -> Proxy:
        """Read `[scheme://][user:password@]host[:port]`; else ValueError, without the password.

        Without a scheme it is http, as in Go. socks5h is the same as socks5, also as in Go."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = unquote(parts.hostname or ""), parts.port
        except ValueError:
            raise ValueError("not a proxy URL; use http://host:port, https://host:port or socks5://host:port") from None
        if parts.scheme not in _PROXY_PORTS or not _HOST.fullmatch(host):
            raise ValueError(
                f"unsupported proxy {parts.scheme}://{host}; use http://host:port, https://host:port or "
                "socks5://host:port"
            )
        scheme = "socks5" if parts.scheme == "socks5h" else parts.scheme
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if scheme == "socks5" and max(len(user.encode()), len(password.encode())) > 255:
            raise ValueError(f"the user name or password of proxy {scheme}://{host} is longer than 255 bytes")
        return cls(host, port or _PROXY_PORTS[parts.scheme], scheme, user, password, origin)

    def __str__(self) -> str:
        """The proxy in words, for messages."""
        where = f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"
        return f"proxy {self.scheme}://{where}{f' ({self.origin})' if self.origin else ''}"

    @property
    def authorization(self) -> str:
        """The value of Proxy-Authorization, or ""."""
        if self.scheme == "socks5" or not (self.user or self.password):
            return ""
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()

    @property
    def url(self) -> str:
        """The proxy's URL, with its password: not for messages."""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.user or self.password else ""
        return f"{self.scheme}://{login}{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def tls(self) -> bool:
        """Whether TLS is spoken to the proxy itself."""
        return self.scheme == "https"


@frozen
class Endpoint:
    """Where the API server is. `base_path` precedes every path ("" or "/k8s/clusters/c1")."""

    host: str
    port: int
    tls: bool
    base_path: str = ""
    server_name: str = ""
    proxy: Proxy | None = None

    @classmethod
    def parse(
        cls, url: str, *, server_name: str | None = None, proxy: str | None = None, proxy_origin: str = ""
    ) -> Endpoint:
        """Read a server URL; `server_name` replaces the host in the TLS handshake. ValueError.

        A host that ends in a dot is looked up as it is, and checked against the certificate without
        the dot, as in Go."""
        parts: SplitResult = urlsplit(url)
        if "@" in parts.netloc:  # nor quoted: it would be in every log
            raise ValueError("the server's URL holds a user or password; give them as the user's username and password")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"not a server URL: {url!r}; expected https://host[:port][/path]")
        tls = parts.scheme == "https"
        host, base_path = unquote(parts.hostname), parts.path.rstrip("/")
        if not _HOST.fullmatch(host) or not _BASE_PATH.fullmatch(base_path):
            raise ValueError(f"not a server URL: {url!r}; host or path have characters that must not be there")
        if parts.port == 0:
            raise ValueError(f"not a server URL: {url!r}; nobody serves on port 0")
        return cls(
            host=host,
            port=parts.port or (443 if tls else 80),
            tls=tls,
            base_path=base_path,
            server_name=server_name or host.partition("%")[0].removesuffix("."),
            proxy=Proxy.parse(proxy, origin=proxy_origin) if proxy else None,
        )

    @property
    def authority(self) -> str:
        """`host:port`, with brackets around an IPv6 address; the `host` label of the metrics."""
        return self._with_port(self.host.partition("%")[0])

    @property
    def url(self) -> str:
        """The server's URL, as the official client takes it too."""
        host = self._with_port(self.host.replace("%", "%25"))
        return f"{'https' if self.tls else 'http'}://{host}{self.base_path}"

    def _with_port(self, host: str) -> str:
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
