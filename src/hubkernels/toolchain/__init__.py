"""Compilers, SDK headers and flags for a variant. One module a backend."""
