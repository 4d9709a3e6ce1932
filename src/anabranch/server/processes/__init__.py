"""Further processes of a broker: HTTP workers on one socket, and gRPC."""
