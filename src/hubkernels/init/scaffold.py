"""The template with another name."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hubkernels.errors import InputError, Problem, similar
from hubkernels.model.backend import BACKENDS as KNOWN
from hubkernels.model.client import REPO_ID, REPO_RULE
from hubkernels.model.digest import is_bytecode
from hubkernels.model.project import NAME_RULE, PACKAGE_NAME

TEMPLATE = Path(__file__).with_name("template")

BACKENDS = ("cpu", "cuda", "rocm", "xpu")
"""Backends that the template has sources for."""

FORMS = ("upstream", "workspace", "noarch")
"""One package in upstream's form, the same in a workspace, or Python files alone in upstream's form."""

_WORKSPACE_PATHS = (
    (r"torch-ext/torch_binding\.cpp", "torch-ext/my_kernel/binding.cpp"),
    (r"torch-ext/my_kernel/(.*)", r"torch-ext/my_kernel/my_kernel/\1"),
    (r"my_kernel_cpu/my_kernel_cpu_torch\.cpp", "torch-ext/my_kernel/cpu.cpp"),
    (r"my_kernel_cpu/my_kernel_cpu\.cpp", "cpu/my_kernel/dispatch.cpp"),
    (r"my_kernel_cpu/my_kernel_(\w+)\.cpp", r"cpu/my_kernel/\1.cpp"),
    (r"my_kernel_cpu/(.*)", r"cpu/my_kernel/\1"),
    (r"my_kernel_cuda/my_kernel_cuda_torch\.cpp", "torch-ext/my_kernel/gpu.cpp"),
    (r"my_kernel_cuda/my_kernel_cuda\.cu", "csrc/my_kernel/my_kernel.cu"),
    (r"my_kernel_xpu/my_kernel_xpu_torch\.cpp", "torch-ext/my_kernel/xpu.cpp"),
    (r"my_kernel_xpu/my_kernel_xpu\.cpp", "csrc/my_kernel/my_kernel.sycl.cpp"),
    (r"my_kernel_(?:cuda|xpu)/(.*)", r"csrc/my_kernel/\1"),
)
"""Patterns of paths in upstream's form, and their places in a workspace; the first that fits."""

_LICENSE = re.compile(r"[A-Za-z0-9][-.+A-Za-z0-9]*")
TAKEN = frozenset(
    {
        *("Any", "Benchmark", "ModuleType", "Path", "Tensor", "annotations", "kernels", "nn", "pytest", "torch"),
        *("add_op_namespace_prefix", "functional", "layers", "ops", "usable_isas"),
        *("OpCase", "Peer", "Tolerance", "forward", "math", "tl", "triton", "triton_kernel"),
        "name",  # an attribute of every torch.ops.<namespace>
    }
)
"""What the template imports, defines or reads under the same name, in Python or as an op."""


@dataclass(frozen=True)
class Start:
    """What a new project is. owner: user or organization on the Hub, where that is known. form: one of FORMS."""

    name: str
    license: str
    owner: str | None = None
    backends: tuple[str, ...] = ("cpu",)
    form: str = "upstream"

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


def parse_start(text: str, license_id: str, backends: tuple[str, ...] = ("cpu",), form: str = "upstream") -> Start:
    """Read NAME or OWNER/NAME. Raises InputError that tells the rule a name breaks."""
    owner, slash, name = text.rpartition("/")
    start = Start(name, license_id, owner or None, backends, form)
    problems = []
    if slash and not REPO_ID.fullmatch(text):
        problems.append(Problem(f'"{text}" is not a repository of the Hub', hint=REPO_RULE))
    if not PACKAGE_NAME.fullmatch(name):
        problems.append(Problem(f'"{name}" is not a package name', hint=NAME_RULE))
    elif keyword.iskeyword(name) or {start.python_name, start.class_name} & TAKEN:
        problems.append(Problem(f"{name} is taken: it means something else in Python files", hint=f"{name}-kernel"))
    if not _LICENSE.fullmatch(license_id):
        problems.append(Problem(f'"{license_id}" is not a license id', hint="an SPDX id: Apache-2.0, MIT"))
    if problems:
        raise InputError(*problems)
    return start


