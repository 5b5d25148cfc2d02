"""Questions about nodes (stage 5, cloud call): `instances` words them, `batching` groups them,
`fetch` asks many at once, `memory` keeps what may be answered twice."""
