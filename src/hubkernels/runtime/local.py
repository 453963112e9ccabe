"""A folder that stands for a kernel: its owner's own, so that nothing of it is held against anything."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from hubkernels.errors import Problem
from hubkernels.model.digest import METADATA
from hubkernels.runtime.asked import Asked, NotFoundError
from hubkernels.runtime.choose import chosen, decide, told
from hubkernels.runtime.importing import import_kernel
from hubkernels.runtime.metadata import check_arch, check_environment, read_metadata
from hubkernels.runtime.system import System, this_system


def load_local(wanted: Asked, folder: Path) -> ModuleType:
    """The variant that fits, below the folder or its ``build/``, or the folder itself. Raises NotFoundError."""
    place = _place(folder, this_system(wanted.backend))
    if not (place / METADATA).is_file():
        raise NotFoundError(Problem("the variant has no metadata.json", str(place)))
    metadata = read_metadata((place / METADATA).read_bytes(), str(place))
    check_environment(metadata, place.name)
    if wanted.check_arch:
        check_arch(metadata, place.name)
    return import_kernel(place, metadata, "LOCAL_KERNELS")


def _place(folder: Path, system: System) -> Path:
    trace = "there is none"
    for top in (folder, folder / "build"):
        names = [path.name for path in top.iterdir() if path.is_dir()] if top.is_dir() else []
        decisions = decide(names, system)
        variant = chosen(decisions)
        if variant is not None:
            return top / variant
        trace = told(decisions) or trace
    if (folder / METADATA).exists():
        return folder
    raise NotFoundError(Problem(f"no variant in {folder} fits this system:\n{trace}", "LOCAL_KERNELS"))
