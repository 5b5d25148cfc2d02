"""The annotations that users set on Services. README.md has their table, made from here: `python
-m` this module."""

from __future__ import annotations

from cloudprovider.helpers import BOOL, Duration, OneOf, ServiceAnnotations, annotation


class SampleAnnotations(ServiceAnnotations, prefix="samplecloud.example/"):
    """What can be asked of a load balancer besides what the Service's spec says."""

    internal = annotation("internal", BOOL, default=False, help="Only machines of the cloud reach the load balancer.")
    algorithm = annotation(
        "algorithm",
        OneOf("round-robin", "least-connections"),
        default="round-robin",
        help="How the load balancer chooses a machine for a connection.",
    )
    idle_timeout = annotation(
        "idle-timeout",
        Duration(least=1, most=3600),
        default=60.0,
        help="After how long a quiet connection is closed. The default comes from `idle_timeout` of the configuration.",
    )


if __name__ == "__main__":
    print(SampleAnnotations.markdown_table(), end="")
