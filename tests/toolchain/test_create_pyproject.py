"""`kernel-builder create-pyproject`: a tree that pip and CMake really build, with the builder's flags."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from hubkernels.host.machine import find_torch
from hubkernels.model.version import Version
from tests.conftest import REPOSITORY, Cli, SmallProject

pytest.importorskip("torch", reason="builds take the headers of an installed torch")
pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")

SECTIONS = """
[kernel.gpu]
backend = "cuda"
depends = ["torch"]
src = ["gpu/double.cu", "gpu/launch.cpp"]
include = ["gpu/include"]
cxx-flags = ["-DHOST=\\"a b\\"", "-Wall", "-DARROW=(a->b)"]
cuda-flags = ["--use_fast_math"]
cuda-capabilities = ["8.0", "9.0a", "12.0+PTX"]

[kernel.amd]
backend = "rocm"
depends = ["torch"]
src = ["gpu/double.cu"]
include = ["gpu/include"]
hip-flags = ["-ffast-math", "-DARROW=(a->b)"]
rocm-archs = ["gfx942"]

[kernel.intel]
backend = "xpu"
depends = ["torch"]
src = ["gpu/launch.cpp"]
include = ["gpu/include"]
sycl-flags = ["-fsycl-targets=spir64"]
"""


@pytest.fixture
def project(tmp_path: Path) -> SmallProject:
    return SmallProject(tmp_path / "a kernel dir", "my-kernel").write()


@pytest.fixture
def devices(project: SmallProject) -> SmallProject:
    text = (project.root / "build.toml").read_text()
    text = text.replace('backends = ["cpu"]', 'backends = ["cpu", "cuda", "rocm", "xpu"]')
    (project.root / "build.toml").write_text(text + SECTIONS)
    (project.root / "gpu/include").mkdir(parents=True)
    (project.root / "gpu/include/double.h").write_text("void twice(float* x, int n);\n")
    (project.root / "gpu/launch.cpp").write_text('#include "double.h"\nconst char* host() { return HOST; }\n')
    kernel = "__global__ void run(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }\n"
    launch = "void twice(float* x, int n) { run<<<1, 128>>>(x, n); }\n"
    (project.root / "gpu/double.cu").write_text(f'#include "double.h"\n{kernel}{launch}')
    return project


def environment(folder: Path) -> Path:
    """The interpreter of a fresh environment that sees the packages of this one."""
    venv.create(folder, with_pip=False)
    torch = find_torch()
    assert torch
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "this.pth").write_text(str(torch.root.parent))
    return folder / "bin/python"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def configure(root: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = ("cmake", "-S", root, "-B", out, f"-DPython3_EXECUTABLE={sys.executable}", "-GNinja", *options)
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)


def commands(out: Path) -> dict[str, list[str]]:
    """The compile command of each source, by its name."""
    entries = json.loads((out / "compile_commands.json").read_text())
    return {Path(entry["file"]).name: shlex.split(entry["command"]) for entry in entries}


def test_an_editable_install_of_a_name_with_a_dash_in_a_path_with_spaces_imports(
    project: SmallProject, cli: Cli, tmp_path: Path
) -> None:
    """pip used to copy to a folder with the dash of the name, which does not exist."""
    assert cli("create-pyproject", project.root).code == 0
    python = environment(tmp_path / "an environment")
    pip = ("-m", "pip", "--disable-pip-version-check", "--python", python, "install")
    run(sys.executable, *pip, "--no-build-isolation", "--no-deps", "-e", project.root)
    code = "import my_kernel as k; print(k.answer(), k.answer(), k.__file__)"
    assert run(python, "-c", code, cwd=tmp_path).startswith(f"42 43 {project.root}")
    (project.root / "torch-ext/my_kernel/__init__.py").write_text("answer = 7\n")
    assert run(python, "-c", "import my_kernel; print(my_kernel.answer)", cwd=tmp_path) == "7\n"


def test_cmake_installs_what_the_client_loads_where_build_would_put_it(
    project: SmallProject, cli: Cli, tmp_path: Path
) -> None:
    pytest.importorskip("kernels")
    sha = "0123456789" * 4
    target = tmp_path / "elsewhere"
    ran = cli("create-pyproject", project.root, target, "--unique-id", "abc123", "--kernel-sha", sha, "--kernel-dirty")
    assert ran.code == 0, ran.err
    assert configure(target, target / "out").returncode == 0
    run("cmake", "--build", target / "out", "--target", "local_install")
    (metadata,) = project.root.glob("build/my-kernel/*/metadata.json")
    found = json.loads(metadata.read_text())
    assert found["id"] == "_my_kernel_cpu_abc123"
    assert found["provenance"]["kernel"] == {"commit": sha, "dirty": True}
    code = "import kernels, pathlib, sys; print(kernels.get_local_kernel(pathlib.Path(sys.argv[1])).answer())"
    assert run(sys.executable, "-c", code, project.root / "build/my-kernel") == "42\n"
    before = metadata.parent.name
    metadata.parent.rename(tmp_path / "installed")
    assert cli("build", "--project", project.root).code == 0
    assert project.artifact.name == before


def test_cmake_compiles_with_the_flags_of_a_build(project: SmallProject, cli: Cli, tmp_path: Path) -> None:
    with (project.root / "build.toml").open("a") as text:
        text.write('cxx-flags = ["-DQUOTED=\\"a b\\"", "-ftemplate-depth=99", "-DARROW=(a->b)"]\n')
    assert cli("create-pyproject", project.root, tmp_path).code == 0
    assert configure(tmp_path, tmp_path / "out").returncode == 0
    planned = json.loads(cli("plan", "--project", project.root).out)
    made = commands(tmp_path / "out")
    (only,) = planned if isinstance(planned, list) else [planned]
    for step in only["steps"]:
        if step["subject"] not in {"torch-ext/binding.cpp", "cpu/kernel.cpp"}:
            continue
        want = [word for word in step["command"] if word.startswith(("-std", "-O", "-D", "-f", "-m", "-W"))]
        want = [word for word in want if not word.startswith(("-ffile-prefix-map", "-DTORCH_EXTENSION_NAME"))]
        assert want
        assert [word for word in want if word not in made[Path(step["subject"]).name]] == []
    assert f"-I{project.root / 'include'}" in made["kernel.cpp"]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_cuda_sections_get_their_language_capabilities_and_flags(
    devices: SmallProject, cli: Cli, tmp_path: Path
) -> None:
    assert cli("create-pyproject", devices.root, tmp_path).code == 0
    out = tmp_path / "out"
    done = configure(tmp_path, out, "-DBACKEND=cuda")
    assert done.returncode == 0, done.stderr
    made = commands(out)
    device, host = made["double.cu"], made["launch.cpp"]
    assert {"-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=sm_90a"} <= set(device)
    assert {"-gencode=arch=compute_120,code=sm_120", "-gencode=arch=compute_120,code=compute_120"} <= set(device)
    assert {"--use_fast_math", "-std=c++20", "-DCUDA_KERNEL", "-Xcompiler=-fPIC", "-DARROW=(a->b)"} <= set(device)
    assert '-DHOST="a b"' in device
    assert {"-DCUDA_KERNEL", "-Wall", '-DHOST="a b"'} <= set(host)
    assert not {"--use_fast_math", "-DCPU_KERNEL"} & set(host)
    assert "kernel.cpp" not in made
    objects = [name for name in run("ninja", "-C", out, "-t", "targets", "all").split() if "double.cu.o" in name]
    run("ninja", "-C", out, *(name.rstrip(":") for name in objects[:1]))


def test_hip_sections_get_their_language_architectures_and_flags(
    devices: SmallProject, cli: Cli, tmp_path: Path
) -> None:
    """CMake is told that clang is a HIP compiler, and finds an empty ROCm."""
    clang = shutil.which("clang++") or "clang++"
    package = tmp_path / "rocm/lib/cmake/hip-lang/hip-lang-config.cmake"
    package.parent.mkdir(parents=True)
    package.write_text("add_library(hip-lang::device INTERFACE IMPORTED GLOBAL)\n")
    assert cli("create-pyproject", devices.root, tmp_path).code == 0
    known = {"": clang, "_ID": "Clang", "_ID_RUN": "1", "_FORCED": "ON", "_ROCM_ROOT": str(tmp_path / "rocm")}
    options = (f"-DCMAKE_HIP_COMPILER{name}={value}" for name, value in known.items())
    done = configure(tmp_path, tmp_path / "out", "-DBACKEND=rocm", *options)
    assert done.returncode == 0, done.stderr
    device = commands(tmp_path / "out")["double.cu"]
    assert {"-std=c++20", "-DROCM_KERNEL", "--offload-arch=gfx942", "-ffast-math", "-DARROW=(a->b)", "hip"} <= set(
        device
    )
    assert "-fno-gnu-unique" not in device, "clang does not know it"


def test_the_full_abi_takes_the_standard_of_the_torch_that_is_there(
    project: SmallProject, cli: Cli, tmp_path: Path
) -> None:
    text = (project.root / "build.toml").read_text().replace('stable-abi = "2.10"\n', "")
    (project.root / "build.toml").write_text(text)
    assert cli("create-pyproject", project.root, tmp_path).code == 0
    assert configure(tmp_path, tmp_path / "out").returncode == 0
    torch = find_torch()
    assert torch
    standard = "-std=c++20" if torch.version >= Version((2, 12)) else "-std=c++17"
    assert standard in commands(tmp_path / "out")["kernel.cpp"]
    text = (tmp_path / "CMakeLists.txt").read_text()
    assert text.index('"-std=c++17"') < text.index("VERSION_GREATER_EQUAL 2.12") < text.index('"-std=c++20"')
    assert 'TAG "torch${TORCH_DIGITS}-cxx11-cpu-${CMAKE_SYSTEM_PROCESSOR}-linux"' in text


def test_sycl_sections_get_their_flags(devices: SmallProject, cli: Cli, tmp_path: Path) -> None:
    """No SYCL compiler here: CMake is told that g++ is one, and configures."""
    assert cli("create-pyproject", devices.root, tmp_path).code == 0
    done = configure(tmp_path, tmp_path / "out", "-DBACKEND=xpu", "-DCMAKE_CXX_COMPILER=g++")
    assert done.returncode == 0, done.stderr
    assert {"-fsycl", "-fsycl-targets=spir64", "-DXPU_KERNEL"} <= set(commands(tmp_path / "out")["launch.cpp"])
    if shutil.which("icpx") is None:
        missing = configure(tmp_path, tmp_path / "other", "-DBACKEND=xpu")
        assert "backend xpu needs icpx of Intel oneAPI" in missing.stderr


def test_another_backend_than_those_of_the_package_is_named(project: SmallProject, cli: Cli, tmp_path: Path) -> None:
    assert cli("create-pyproject", project.root, tmp_path).code == 0
    done = configure(tmp_path, tmp_path / "out", "-DBACKEND=cuda")
    assert done.returncode != 0
    assert "my-kernel is not built for cuda here: -DBACKEND= one of cpu" in " ".join(done.stderr.split())


def test_one_of_several_packages_is_not_chosen_silently(cli: Cli, tmp_path: Path) -> None:
    for name in ("one", "two"):
        SmallProject(tmp_path / name, name).write()
    ran = cli("create-pyproject", tmp_path, tmp_path / "out")
    assert ran.code == 2
    assert "a CMake tree is for one package; there are one, two" in ran.err
    assert not (tmp_path / "out").exists()


def test_baseline_objects_are_linked_before_those_of_a_tier(project: SmallProject, cli: Cli, tmp_path: Path) -> None:
    """Of an inline function in both, the linker keeps the first copy; build.toml may have the tiers first."""
    text = (project.root / "build.toml").read_text()
    wide = '[kernel.{0}]\nbackend = "cpu"\ndepends = ["torch"]\ncxx-flags = ["{1}"]\nsrc = ["cpu/{0}.cpp"]\n\n'
    tiers = {"zmm": "-mavx512f", "guarded": "$<$<CXX_COMPILER_ID:GNU,Clang>:-mavx512bw>", "ymm": "-mavx2"}
    first = "".join(wide.format(name, flag) for name, flag in tiers.items())
    (project.root / "build.toml").write_text(text.replace("[kernel.cpu]", f"{first}[kernel.cpu]"))
    for name in tiers:
        (project.root / f"cpu/{name}.cpp").write_text(f"int of_{name}() {{ return 1; }}\n")
    assert cli("create-pyproject", project.root, tmp_path).code == 0
    assert configure(tmp_path, tmp_path / "out").returncode == 0
    (planned,) = json.loads(cli("plan", "--project", project.root).out)
    (link,) = [
        words for words in run("ninja", "-C", tmp_path / "out", "-t", "commands").splitlines() if ".abi3.so" in words
    ]
    linked = [Path(word).name.removesuffix(".o") for word in shlex.split(link) if word.endswith(".cpp.o")]
    sources = [step["subject"] for step in planned["steps"] if step["subject"].endswith(".cpp")]
    assert linked == ["binding.cpp", "kernel.cpp", "ymm.cpp", "zmm.cpp", "guarded.cpp"]
    assert linked == [Path(source).name for source in sources if Path(source).name in linked]


def test_expressions_of_cmake_are_left_to_cmake(devices: SmallProject, cli: Cli, tmp_path: Path) -> None:
    """They were evaluated for the compiler that wrote the tree, whichever was used with it."""
    words = (
        "$<$<CXX_COMPILER_ID:GNU>:-DIS=1;-DTHEN=2>",
        "$<$<CXX_COMPILER_ID:MSVC>:/arch:AVX2>",
        "$<IF:$<CONFIG:Debug>,-DHOW=debug,-DHOW=release>",
        "$<$<TARGET_EXISTS:none>:-DOPTION>",  # only CMake knows
    )
    text = (devices.root / "build.toml").read_text()
    text = text.replace('include = ["include"]', f'include = ["include"]\ncxx-flags = {json.dumps(words)}')
    (devices.root / "build.toml").write_text(text)
    ran = cli("create-pyproject", devices.root, tmp_path)
    assert ran.code == 0, ran.err
    assert configure(tmp_path, tmp_path / "out", "-DCMAKE_BUILD_TYPE=Debug").returncode == 0
    made = commands(tmp_path / "out")["kernel.cpp"]
    assert {"-DIS=1", "-DTHEN=2", "-DHOW=debug"} <= set(made)
    assert not [word for word in made if "AVX2" in word or "OPTION" in word or "$<" in word]


def test_files_in_the_way_are_kept_without_force(project: SmallProject, cli: Cli) -> None:
    (project.root / "setup.py").write_text("mine")
    ran = cli("create-pyproject", project.root)
    assert ran.code == 2
    assert "already has\n  - setup.py\n" in ran.err
    assert "hint: choose another folder, or --force to replace them\n" in ran.err
    assert not (project.root / "CMakeLists.txt").exists()
    assert cli("create-pyproject", project.root, "--force").code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--unique-id", "a_b"), "lower-case letters and digits"),
        (("--kernel-sha", "abc"), "40 or 64 hexadecimal digits"),
        (("--kernel-dirty",), "give --kernel-sha too"),
    ],
)
def test_marks_that_metadata_could_not_hold_are_refused(
    project: SmallProject, cli: Cli, options: tuple[str, ...], said: str
) -> None:
    ran = cli("create-pyproject", project.root, *options)
    assert ran.code == 2
    assert said in ran.err
    assert not (project.root / "setup.py").exists()


def test_the_id_is_that_of_the_sources(project: SmallProject, cli: Cli, tmp_path: Path) -> None:
    texts = []
    for name, answer in (("one", 1), ("two", 1), ("three", 2)):
        project.write(answer)
        assert cli("create-pyproject", project.root, tmp_path / name).code == 0
        texts.append((tmp_path / name / "setup.py").read_text())
    assert texts[0] == texts[1] != texts[2]


def test_what_it_writes_passes_the_formatter_and_the_linter(project: SmallProject, cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    assert cli("create-pyproject", project.root, tmp_path).code == 0
    python = [tmp_path / "setup.py", tmp_path / "cmake/torch_facts.py"]
    run(sys.executable, "-m", "ruff", "format", "--check", "--no-cache", "--line-length", "120", *python)
    run(sys.executable, "-m", "ruff", "check", "--no-cache", "--isolated", "--select", "E4,E7,E9,F,I,UP,B", *python)


def test_a_workspace_is_exported_first(cli: Cli, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    ran = cli("create-pyproject", root, tmp_path)
    assert (ran.code, "a CMake tree is for one package" in ran.err) == (2, True)
    one = tmp_path / "one"
    assert cli("init", one, "--workspace", "--name", "owner/my-kernel").code == 0
    ran = cli("create-pyproject", one, tmp_path / "tree")
    assert ran.code == 2
    assert "`kernel-builder export` writes upstream's form first" in ran.err


def test_a_package_for_other_backends_only_has_no_tree(project: SmallProject, cli: Cli) -> None:
    text = (project.root / "build.toml").read_text().replace('"cpu"', '"metal"').replace("cpu/kernel.cpp", "a.metal")
    (project.root / "build.toml").write_text(text)
    (project.root / "a.metal").write_text("")
    ran = cli("create-pyproject", project.root)
    assert ran.code == 2
    assert "there is one for cpu, cuda, rocm, xpu" in ran.err


def test_what_to_do_next_is_what_the_docs_say(project: SmallProject, cli: Cli) -> None:
    target = project.root / "tree"
    ran = cli("create-pyproject", project.root, target)
    docs = (REPOSITORY / "docs/cli.md").read_text(encoding="utf-8")
    for command in (
        "pip install --no-build-isolation -e .",
        "cmake -S . -B _cmake -G Ninja && ninja -C _cmake local_install",
    ):
        assert f": cd {target} && {command}\n" in ran.out
        assert f"`{command}`" in docs
    assert "`kernel-builder build` makes the artifact there anew" in ran.out


def test_a_target_that_is_a_link_to_itself_is_told(project: SmallProject, cli: Cli) -> None:
    (project.root.parent / "l").symlink_to("l")
    ran = cli("create-pyproject", project.root, project.root.parent / "l")
    assert ran.code == 2
    assert f"  - {project.root.parent}/l is no folder" in ran.err
