"""The embedded Hub: kernels and models as git repositories in a folder, served over the Hub's HTTP API.

For a site without a network, for CI without an account, and for tests. `serve.serve` starts one.
"""
