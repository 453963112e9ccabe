"""Checks of finished artifacts: what the client demands, a load in a fresh process, parity with a reference."""
