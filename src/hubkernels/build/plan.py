"""From scanned sources to every command of a build. Pure: starts nothing, reads nothing, writes nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubkernels.build.archs import device_archs
from hubkernels.build.inquiry import ID_MACRO
from hubkernels.build.scan import ScannedSource
from hubkernels.model.artifact import metadata
from hubkernels.model.plan import BuildPlan, ShippedFile, Step
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant, NoarchVariant, Variant
from hubkernels.toolchain.cpu import Toolchain
from hubkernels.toolchain.link import COMPAT_FLAGS

UID_LENGTH = 12
NAME_LENGTH = 32  # of an object: it stands for the content of every checkout of a user

_OPS = '''

ops = torch.ops.{op_id}


def add_op_namespace_prefix(op_name: str) -> str:
    """Spell an op of this build for torch.library: ``<namespace>::<op_name>``."""
    return f"{op_id}::{{op_name}}"
'''
OPS_PY = f"import torch\n\nfrom . import {{op_id}}{_OPS}"
"""``_ops.py`` beside a library, which registers ops when it is loaded."""

NOARCH_OPS_PY = f"import torch{_OPS}"

Python = Sequence[tuple[str, str, str]]
"""(path in the artifact, path in the project, SHA-256) of each Python file that ships."""


@dataclass(frozen=True)
class Inputs:
    """Everything that a build reads. folder: the package's, without links."""

    sources: tuple[ScannedSource, ...]
    python: Python
    folder: str


@dataclass(frozen=True)
class _Content:
    """What every artifact is made of. ops: the template of its ``_ops.py``."""

    package: Package
    variant: AnyVariant
    ops: str
    python: Python

    def metadata(self, op_id: str) -> dict[str, Any]:
        return metadata(self.package, self.variant, op_id, device_archs(self.package, self.variant))

    def op_id(self, **compiled: object) -> str:
        """The id is the hash of the content: any change of it is another, and two builds of one content share one.

        compiled: what decides the library.
        """
        content = {
            "python": [(target, digest) for target, _, digest in self.python],
            "_ops.py": self.ops,
            "metadata": self.metadata(""),
            **compiled,
        }
        # Base 32: lower case and digits, since some disks are blind to case and the client splits ids at underscores.
        uid = base64.b32encode(bytes.fromhex(_digest(content))).decode().lower()[:UID_LENGTH]
        return f"_{self.package.python_name}_{self.variant.backend.name}_{uid}"

    def plan(self, op_id: str, steps: tuple[Step, ...] = ()) -> BuildPlan:
        """Of the steps the last one makes the library."""
        return BuildPlan(
            package=self.package.name,
            variant=self.variant.tag,
            op_id=op_id,
            steps=steps,
            library=steps[-1].output if steps else None,
            files=(
                ShippedFile("_ops.py", text=self.ops.format(op_id=op_id)),
                *(ShippedFile(target, source=source) for target, source, _ in self.python),
            ),
            metadata=self.metadata(op_id),
        )


def plan(package: Package, variant: Variant, tools: Toolchain, inputs: Inputs) -> BuildPlan:
    """Plan one variant with compiled code."""
    keys = [_object_key(scanned, variant, tools) for scanned in inputs.sources]
    content = _Content(package, variant, OPS_PY, inputs.python)
    op_id = content.op_id(objects=keys, link=tools.link_key())
    threads = max(1, tools.threads // max(1, sum(scanned.source.of_device for scanned in inputs.sources)))
    steps = []
    for scanned, key in zip(inputs.sources, keys, strict=True):
        made = (op_id, f"{_name(key, op_id, scanned)}.o")
        if scanned.source.of_device:
            steps.append(_device_step(scanned, variant, tools, made, threads))
        else:
            steps.append(_compile_step(scanned, inputs, variant, tools, made))
    if not tools.sanitizers:
        steps.append(_compat_step(tools))
    return content.plan(op_id, (*steps, _link_step([step.output for step in steps], tools)))


def plan_noarch(package: Package, variant: NoarchVariant, python: Python) -> BuildPlan:
    """Plan one variant of Python files alone: nothing to compile, so no compiler and no torch take part."""
    content = _Content(package, variant, NOARCH_OPS_PY, python)
    return content.plan(content.op_id())


def _object_key(scanned: ScannedSource, variant: Variant, tools: Toolchain) -> str:
    """Hash of what an object is made of, but for the id."""
    if scanned.source.of_device:
        return _device_key(scanned, variant, tools)
    maps = dict.fromkeys(tools.portable(word) for word in tools.prefix_maps())  # two spellings of a folder are one
    flags = (*tools.compile_flags(variant), *scanned.source.flags, *maps)
    return _digest([tools.compiler.fingerprint, flags, scanned.inputs])


def _device_key(scanned: ScannedSource, variant: Variant, tools: Toolchain) -> str:
    """The same of a source for the device: neither variant nor torch are in it where they take no part."""
    source = scanned.source
    maps = dict.fromkeys(tools.portable(word) for word in tools.prefix_maps())
    own, cuda = tools.device.archs(source.archs), tools.cuda.fingerprint if tools.cuda else ""
    flags = (*tools.device_flags(variant, torch=scanned.reads_torch), *own, *source.flags, *maps)
    return _digest([tools.compiler.fingerprint, cuda, flags, scanned.inputs])


def _device_step(
    scanned: ScannedSource, variant: Variant, tools: Toolchain, made: tuple[str, str], threads: int
) -> Step:
    """A source that the device's compiler takes."""
    op_id, output = made
    device, source = tools.device, scanned.source
    command = (
        *device.begin(tools.compiler.command[-1]),
        *tools.device_flags(variant, torch=scanned.reads_torch),
        *device.archs(source.archs),
        *source.flags,
        *((f"-D{ID_MACRO.decode()}={op_id}",) if scanned.reads_id else ()),
        *tools.device_search_path(),
        *device.for_host(tools.prefix_maps()),
        *device.end(source.path, min(threads, len(source.archs))),
        "-c",
        source.path,
        "-o",
        Step.OUTPUT,
    )
    return Step("compile", source.path, command, output, told=f"{output.removesuffix('.o')}.told")


def _name(key: str, op_id: str, scanned: ScannedSource) -> str:
    return _digest([key, op_id if scanned.reads_id else None])[:NAME_LENGTH]


def _compile_step(
    scanned: ScannedSource, inputs: Inputs, variant: Variant, tools: Toolchain, made: tuple[str, str]
) -> Step:
    op_id, output = made
    path = scanned.source.path
    command = (
        *tools.compiler.command,
        *tools.compile_flags(variant),
        *scanned.source.flags,
        *((f"-D{ID_MACRO.decode()}={op_id}",) if scanned.reads_id else ()),
        *tools.search_path(),
        *tools.prefix_maps(),
        # Debug information, which sanitizers alone have, names the folder where the compiler ran.
        *((f"-ffile-prefix-map={inputs.folder}=.",) if tools.sanitizers else ()),
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
