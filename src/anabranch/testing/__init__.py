"""Public means to test the store and what is built on it: a seeded scheduler with a virtual clock, ports that fail on
purpose, a simulated world of crashing processes, and contract suites for adapters. Importing it needs no test
framework, and nothing outside of tests imports it."""
