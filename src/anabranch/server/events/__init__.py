"""What the front ends share that take and give events as rows, HTTP and gRPC: names, writers, producers, decoding, pages."""
