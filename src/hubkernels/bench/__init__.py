"""Benchmarks of built artifacts: timed in a fresh process beside their peers, kept as records."""
