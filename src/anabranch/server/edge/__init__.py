"""The outermost part of the HTTP server: limits on time and size, health, metrics and the access log."""
