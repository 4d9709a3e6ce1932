"""The client of a broker: the store's API over the network."""
