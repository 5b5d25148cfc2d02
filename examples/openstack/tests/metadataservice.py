"""Nova's metadata service and config drive, for tests: what they say of one server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from attrs import define, field


@define
class MetadataService:
    """By path, what is answered; anything else is a 404."""

    url: str = ""
    pages: dict[str, str] = field(factory=dict)
    status: int = 200
    requests: list[str] = field(factory=list)

    def tell(self, server: str, name: str, *, zone: str = "nova", address: str = "", flavor: str = "m1.medium") -> None:
        """Answer for this server from now on."""
        about = {"uuid": server, "name": name, "hostname": f"{name}.novalocal", "availability_zone": zone}
        self.pages = {
            "/openstack/latest/meta_data.json": json.dumps(about),
            "/latest/meta-data/instance-type": flavor,
            "/latest/meta-data/local-ipv4": address,
            "/latest/meta-data/public-ipv4": "",
        }


@contextmanager
def metadata_service() -> Iterator[MetadataService]:
    """The service at a port of the loopback."""
    service = MetadataService()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service.requests.append(self.path)
            page = service.pages.get(self.path)
            self.send_response(404 if page is None and service.status == 200 else service.status)
            self.end_headers()
            self.wfile.write((page or "").encode())

        def log_message(self, format: str, *args: Any) -> None:
            """`requests` has them."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


def config_drive(folder: Path, server: str, name: str, **ec2: str) -> Path:
    """A config drive, as it looks when it is mounted."""
    for path, document in (
        ("openstack/latest/meta_data.json", {"uuid": server, "name": name, "availability_zone": "nova"}),
        ("ec2/latest/meta-data.json", ec2),
    ):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text(json.dumps(document))
    return folder
