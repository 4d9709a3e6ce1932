"""Version 1 of the messages that brokers and clients exchange, as protobuf."""
