"""`kernel-builder init`: the project that it writes builds, loads and passes its own tests."""

from __future__ import annotations

import ast
import itertools
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubkernels.cli import main
from hubkernels.cli.init import spread_backends
from hubkernels.config import load_project
from hubkernels.errors import InputError
from hubkernels.init.scaffold import BACKENDS, TAKEN, TEMPLATE, parse_start, render
from hubkernels.model.isa import ISAS
from tests.conftest import REPOSITORY, Cli

NAME = "org/a-relu2"  # sorts before the template's other words, and capitalizes to ARelu2


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("init") / "new"
    assert main(["init", str(folder), "--name", NAME]) == 0
    return folder


def test_the_new_project_builds_and_passes_its_own_tests_unchanged(project: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("kernels")
    assert main(["build", "--project", str(project)]) == 0
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout + tests.stderr
    assert " passed" in tests.stdout


def test_the_stock_client_reads_its_build_toml(project: Path) -> None:
    client = pytest.importorskip("kernels._rust")
    assert [str(backend) for backend in client.Build.open(str(project)).general.backends] == ["cpu"]


def test_every_word_of_the_template_is_replaced(project: Path) -> None:
    made = {"build", "__pycache__", ".pytest_cache"}  # by other tests of this file
    files = [f for f in project.rglob("*") if f.is_file() and made.isdisjoint(f.relative_to(project).parts)]
    left = ("my-kernel", "my_kernel", "MyKernel", "owner/")
    assert [f for f in files if any(word in str(f) or word in f.read_text(encoding="utf-8") for word in left)] == []
    assert load_project(project).packages[0].repo_id == NAME


def test_files_in_the_way_are_listed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "build.toml").write_text("mine", encoding="utf-8")
    assert main(["init", str(tmp_path), "--name", "relu2"]) == 2
    said = capsys.readouterr().err
    assert "already has\n  - build.toml\n" in said
    assert "hint: choose another folder, or --overwrite them\n" in said
    assert [path.name for path in tmp_path.iterdir()] == ["build.toml"]
    assert (tmp_path / "build.toml").read_text(encoding="utf-8") == "mine"


def test_overwrite_replaces_files_that_are_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "build.toml").write_text("mine", encoding="utf-8")
    assert main(["init", str(tmp_path), "--name", "relu2", "--overwrite", "--license", "MIT"]) == 0
    assert load_project(tmp_path).packages[0].license == "MIT"


def test_the_name_of_the_folder_is_the_default(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "my_norm")]) == 0
    package = load_project(tmp_path / "my_norm").packages[0]
    assert (package.name, package.repo_id) == ("my-norm", None)


def test_a_word_of_the_template_inside_the_new_name_is_not_replaced_again() -> None:
    files = render(parse_start("owner/amy-kernel", "Apache-2.0"))
    assert 'hub.repo-id = "owner/amy-kernel"' in files["build.toml"]
    assert "torch-ext/amy_kernel/__init__.py" in files


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("My_Kernel", "lower-case letters, digits and dashes"),
        ("2d", "a letter first"),
        ("relu-", "no dash last"),
        ("../relu", "not a repository of the Hub"),
        ("a..b/kern", "not a repository of the Hub"),
        ("a-/kern", "not a repository of the Hub"),
        ("/relu", "not a repository of the Hub"),
        ("lambda", "means something else in Python"),
        ("layers", "means something else in Python"),
        ("nn", "means something else in Python"),
        ("tensor", "means something else in Python"),
        ("add-op-namespace-prefix", "means something else in Python"),
    ],
)
def test_a_bad_name_is_refused_with_the_rule_it_breaks(name: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        parse_start(name, "MIT")


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def test_taken_names_are_those_that_the_template_gives_to_something_else() -> None:
    torch = pytest.importorskip("torch", reason="the namespace of ops is torch's")
    python = {path: ast.parse(path.read_text(encoding="utf-8")) for path in TEMPLATE.rglob("*.py")}
    modules = {path.stem for path in python if "torch-ext" in path.parts and path.stem != "__init__"}
    binding = (TEMPLATE / "compiled/torch-ext/torch_binding.cpp").read_text(encoding="utf-8")
    ops = {name for name in re.findall(r'm\.def\("(\w+)\(', binding) if not name.startswith("my_kernel")}
    attributes = {name for name in dir(torch._ops._OpNamespace("any")) if not name.startswith("_")}
    found = {name for tree in python.values() for name in imported(tree)} | modules | ops | attributes
    assert found - {"my_kernel"} == TAKEN


def test_a_license_that_would_break_the_toml_is_refused() -> None:
    with pytest.raises(InputError, match="SPDX"):
        parse_start("relu", 'MIT"\n')


def test_a_backend_without_a_template_is_refused_with_those_that_have_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "nowhere", "--backends", "metal"]) == 2
    said = capsys.readouterr().err
    assert "no template for backend metal\n  hint: it has cpu, cuda, rocm, xpu; all stands for them" in said
    assert not Path("nowhere").exists()


