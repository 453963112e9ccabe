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
    "abi": {"errors", "model", "host", "config"},
    "toolchain": {"errors", "model", "host", "abi"},
    "build": {"errors", "model", "host", "config", "abi", "toolchain"},
    "check": {"errors", "model", "host", "config", "abi", "toolchain", "build"},
    "bench": {"errors", "model", "host", "config", "check"},
    "export": {"errors", "model", "host", "config", "toolchain", "build", "check"},
    "init": {"errors", "model", "host"},
    "hub": {"errors", "model", "host", "config", "toolchain", "build", "check", "bench"},
    "release": {"errors", "model", "host", "build", "check", "bench", "hub"},
    "runtime": {"errors", "model", "host"},
    "cli": {
        *("errors", "model", "host", "config", "abi", "toolchain"),
        *("build", "check", "bench", "export", "init", "hub", "release", "runtime"),
    },
}


Module = tuple[str, ast.Module]
"""A file of src/hubkernels: its path there, and its syntax tree."""


def modules() -> Iterator[Module]:
    """The files of each room; what `init` writes is no code of ours."""
    for path in sorted(set(SOURCE.rglob("*.py")) - set((SOURCE / "init/template").rglob("*.py"))):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imports(module: Module) -> Iterator[str]:
    """Everything that a module imports, by full name: modules, what is taken from them, and names in strings."""
    path, tree = module
    package = ("hubkernels", *Path(path).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            outer = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join((*outer, *filter(None, [node.module])))
            yield from (f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"hubkernels(\.\w+)+(:\w+)?", str(node.value)):
            yield str(node.value).replace(":", ".")


def uses(module: Module) -> Iterator[str]:
    """Everything that a module imports or reads from a module or calls by a bare name, by full name."""
    yield from imports(module)
    names = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(module[1])
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(module[1]):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{names.get(node.value.id, node.value.id)}.{node.attr}"
        elif isinstance(node, ast.Name):
            yield node.id


def room_of(name: str) -> str:
    return name.split("/", maxsplit=1)[0].removesuffix(".py")


def foreign_rooms(module: Module) -> set[str]:
    """The rooms that a module imports from and must not."""
    room = room_of(module[0])
    parts = (name.split(".") for name in imports(module))
    found = {words[1] for words in parts if words[0] == "hubkernels" and len(words) > 1}
    return {name for name in found if (SOURCE / name).exists() or (SOURCE / f"{name}.py").exists()} - (
        ALLOWED[room] | {room}
    )


def is_for_the_command_line(name: str) -> bool:
    return (
        name in {"print", "input", "exit", "quit"}
        or re.match(r"(sys\.(stdin|stdout|stderr|exit)|os\.(environb?|getenvb?|putenv)|typer|rich)(\.|$)", name)
        is not None
    )


def starts_processes(name: str) -> bool:
    return (
        re.match(r"(subprocess|multiprocessing|pty)(\.|$)|os\.(system|popen|exec|spawn|posix_spawn|fork)", name)
        is not None
    )


@pytest.mark.parametrize(
    "text",
    [
        "import hubkernels.build.plan",
        "from hubkernels.build.plan import plan",
        "from hubkernels.build import plan",
        "from hubkernels import build",
        "from ..build import plan",
        "from .. import build",
        "def inside():\n    from ..build.plan import plan",
        "TASK = 'hubkernels.build.plan:plan'",
        "import importlib\nimportlib.import_module('hubkernels.build.plan')",
    ],
)
def test_an_import_of_another_room_is_seen(text: str) -> None:
    assert foreign_rooms(("model/artifact.py", ast.parse(text))) == {"build"}
    assert foreign_rooms(("check/load.py", ast.parse(text))) == set()


@pytest.mark.parametrize(
    "text",
    [
        "print()",
        "import sys\nsys.stderr.write('')",
        "import sys as system\nsystem.stdout",
        "from sys import stderr",
        "from os import environ",
        "import os\nos.getenv('X')",
        "import typer",
        "from rich.console import Console",
    ],
)
def test_what_is_for_the_command_line_is_seen(text: str) -> None:
    assert any(map(is_for_the_command_line, uses(("model/artifact.py", ast.parse(text)))))


def test_each_room_imports_only_the_rooms_below_it() -> None:
    found = {module[0]: foreign_rooms(module) for module in modules() if room_of(module[0]) != "__init__"}
    assert {name: rooms for name, rooms in found.items() if rooms} == {}


def test_only_one_module_starts_processes() -> None:
    """Beside the program that a build starts its commands by."""
    found = {module[0] for module in modules() if any(map(starts_processes, uses(module)))}
    assert found == {"host/process.py", "host/measured.py"}


def test_only_the_command_line_prints_exits_or_reads_the_environment() -> None:
    own = {
        "check/client.py",  # the program of the fresh process: it has a standard output and an exit code of its own
        "host/measured.py",  # the program that a build starts its commands by: it hands its environment on
        "hub/token.py",  # the Hub's client takes its token from there by itself: it is looked at before that does
        "runtime/settings.py",  # a program that loads kernels has no command line of ours that could hand them in
    }
    wrong = {
        module[0]: found
        for module in modules()
        if room_of(module[0]) != "cli" and module[0] not in own
        if (found := sorted(filter(is_for_the_command_line, uses(module))))
    }
    assert wrong == {}


def test_torch_is_imported_by_no_module_that_a_build_loads() -> None:
    rooms = ("errors", "model", "host", "config", "toolchain", "build", "cli")
    wrong = [
        module[0]
        for module in modules()
        if room_of(module[0]) in rooms and any(name.split(".")[0] == "torch" for name in imports(module))
    ]
    assert wrong == []


def test_the_command_line_starts_without_the_slow_imports() -> None:
    slow = (
        *("torch", "kernels", "rich", "ninja", "filelock", "elftools"),
        *("dulwich", "starlette", "uvicorn", "cryptography", "sigstore"),
    )
    code = f"import sys, hubkernels.cli; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_runtime_is_imported_without_torch_and_the_clients() -> None:
    slow = ("torch", "numpy", "kernels", "huggingface_hub", "dulwich", "urllib.request", "ssl")
    code = f"import sys, hubkernels.runtime; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_runtime_uses_the_standard_library_and_torch_alone() -> None:
    """What else it imports, it imports where a kernel asks for that: the client, and what torch was built for."""
    allowed = {*sys.stdlib_module_names, "hubkernels", "torch", "kernels"}
    found = {name.split(".")[0] for module in modules() if room_of(module[0]) == "runtime" for name in imports(module)}
    assert found - allowed == set()


def test_a_verb_imports_no_library_for_schemas() -> None:
    """As typer does from 0.29 on: 70 ms of a build without a change, which takes 250."""
    code = (
        "import sys; from hubkernels.cli.app import main; main(['list-variants', '--project', '/'])\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["build", "--help"], ["completions", "bash"]])
def test_what_reads_no_build_toml_imports_no_reader_of_it(words: list[str]) -> None:
    """A tenth of a second is what `--help` may take; the readers alone are a quarter of that."""
    code = (
        "import sys; from hubkernels.cli.app import main; main(sys.argv[1:])\n"
        "print([name for name in sys.modules if name.startswith('hubkernels.config')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def c_plus_plus() -> list[Path]:
    return [
        path
        for folder in ("cpu", "csrc", "torch-ext")
        for path in (REPOSITORY / folder).rglob("*.*")
        if path.suffix in {".cpp", ".h", ".cuh", ".cu"}
    ]


NO_SOURCES = pytest.mark.skipif(
    not (REPOSITORY / "cpu").is_dir(), reason="the kernels' sources are not part of this installation"
)

ISA_HEADERS = REPOSITORY / "cpu/include"
STANDARD = {"immintrin.h", "cstdint", "cstddef", "climits", "cfloat"}
"""Headers without a function of the standard library: an inline one is merged at link."""


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^">]+)', path.read_text(encoding="utf-8"), re.MULTILINE)


def strange_includes(path: Path, op: Path) -> Iterator[str]:
    """What an ISA file of an op includes, itself or through a header, beside headers of the op and those in hk/."""
    for name in includes(path):
        places = ((path.parent / name).resolve(), ISA_HEADERS / name)
        header = next((place for place in places if place.is_file()), None)
        if header is None:
            if name not in STANDARD:
                yield f"{path.name} includes {name}"
        elif header.parent in {op, ISA_HEADERS / "hk"}:
            yield from strange_includes(header, op)
        else:
            yield f"{path.name} includes {header.relative_to(REPOSITORY)}"


@NO_SOURCES
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


@NO_SOURCES
def test_isa_files_include_their_own_op_and_isa_headers_only() -> None:
    """An inline function of another header is merged at link, and the baseline could get the copy made for AVX-512."""
    isa_files = [path for path in (REPOSITORY / "cpu").rglob("*.cpp") if re.match(r"avx|amx", path.name)]
    assert isa_files
    assert {text for path in isa_files for text in strange_includes(path, path.parent)} == set()


@NO_SOURCES
@pytest.mark.parametrize(
    ("line", "strange"),
    [
        ('#include "hk/isa.h"', "isa.h includes string"),  # for baseline files: it has functions of its own
        ('#include "../rms_norm/rms_norm.h"', "avx2.cpp includes cpu/rms_norm/rms_norm.h"),
        ('#include "rms_norm/rms_norm.h"', "avx2.cpp includes rms_norm/rms_norm.h"),
        ('#include "hk/tensor.h"', "avx2.cpp includes hk/tensor.h"),
        ("#include <algorithm>", "avx2.cpp includes algorithm"),
        ("#include <string.h>", "avx2.cpp includes string.h"),
    ],
)
def test_a_strange_include_of_an_isa_file_is_seen(tmp_path: Path, line: str, strange: str) -> None:
    (tmp_path / "rms_norm").symlink_to(REPOSITORY / "cpu/rms_norm")
    op = tmp_path / "another_op"
    op.mkdir()
    (op / "avx2.cpp").write_text(f"#include <immintrin.h>\n{line}\n", encoding="utf-8")
    assert strange in set(strange_includes(op / "avx2.cpp", op))
