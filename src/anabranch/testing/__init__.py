"""Public tools to test the store and what is built on it: contract suites for adapters. Importing it needs no test
framework, and only tests import it."""
