"""The metadata service of one instance, on a free port of this machine: IMDSv2 as Amazon's user
guide describes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

TOKEN = "AQAEAExampleToken=="


@define
class MetadataService:
    """What it answers, by path below meta-data/; empty before the instance runs."""

    url: str = ""
    texts: dict[str, str] = field(factory=dict)
    failing: int = 0
    """So many requests are answered with 503."""
    asked: list[str] = field(factory=list)

    def speak_for(self, instance: InstanceTypeDef, region: str) -> None:
        """Answer for this instance."""
        zone = instance.get("Placement", {}).get("AvailabilityZone", "")
        self.texts = {
            "instance-id": instance.get("InstanceId", ""),
            "instance-type": instance.get("InstanceType", ""),
            "placement/availability-zone": zone,
            "placement/region": region,
            "local-ipv4": instance.get("PrivateIpAddress", ""),
            "public-ipv4": instance.get("PublicIpAddress", ""),
            "local-hostname": instance.get("PrivateDnsName", ""),
        }


@contextmanager
def metadata_service() -> Iterator[MetadataService]:
    """Serve until the with statement ends."""
    service = MetadataService()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            asked = self.path == "/latest/api/token" and self.headers["x-aws-ec2-metadata-token-ttl-seconds"]
            self._answer(200 if asked else 400, TOKEN)

        def do_GET(self) -> None:
            path = self.path.removeprefix("/latest/meta-data/")
            service.asked.append(path)
            if self.headers["x-aws-ec2-metadata-token"] != TOKEN:
                self._answer(401, "")
            else:
                self._answer(200 if service.texts.get(path) else 404, service.texts.get(path, ""))

        def _answer(self, status: int, text: str) -> None:
            if service.failing:
                service.failing -= 1
                status, text = 503, ""
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
