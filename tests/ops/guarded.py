"""Run every op beside guard pages in the tier of HUBKERNELS_ISA: `python -m tests.ops.guarded PACKAGES`."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from pathlib import Path

from tests.ops.tiers import OPS


def main(packages: Path) -> None:
    """A process each, for guard pages stay for its life, forked where torch is: under sanitizers that takes longest."""
    modules = {op: importlib.import_module(f"tests.ops.{op}_guarded") for op in OPS}
    fork = multiprocessing.get_context("fork")
    for op, module in modules.items():
        print(op, end=" ", flush=True)  # noqa: T201 - whose last words follow
        process = fork.Process(target=module.main, args=(packages / OPS[op],))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"{op} ended with {process.exitcode}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
