"""The golden files of `update-build`: each `<name>.toml` beside the `<name>.edition-5.toml` that it becomes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hubkernels.config.migrate import migrate

FOLDER = Path(__file__).with_name("update-build")
OLD = sorted(path for path in FOLDER.glob("*.toml") if not path.stem.endswith(".edition-5"))


def golden(path: Path) -> Path:
    return path.with_suffix(".edition-5.toml")


def migrated(path: Path) -> tuple[int, bytes]:
    """The edition of an older file, and what becomes of it."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, Path(folder) / "build.toml")
        made = migrate(Path(folder) / "build.toml", license_id="Apache-2.0")
    return made.edition, made.text.encode()
