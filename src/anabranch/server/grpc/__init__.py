"""The ordinary gRPC service of a broker, for languages without Arrow. Not for the process that serves Arrow Flight: two
gRPC runtimes in one process are a risk."""
