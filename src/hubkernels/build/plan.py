"""From scanned sources to every command of a build. Pure: starts nothing, reads nothing, writes nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hubkernels.build.scan import ID_MACRO, ScannedSource
from hubkernels.model.artifact import metadata
from hubkernels.model.plan import BuildPlan, ShippedFile, Step
from hubkernels.model.project import Package
from hubkernels.model.variant import Variant
from hubkernels.toolchain.cpu import Toolchain
from hubkernels.toolchain.link import COMPAT_FLAGS

UID_LENGTH = 12
NAME_LENGTH = 32  # of an object: it stands for the content of every checkout of a user

OPS_PY = '''\
import torch

from . import {op_id}

ops = torch.ops.{op_id}


def add_op_namespace_prefix(op_name: str) -> str:
    """Spell an op of this build for torch.library: ``<namespace>::<op_name>``."""
    return f"{op_id}::{{op_name}}"
'''


@dataclass(frozen=True)
class Inputs:
    """Everything that a build reads. python: (path in the artifact, path in the project, SHA-256)."""

    sources: tuple[ScannedSource, ...]
    python: tuple[tuple[str, str, str], ...]


def plan(package: Package, variant: Variant, tools: Toolchain, inputs: Inputs) -> BuildPlan:
    """Plan one variant."""
    keys = [_object_key(scanned, variant, tools) for scanned in inputs.sources]
    op_id = f"_{package.python_name}_{variant.backend.name}_{_uid(package, variant, tools, keys, inputs)}"
    steps = [
        _compile_step(scanned, variant, tools, (op_id, f"{_name(key, op_id, scanned)}.o"))
        for scanned, key in zip(inputs.sources, keys, strict=True)
    ]
    if not tools.sanitizers:
        steps.append(_compat_step(tools))
    link = _link_step([step.output for step in steps], tools)
    files = (
        ShippedFile("_ops.py", text=OPS_PY.format(op_id=op_id)),
        *(ShippedFile(target, source=source) for target, source, _ in inputs.python),
    )
    return BuildPlan(
        package=package.name,
        variant=variant.tag,
        op_id=op_id,
        steps=(*steps, link),
        library=link.output,
        files=files,
        metadata=metadata(package, variant, op_id),
    )


def _object_key(scanned: ScannedSource, variant: Variant, tools: Toolchain) -> str:
    """Hash of what an object is made of, but for the id."""
    maps = dict.fromkeys(tools.portable(word) for word in tools.prefix_maps())  # two spellings of a folder are one
    flags = (*tools.compile_flags(variant), *scanned.source.flags, *maps)
    return _digest([tools.compiler.fingerprint, flags, scanned.inputs])


def _uid(package: Package, variant: Variant, tools: Toolchain, keys: Sequence[str], inputs: Inputs) -> str:
    """Hash of the content: any change of it is another id, and two builds of one content share one."""
    content = {
        "objects": keys,
        "link": tools.link_key(),
        "python": [(target, digest) for target, _, digest in inputs.python],
        "_ops.py": OPS_PY,
        "metadata": metadata(package, variant, ""),
    }
    return uid_of(content)


def uid_of(content: Mapping[str, object]) -> str:
    """The last part of an op id, from all that the artifact is made of."""
    # Base 32: lower case and digits, since some disks are blind to case and the client splits ids at underscores.
    return base64.b32encode(bytes.fromhex(_digest(content))).decode().lower()[:UID_LENGTH]


def _name(key: str, op_id: str, scanned: ScannedSource) -> str:
    return _digest([key, op_id if scanned.reads_id else None])[:NAME_LENGTH]


def _compile_step(scanned: ScannedSource, variant: Variant, tools: Toolchain, made: tuple[str, str]) -> Step:
    op_id, output = made
    path = scanned.source.path
    command = (
        *tools.compiler.command,
        *tools.compile_flags(variant),
        *scanned.source.flags,
        *((f"-D{ID_MACRO.decode()}={op_id}",) if scanned.reads_id else ()),
        *tools.search_path(),
        *tools.prefix_maps(),
        "-c",
        path,
        "-o",
        Step.OUTPUT,
    )
    return Step("compile", path, command, output)


def _compat_step(tools: Toolchain) -> Step:
    """The object that is linked to every library, and the same for all of them."""
    key = _digest([tools.compiler.fingerprint, tools.stubs.functions, COMPAT_FLAGS])
    command = (*tools.compat_command(), "-o", Step.OUTPUT)
    return Step("compile", "hubkernels' glibc.cpp", command, f"{key[:NAME_LENGTH]}.o")


def _link_step(inputs: Sequence[str], tools: Toolchain) -> Step:
    key = _digest([tools.compiler.fingerprint, inputs, tools.link_key()])
    flags, libraries = tools.link_flags(), tools.link_libraries()
    command = (*tools.compiler.command, *flags, "-o", Step.OUTPUT, *inputs, *libraries)
    return Step("link", "the library", command, f"{key[:NAME_LENGTH]}.so", tuple(inputs))


def _digest(content: Mapping[str, object] | Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
