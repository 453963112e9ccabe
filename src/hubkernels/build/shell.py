"""The environment of a shell in which a variant can be compiled by hand, or its artifact imported."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from hubkernels.build.artifacts import built
from hubkernels.build.inquiry import ID_MACRO
from hubkernels.build.places import Places
from hubkernels.build.search import search_folders
from hubkernels.build.sources import source_groups
from hubkernels.host.files import disk_errors
from hubkernels.model.project import Package
from hubkernels.model.variant import Variant
from hubkernels.toolchain.cpu import LIBRARIES, LOCAL_LINK, Toolchain


def compiler_variables(
    package: Package, variant: Variant, tools: Toolchain, environment: Mapping[str, str]
) -> dict[str, str]:
    """Compiler, flags and search paths of a variant: ``$CXX $CXXFLAGS -c FILE`` compiles a file without own flags.

    environment: what the user has; paths there come after ours.
    """
    name = f"_{package.python_name}_{variant.backend.name}_dev"  # the real id is known once all sources are hashed
    lib = str(tools.torch.lib)
    paths = {
        "CPLUS_INCLUDE_PATH": [*_own_includes(package, variant, tools), *search_folders(tools.search_path())],
        "LIBRARY_PATH": [lib],
        "LD_LIBRARY_PATH": [lib],
        "CMAKE_PREFIX_PATH": [str(tools.torch.root / "share/cmake")],
    }
    return {
        "CXX": shlex.join(tools.compiler.command),
        "CXXFLAGS": shlex.join((*tools.compile_flags(variant), f"-D{ID_MACRO.decode()}={name}")),
        "LDFLAGS": shlex.join(LOCAL_LINK),
        "LDLIBS": " ".join(f"-l{library}" for library in LIBRARIES),
        **{variable: _join(ours, environment.get(variable)) for variable, ours in paths.items()},
        **({"CUDA_HOME": str(tools.cuda.root), "CUDACXX": tools.device.program} if tools.cuda else {}),
        "HUBKERNELS_VARIANT": variant.tag,
    }


def python_variables(folders: Iterable[Path], environment: Mapping[str, str]) -> dict[str, str]:
    """PYTHONPATH with these folders first."""
    found = [str(folder.absolute()) for folder in dict.fromkeys(folders)]
    return {"PYTHONPATH": _join(found, environment.get("PYTHONPATH"))} if found else {}


def client_variables(
    packages: Iterable[Package], places: Places, environment: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """LOCAL_KERNELS, by which the client's ``get_kernel`` takes packages from build/, and why some are not in it."""
    entries, without = [], []
    for package in packages:
        folder = str(places.package(package.name).absolute())
        if package.repo_id is None:
            without.append(
                f"{package.name} has no general.hub.repo-id: load it with get_local_kernel(Path({folder!r}))"
            )
        elif ":" in folder:
            without.append(f"LOCAL_KERNELS cannot name {folder}: the client takes a colon for the end of an entry")
        else:
            entries.append(f"{package.repo_id}={folder}")
    own = environment.get("LOCAL_KERNELS")
    if not entries:
        return {}, tuple(without)
    return {"LOCAL_KERNELS": ":".join((*entries, *([own] if own else [])))}, tuple(without)


def cut_by_a_colon(folder: Path) -> str | None:
    """Why lists of folders cannot name those of a project, in words; None where they can."""
    path = str(folder.absolute())
    if os.pathsep not in path:
        return None
    return (
        f"{path} has a colon, which ends an entry of PYTHONPATH and its kin: nothing in it is found by them; rename it"
    )


def importable(package: Package, variant: str, places: Places) -> Path | None:
    """A folder for PYTHONPATH in which the artifact has the package's name; None while it is not built."""
    artifact = built(places.package(package.name)).get(variant)
    if artifact is None:
        return None
    places.refuse_links(package.name)
    folder = places.work / "python" / variant
    link = folder / package.python_name
    target = os.path.relpath(artifact, folder)
    with disk_errors(link):
        folder.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink() or str(link.readlink()) != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target, target_is_directory=True)
    return folder


def _own_includes(package: Package, variant: Variant, tools: Toolchain) -> list[str]:
    """The folders of all sources, of which the compiler searches each once."""
    groups = source_groups(package, variant, tools.compiler.family)
    folders = dict.fromkeys(folder for group in groups for folder in search_folders(group.flags))
    return [str((package.root / folder).absolute()) for folder in folders]


def _join(ours: Iterable[str], theirs: str | None) -> str:
    return os.pathsep.join((*ours, *([theirs] if theirs else [])))
