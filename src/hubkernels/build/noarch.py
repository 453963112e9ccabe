"""The plan of an artifact of Python files alone: nothing to compile, so no compiler and no torch take part."""

from __future__ import annotations

from collections.abc import Sequence

from hubkernels.build.archs import with_known_devices
from hubkernels.build.plan import uid_of
from hubkernels.config.variant_table import load_variant_table
from hubkernels.model.artifact import metadata
from hubkernels.model.plan import BuildPlan, ShippedFile
from hubkernels.model.project import Package
from hubkernels.model.variant import NoarchVariant

OPS_PY = '''\
import torch

ops = torch.ops.{op_id}


def add_op_namespace_prefix(op_name: str) -> str:
    """Spell an op of this build for torch.library: ``<namespace>::<op_name>``."""
    return f"{op_id}::{{op_name}}"
'''


def plan_noarch(package: Package, variant: NoarchVariant, python: Sequence[tuple[str, str, str]]) -> BuildPlan:
    """Plan one variant. python: (path in the artifact, path in the project, SHA-256)."""
    package = with_known_devices(package, load_variant_table())
    content = {
        "python": [(target, digest) for target, _, digest in python],
        "_ops.py": OPS_PY,
        "metadata": metadata(package, variant, ""),
    }
    op_id = f"_{package.python_name}_{variant.backend.name}_{uid_of(content)}"
    return BuildPlan(
        package=package.name,
        variant=variant.tag,
        op_id=op_id,
        steps=(),
        library=None,
        files=(
            ShippedFile("_ops.py", text=OPS_PY.format(op_id=op_id)),
            *(ShippedFile(target, source=source) for target, source, _ in python),
        ),
        metadata=metadata(package, variant, op_id),
    )
