"""The Durable Streams protocol under `/streams/{scope}/{name}`: streams of bytes or of JSON messages over plain HTTP."""
