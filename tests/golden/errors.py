"""The golden error texts: `errors.toml` has many faults, `errors.txt` what is said of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hubkernels.check.config import check_config

BAD = Path(__file__).with_name("errors.toml")
EXPECTED = Path(__file__).with_name("errors.txt")


def found_in(text: str) -> str:
    """Errors and warnings of a build.toml with one source beside it, as they are printed."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "build.toml").write_text(text, encoding="utf-8")
        (root / "csrc").mkdir()
        (root / "csrc/relu_cuda.cu").touch()
        report = check_config(root)
        lines = [f"error: {problem}" for problem in report.errors]
        lines += [f"warning: {problem}" for problem in report.warnings]
        return "\n".join(lines).replace(f"{root}/", "") + "\n"
