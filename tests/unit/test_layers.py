"""The layer rules of the design: who imports whom, who prints, who starts processes, what a C++ file includes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "hubkernels"

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "model": {"errors"},
    "host": {"errors", "model"},
    "config": {"errors", "model"},
    "toolchain": {"errors", "model", "host"},
    "build": {"errors", "model", "host", "config", "toolchain"},
    "check": {"errors", "model", "host", "config", "toolchain", "build"},
    "bench": {"errors", "model", "host", "config", "check"},
    "init": {"errors", "model", "host"},
    "cli": {"errors", "model", "host", "config", "toolchain", "build", "check", "bench", "init"},
}


def modules(room: str = "") -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((SOURCE / room).rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room_of(name: str) -> str:
    return name.split("/", maxsplit=1)[0].removesuffix(".py")


def test_each_room_imports_only_the_rooms_below_it() -> None:
    wrong = [
        f"{name} imports {module}"
        for name, tree in modules()
        if (room := room_of(name)) != "__init__"
        for module in imports(tree)
        if module.startswith("hubkernels.") and module.split(".")[1] not in ALLOWED[room] | {room}
    ]
    assert wrong == []


def test_only_one_module_starts_processes() -> None:
    starters = {"subprocess", "multiprocessing", "pty"}
    found = {name for name, tree in modules() if starters & {module.split(".")[0] for module in imports(tree)}}
    assert found == {"host/process.py"}


def test_only_the_command_line_prints_exits_or_reads_the_environment() -> None:
    child = "check/client.py"  # the program of the fresh process: it has a standard output and an exit code of its own
    banned = re.compile(r"\bprint\(|\bsys\.exit\(|\bos\.environ\b|\bos\.getenv\(|typer|sys\.stdout")
    wrong = [
        f"{name}: {line}"
        for name, _ in modules()
        if room_of(name) != "cli" and name != child
        for line in (SOURCE / name).read_text(encoding="utf-8").splitlines()
        if banned.search(line)
    ]
    assert wrong == []


def test_torch_is_imported_by_no_module_that_a_build_loads() -> None:
    rooms = ("errors", "model", "host", "config", "toolchain", "build", "cli")
    wrong = [name for name, tree in modules() if room_of(name) in rooms and "torch" in set(imports(tree))]
    assert wrong == []


def test_the_command_line_starts_without_the_slow_imports() -> None:
    slow = ("torch", "kernels", "rich", "ninja", "filelock")
    code = f"import sys, hubkernels.cli; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def c_plus_plus() -> list[Path]:
    return [
        path
        for folder in ("cpu", "csrc", "torch-ext")
        for path in (REPOSITORY / folder).rglob("*.*")
        if path.suffix in {".cpp", ".h", ".cuh", ".cu"}
    ]


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^">]+)', path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.skipif(not (REPOSITORY / "cpu").is_dir(), reason="the kernels' sources are not part of this installation")
def test_no_torch_header_below_the_binding() -> None:
    device_code = [path for path in c_plus_plus() if "torch-ext" not in path.parts]
    assert device_code
    wrong = [
        f"{path.relative_to(REPOSITORY)} includes {name}"
        for path in device_code
        for name in includes(path)
        if re.match(r"(torch|ATen|c10)/", name)
    ]
    assert wrong == []


@pytest.mark.skipif(not (REPOSITORY / "cpu").is_dir(), reason="the kernels' sources are not part of this installation")
def test_isa_files_include_no_standard_container_or_algorithm() -> None:
    """An inline function of theirs is merged at link, and the baseline could get the copy made for AVX-512."""
    isa_files = [path for path in (REPOSITORY / "cpu").rglob("*.cpp") if re.match(r"avx|amx", path.name)]
    assert isa_files
    allowed = re.compile(r"(immintrin\.h|cstdint|cstddef|climits|cfloat|[\w./]+\.h)$")
    wrong = [f"{path.name} includes {name}" for path in isa_files for name in includes(path) if not allowed.match(name)]
    assert wrong == []