def choose_backends(names: Iterable[str], form: str = "upstream") -> tuple[str, ...]:
    """The backends of these names, in the template's order; ``all`` is every one that it has.

    Without a name it is cpu, and for Python files alone, which serve every one, all. Raises InputError for those that
    the template has no sources for.
    """
    wanted = {name for words in names for name in words.split(",") if name} or {"all" if form == "noarch" else "cpu"}
    if missing := sorted(wanted - {*BACKENDS, "all"}):
        raise InputError(
            *(Problem(f"init has no template for backend {name}", hint=_way_out(name)) for name in missing)
        )
    return tuple(name for name in BACKENDS if name in wanted or "all" in wanted)


def _way_out(name: str) -> str:
    """A hint for a word that is no backend of the template; the folder is taken for one where it stands last."""
    if name not in KNOWN and not similar(name, (*BACKENDS, "all")):
        return "if it is the folder, put it first, or separate the backends with commas"
    return f"it has {', '.join(BACKENDS)}; all stands for them"


def render(start: Start) -> dict[str, str]:
    """Every file of the new project: its path, and its text."""
    found = {}
    for path, text in sorted(_template(start).items()):
        own = _with_backends(path, text, start)
        found[_rename(path, start)] = _rename(own if start.owner else _without_owner(own), start)
    return found


def _template(start: Start) -> dict[str, str]:
    """The files of the form and the backends, as the template has them."""
    parts = {"noarch": ("common", "noarch"), "workspace": ("common", "compiled", "workspace")}
    found: dict[str, str] = {}
    for part in parts.get(start.form, ("common", "compiled")):
        files = (path for path in (TEMPLATE / part).rglob("*") if path.is_file())
        names = {path.relative_to(TEMPLATE / part): path for path in files}
        found |= {n.as_posix(): p.read_text(encoding="utf-8") for n, p in names.items() if not is_bytecode(n)}
    kept = {path: text for path, text in found.items() if _is_for(path, start.backends)}
    return {_workspace_path(path): text for path, text in kept.items()} if start.form == "workspace" else kept


def _is_for(path: str, backends: tuple[str, ...]) -> bool:
    """Whether one of the backends has a use for a file: what is one's own carries its name."""
    found = re.search(r"my_kernel_(cpu|cuda|xpu)\b", path)
    users = {"cuda": {"cuda", "rocm"}}
    return found is None or not users.get(found[1], {found[1]}).isdisjoint(backends)


def _workspace_path(path: str) -> str:
    """Where a workspace has a file of upstream's form."""
    for pattern, replacement in _WORKSPACE_PATHS:
        moved, count = re.subn(f"^{pattern}$", replacement, path)
        if count:
            return moved
    return path


def _with_backends(path: str, text: str, start: Start) -> str:
    """The text without what serves other backends."""
    if path == "build.toml":
        named = ", ".join(f'"{name}"' for name in start.backends)
        return _without_others(text.replace('backends = ["cpu"]', f"backends = [{named}]"), start)
    if path.endswith("binding.cpp") and "cpu" not in start.backends:
        return re.sub(r"#ifdef CPU_KERNEL\n(?:  .*\n)*#endif\n", "", text)
    return text


def _without_others(text: str, start: Start) -> str:
    """A build.toml without the sections of other backends: a table each, or a line in a workspace."""
    others = "|".join(name for name in BACKENDS if name not in start.backends)
    if not others:
        return text
    if start.form == "workspace":
        return re.sub(rf"^(?:{others})\w* = .*\n", "", text, flags=re.MULTILINE)
    return re.sub(rf'\n(?:#.*\n)*\[kernel\.\w+\]\nbackend = "(?:{others})"\n(?:.+\n)*', "", text)


def _rename(text: str, start: Start) -> str:
    """Replace the template's words in one pass, so that none is looked for in what another became."""
    return re.sub("|".join(start.words), lambda found: start.words[found[0]], text)


def _without_owner(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if "owner/my-kernel" not in line)
