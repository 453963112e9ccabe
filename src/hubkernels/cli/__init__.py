"""The command line: parses, calls, prints, returns the exit code. One module a verb; nothing else prints."""

from hubkernels.cli.app import main

__all__ = ["main"]
