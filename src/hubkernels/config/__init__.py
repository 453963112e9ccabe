"""Text at the edge: build.toml in both forms, the variant table, the ABI limits. Raw tables stay in here."""

from hubkernels.config.load import load_project, read_project

__all__ = ["load_project", "read_project"]
