"""The broker's HTTP front end: `/v1`, byte streams, the Durable Streams protocol, OpenAPI."""
