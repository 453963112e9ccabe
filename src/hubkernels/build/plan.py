"""From scanned sources to every command of a build. Pure: starts nothing, reads nothing, writes nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hubkernels.build.scan import ID_MACRO, ScannedSource
from hubkernels.model.artifact import metadata
from hubkernels.model.plan import BuildPlan, ShippedFile, Step
from hubkernels.model.project import Package
from hubkernels.model.variant import Variant
from hubkernels.toolchain.cpu import Toolchain

UID_LENGTH = 12

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


def plan(package: Package, variant: Variant, tools: Toolchain, inputs: Inputs, work: str) -> BuildPlan:
    """Plan one variant. work: folder of the objects, relative to the package's root."""
    objects = [_Object(scanned, variant, tools) for scanned in inputs.sources]
    op_id = f"_{package.python_name}_{variant.backend.name}_{_uid(package, variant, tools, objects, inputs)}"
    steps = [_compile_step(item, op_id, tools, work) for item in objects]
    link = _link_step([step.output for step in steps], variant, tools, work)
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


class _Object:
    """One source with its flags and the key that names its object when the id plays no part in it."""

    def __init__(self, scanned: ScannedSource, variant: Variant, tools: Toolchain) -> None:
        self.path = scanned.source.path
        self.tag = variant.tag
        self.reads_id = scanned.reads_id
        self.inputs = scanned.inputs
        self.flags = (*tools.compile_flags(variant), *scanned.source.flags)
        self.key = _digest([tools.compiler.fingerprint, self.flags, self.inputs])


def _uid(package: Package, variant: Variant, tools: Toolchain, objects: Sequence[_Object], inputs: Inputs) -> str:
    """Hash of the content: any change of it is another id, and two builds of one content share one."""
    content = {
        "objects": [item.key for item in objects],
        "link": _link_key(tools),
        "python": [(target, digest) for target, _, digest in inputs.python],
        "metadata": metadata(package, variant, ""),
    }
    # Base 32: lower case and digits, since some disks are blind to case and the client splits ids at underscores.
    return base64.b32encode(bytes.fromhex(_digest(content))).decode().lower()[:UID_LENGTH]


def _compile_step(item: _Object, op_id: str, tools: Toolchain, work: str) -> Step:
    define = (f"-D{ID_MACRO.decode()}={op_id}",) if item.reads_id else ()
    name = item.path.replace("/", "-")
    output = f"{work}/{_digest([item.key, define])[:24]}/{name}.o"
    command = (
        *tools.compiler.command,
        *item.flags,
        *define,
        *tools.search_path(),
        *tools.prefix_maps(),
        "-c",
        item.path,
        "-o",
        Step.OUTPUT,
    )
    return Step(f"compile {item.path} ({item.tag})", command, (item.path,), output)


def _link_step(objects: Iterable[str], variant: Variant, tools: Toolchain, work: str) -> Step:
    inputs = tuple(objects)
    key = _digest([tools.compiler.fingerprint, inputs, _link_key(tools)])
    flags, libraries = tools.link_flags(), tools.link_libraries()
    command = (*tools.compiler.command, *flags, "-o", Step.OUTPUT, *inputs, *libraries)
    return Step(f"link ({variant.tag})", command, inputs, f"{work}/{key[:24]}/library.so")


def _link_key(tools: Toolchain) -> list[str]:
    return [tools.portable(word) for word in (*tools.link_flags(), *tools.link_libraries())]


def _digest(content: Mapping[str, object] | Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
