"""In the fresh process: an artifact as the stock client loads it, and the task `load`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from hubkernels.errors import CheckFailedError, Problem
from hubkernels.model.digest import METADATA


def load(folder: str) -> dict[str, Any]:
    """Load an artifact and tell what came of it. seconds: what a user waits once torch is there."""
    import kernels  # noqa: F401, PLC0415 - before the clock starts
    import torch  # noqa: PLC0415

    started = time.monotonic()
    kernel = load_kernel(Path(folder))
    seconds = time.monotonic() - started
    found: list[str] = torch._C._dispatch_get_all_op_names()  # noqa: SLF001 - there is no public list
    ops = sorted({op for namespace, op in (name.split("::") for name in found) if namespace == kernel.__name__})
    metadata = json.loads((Path(folder) / METADATA).read_bytes())
    return {
        "id": metadata["id"],
        "module": kernel.__name__,
        "variant": loaded_variant(kernel, Path(folder).parent),
        "ops": ops,
        "incomplete": dict(_incomplete(kernel.__name__, ops, metadata["backend"]["type"])),
        "seconds": seconds,
    }


def _incomplete(namespace: str, ops: list[str], backend: str) -> Iterator[tuple[str, str]]:
    """Ops that cannot be called, and why: a library may have a schema without a kernel, and the other way round."""
    import torch  # noqa: PLC0415

    key = {"cpu": "CPU", "cuda": "CUDA", "xpu": "XPU"}.get(backend)
    for op in ops:
        if not hasattr(getattr(torch.ops, namespace), op.partition(".")[0]):
            yield op, "has a kernel and no schema: m.def is missing in the binding"
        elif key and not torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"{namespace}::{op}", key):  # noqa: SLF001
            yield op, f"has a schema and no kernel for {backend}: is its source under src, with its m.impl?"


def load_kernel(variant: Path) -> ModuleType:
    """Let the client choose among the variants of ``build/<package>``, and insist that it chooses this one.

    The backend is asked for by name, so that a cpu variant is reached under a torch with CUDA.
    """
    import kernels  # noqa: PLC0415 - the parent imports the modules of tasks without the client

    backend = json.loads((variant / METADATA).read_bytes())["backend"]["type"]
    kernel: ModuleType = kernels.get_local_kernel(variant.parent, backend=backend)
    chosen = loaded_variant(kernel, variant.parent)
    if chosen != variant.name:
        hint = f"the client prefers {chosen} here; delete the one that is out of date"
        raise CheckFailedError(Problem(f"the client loads {chosen}, not {variant.name}", str(variant.parent), hint))
    return kernel


def loaded_variant(kernel: ModuleType, package: Path) -> str:
    """The folder below ``build/<package>`` that a kernel came from; files of the Hub's cache are links to elsewhere."""
    return Path(kernel.__file__ or "").parent.resolve().relative_to(package.resolve()).parts[0]
