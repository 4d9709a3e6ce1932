"""The broker: a store behind Arrow Flight, gRPC and HTTP."""
