"""Tests that need a GPU: of artifacts that were built anywhere."""
