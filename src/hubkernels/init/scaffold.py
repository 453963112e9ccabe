"""The template with another name."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import write_atomically
from hubkernels.model.digest import is_bytecode
from hubkernels.model.project import PACKAGE_NAME

TEMPLATE = Path(__file__).with_name("template")

BACKENDS = ("cpu",)
"""Backends that the template has sources for."""

NAME_RULE = "lower-case letters, digits and dashes; a letter first, no dash last: my-kernel, relu2d"
_OWNER = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?")
_LICENSE = re.compile(r"[A-Za-z0-9][-.+A-Za-z0-9]*")
TAKEN = frozenset(
    {
        *("Any", "ModuleType", "Path", "Tensor", "annotations", "kernels", "nn", "pytest", "torch"),
        *("add_op_namespace_prefix", "functional", "layers", "ops", "usable_isas"),
        "name",  # an attribute of every torch.ops.<namespace>
    }
)
"""What the template imports, defines or reads under the same name, in Python or as an op."""


@dataclass(frozen=True)
class Start:
    """What a new project is called. owner: user or organization on the Hub, where that is known."""

    name: str
    license: str
    owner: str | None = None

    @property
    def python_name(self) -> str:
        return self.name.replace("-", "_")

    @property
    def class_name(self) -> str:
        return "".join(part.capitalize() for part in self.name.split("-"))

    @property
    def words(self) -> Mapping[str, str]:
        """The template's words, and what stands for each."""
        return {
            "owner/my-kernel": f"{self.owner}/{self.name}",
            "my-kernel": self.name,
            "my_kernel": self.python_name,
            "MyKernel": self.class_name,
            "Apache-2.0": self.license,
            "apache-2.0": self.license.lower(),
        }


def parse_start(text: str, license_id: str) -> Start:
    """Read NAME or OWNER/NAME. Raises InputError that tells the rule a name breaks."""
    owner, slash, name = text.rpartition("/")
    start = Start(name, license_id, owner or None)
    problems = []
    if slash and not _OWNER.fullmatch(owner):
        problems.append(Problem(f'"{owner}" is not an owner on the Hub', hint="write OWNER/NAME, or NAME alone"))
    if not PACKAGE_NAME.fullmatch(name):
        problems.append(Problem(f'"{name}" is not a package name', hint=NAME_RULE))
    elif keyword.iskeyword(name) or {start.python_name, start.class_name} & TAKEN:
        problems.append(Problem(f"{name} is taken: it means something else in Python files", hint=f"{name}-kernel"))
    if not _LICENSE.fullmatch(license_id):
        problems.append(Problem(f'"{license_id}" is not a license id', hint="an SPDX id: Apache-2.0, MIT"))
    if problems:
        raise InputError(*problems)
    return start


def check_backends(names: tuple[str, ...]) -> None:
    """Raise InputError for backends that the template has no sources for."""
    missing = [name for name in names if name not in BACKENDS]
    if missing:
        hint = f"it has {', '.join(BACKENDS)}"
        raise InputError(*(Problem(f"init has no template for backend {name}", hint=hint) for name in missing))


def render(start: Start) -> dict[str, str]:
    """Every file of the new project: its path, and its text."""
    found = {}
    for file in sorted(TEMPLATE.rglob("*")):
        path = file.relative_to(TEMPLATE)
        if file.is_file() and not is_bytecode(path):
            text = file.read_text(encoding="utf-8")
            found[_rename(path.as_posix(), start)] = _rename(text if start.owner else _without_owner(text), start)
    return found


def write(files: Mapping[str, str], folder: Path, *, overwrite: bool) -> None:
    """Write the files. Raises InputError that lists what is in the way, unless it may be overwritten."""
    present = [path for path in files if (folder / path).exists() or (folder / path).is_symlink()]
    if present and not overwrite:
        raise InputError(
            Problem(
                "\n".join((f"{folder} already has", *(f"  - {path}" for path in present))),
                hint="choose another folder, or --overwrite them",
            )
        )
    for path, text in files.items():
        write_atomically(folder / path, text.encode())


def _rename(text: str, start: Start) -> str:
    """Replace the template's words in one pass, so that none is looked for in what another became."""
    return re.sub("|".join(start.words), lambda found: start.words[found[0]], text)


def _without_owner(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if "owner/my-kernel" not in line)