BACKEND_SETS = [list(names) for n in range(1, 5) for names in itertools.combinations(BACKENDS, n)]


@pytest.mark.parametrize("name", [NAME, "a-relu2"], ids=["owner", "alone"])
@pytest.mark.parametrize("form", ["upstream", "workspace", "noarch"])
@pytest.mark.parametrize("backends", BACKEND_SETS, ids="-".join)
def test_every_set_of_backends_gives_a_project_without_problems(
    tmp_path: Path, backends: list[str], form: str, name: str
) -> None:
    """One package, with the sections and the files of these backends and no others."""
    options = [f"--{form}"] if form != "upstream" else []
    assert main(["init", str(tmp_path / "new"), "--name", name, *options, "--backends", *backends]) == 0
    (package,) = load_project(tmp_path / "new").packages
    assert (package.name, package.version) == ("a-relu2", 1)
    assert package.repo_id == (NAME if name == NAME else None)
    assert [backend.name for backend in package.backends] == backends
    assert sorted({section.backend.name for section in package.sections}) == (
        sorted(backends) if form != "noarch" else []
    )
    named = {path for section in package.sections for path in section.sources} | {
        *getattr(package.framework, "sources", ())
    }
    there = {path.relative_to(tmp_path / "new").as_posix() for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert named <= there
    assert {path for path in there if path.endswith((".cpp", ".cu"))} <= named
    if form != "workspace":
        client = pytest.importorskip("kernels._rust")
        opened = client.Build.open(str(tmp_path / "new"))
        assert sorted(str(backend) for backend in opened.general.backends) == sorted(backends)


@pytest.mark.parametrize(
    ("words", "spelled"),
    [
        (["init", "--backends", "cpu", "cuda"], ["init", "--backends", "cpu", "--backends", "cuda"]),
        (["init", "--backends", "all", "--name", "a"], ["init", "--backends", "all", "--name", "a"]),
        (
            ["init", "p", "--backends", "cpu", "--backends", "xpu"],
            ["init", "p", "--backends", "cpu", "--backends", "xpu"],
        ),
        (["init", "--backends"], ["init", "--backends"]),
        (["init", "--backends=cpu", "p"], ["init", "--backends=cpu", "p"]),
    ],
)
def test_backends_may_follow_one_another_as_upstream_has_it(words: list[str], spelled: list[str]) -> None:
    assert spread_backends(words) == spelled


def test_a_workspace_has_parity_and_bench_from_the_first_minute(tmp_path: Path, cli: Cli) -> None:
    pytest.importorskip("kernels")
    pytest.importorskip("torch")
    root = tmp_path / "a workspace"
    assert cli("init", root, "--name", NAME, "--workspace", "--backends", "cpu", "cuda").code == 0
    built = cli("build", "-C", root)
    assert built.code == 0, built.err
    for command in (("check", "builds"), ("check", "load"), ("check", "parity")):
        ran = cli(*command, "-C", root)
        assert ran.code == 0, ran.err
    assert "agree with the float64 reference" in ran.out
    timed = cli("bench", "run", "-C", root, "--seconds", "0.05", "--direction", "fwd", "--no-peers", "--threads", "1")
    assert timed.code == 0, timed.err
    assert "a_relu2 fwd fp32 1024x4096" in timed.out


def test_a_workspace_exports_to_the_fields_names(tmp_path: Path, cli: Cli) -> None:
    assert cli("init", tmp_path / "ws", "--name", NAME, "--workspace", "--backends", "all").code == 0
    ran = cli("export", "a-relu2", tmp_path / "done", "-C", tmp_path / "ws")
    assert ran.code == 0, ran.err
    names = {path.name for path in (tmp_path / "done/a_relu2_cpu").iterdir()}
    assert {"cpu_features.hpp", "a_relu2_cpu.cpp", "a_relu2_cpu_torch.cpp", "a_relu2_avx512.cpp"} <= names


def test_the_benchmark_is_one_that_the_client_runs_and_verifies(project: Path) -> None:
    pytest.importorskip("kernels")
    assert main(["build", "--project", str(project)]) == 0
    code = (
        "import sys; from pathlib import Path; import kernels.cli.benchmark as b;"
        "(cls,) = b.discover_benchmark_classes(Path('benchmarks/benchmark.py'), Path.cwd());"
        "options = {'repo_id': sys.argv[1], 'is_local': True, 'revision': 'local'};"
        "got, _ = b.run_benchmark_class(cls, iterations=1, warmup=1, **options);"
        "print({name: result.verified for name, result in got.items()})"
    )
    command = [sys.executable, "-c", code, "build/a-relu2"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "{'large': True, 'small': True}"


def test_python_files_alone_build_and_pass_the_projects_tests(tmp_path: Path, cli: Cli) -> None:
    pytest.importorskip("kernels")
    root = tmp_path / "new"
    assert cli("init", root, "--name", NAME, "--noarch").code == 0
    built = cli("build", root)
    assert built.code == 0, built.err
    made = {path.name for path in (root / "build/a-relu2").iterdir() if path.is_dir()}
    assert made == {f"torch-{name}" for name in BACKENDS}, "Triton files are for more than cpu"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    tests = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert tests.returncode == 0, tests.stdout + tests.stderr
    assert " passed" in tests.stdout


def test_the_section_has_the_flags_of_its_instruction_set() -> None:
    (flags,) = re.findall(r"cxx-flags = (\[.*\])", (TEMPLATE / "compiled/build.toml").read_text(encoding="utf-8"))
    assert tuple(json.loads(flags)) == ISAS["avx512"].flags


X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="instruction sets are those of x86-64")
COMPARED = ("leaf1_ecx", "leaf7_ebx", "leaf7_ecx", "leaf7_edx", "leaf7_1_eax", "extended1_ecx", "saved_state")


@X86
@pytest.mark.parametrize(
    "flags",
    [(), *(isa.flags for isa in ISAS.values()), *((f"-march=x86-64-v{n}",) for n in (2, 3, 4))],
    ids=lambda flags: flags[-1] if flags else "none",
)
def test_what_it_asks_the_machine_for_follows_from_the_flags(
    tmp_path: Path, compiler: str, flags: tuple[str, ...]
) -> None:
    """Just as the header of our own kernels has it, and without the zmm registers saved, nothing with AVX-512 runs."""
    same = "".join(f"static_assert(kCompiledFor.{word} == hk::kCompiledFor.{word});\n" for word in COMPARED)
    none = "static_assert(hk::kCompiledFor.leaf7_1_edx == 0 && hk::kCompiledFor.leaf13_1_eax == 0);\n"
    machine = (
        "constexpr Features less(uint32_t saved) { Features f = kCompiledFor; f.saved_state = saved; return f; }\n"
    )
    wide = "constexpr bool zmm = kCompiledFor.leaf7_ebx >> 16 & 1, ymm = kCompiledFor.leaf1_ecx >> 28 & 1;\n"
    saved = "static_assert(can_run(less(6), kCompiledFor) == !zmm && can_run(less(0), kCompiledFor) == !ymm);\n"
    text = f"{same}{none}{machine}{wide}{saved}static_assert(can_run(less(0xe6), kCompiledFor));\n"
    probe = tmp_path / "probe.cpp"
    probe.write_text(f'#include "hk/tier.h"\n#include "cpu_features.hpp"\nusing namespace my_kernel_cpu;\n{text}')
    include = ("-I", REPOSITORY / "cpu/include", "-I", TEMPLATE / "compiled/my_kernel_cpu")
    subprocess.run([compiler, "-std=c++20", *include, *flags, "-fsyntax-only", probe], check=True)


@X86
def test_it_finds_what_this_machine_has(tmp_path: Path, compiler: str) -> None:
    same = "".join(f" && ours.{word} == hks.{word}" for word in COMPARED)
    body = "const auto ours = my_kernel_cpu::machine_features(); const auto hks = hk::machine_features();"
    probe = tmp_path / "probe.cpp"
    headers = '#include "hk/isa.h"\n#include "cpu_features.hpp"\n'
    probe.write_text(f"{headers}int main() {{ {body} return !(ours.leaf1_ecx != 0{same}); }}\n")
    include = ("-I", REPOSITORY / "cpu/include", "-I", TEMPLATE / "compiled/my_kernel_cpu")
    subprocess.run([compiler, "-std=c++20", *include, probe, "-o", tmp_path / "probe"], check=True)
    subprocess.run([tmp_path / "probe"], check=True)


@pytest.mark.parametrize("form", ["--workspace", "--noarch", "--overwrite"])
def test_what_it_writes_passes_the_formatters_and_the_linter(tmp_path: Path, form: str) -> None:
    pytest.importorskip("ruff")
    assert main(["init", str(tmp_path), "--name", "org/my-kernel", form, "--backends", "all"]) == 0
    ruff = [sys.executable, "-m", "ruff"]
    rules = ["--select", "E4,E7,E9,F,I,UP,B,C4,SIM,PT", "--line-length", "120"]
    subprocess.run([*ruff, "format", "--check", "--no-cache", "--line-length", "120", "."], cwd=tmp_path, check=True)
    subprocess.run([*ruff, "check", "--no-cache", "--isolated", *rules, "."], cwd=tmp_path, check=True)
    sources = [str(path) for path in tmp_path.rglob("*") if path.suffix in {".cpp", ".hpp", ".cu"}]
    if sources:
        style = f"--style=file:{REPOSITORY / '.clang-format'}"
        subprocess.run(["clang-format", style, "--dry-run", "-Werror", *sources], check=True)
