"""Benchmarks: run with ``make bench``; method and figures are in docs/benchmarks.md."""
