"""nvcc, torch and the host compiler held together: which nvcc, what does not fit, and how to change it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubkernels.check.cuda import host_compiler, older_compilers, toolkit
from hubkernels.check.finding import Finding
from hubkernels.host.machine import TorchSdk, torch_cuda
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import Compiler
from hubkernels.toolchain.nvcc import (
    NEWEST_HOST,
    Nvcc,
    find_nvcc,
    parse_limits,
    parse_release,
    table_limits,
    why_no_nvcc,
)

SAYS = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release {}, V{}.88\n"


def version(text: str) -> Version:
    return Version.parse(text)


def nvcc(release: str, path: str = "/opt/cuda/bin/nvcc", why: str = "first on PATH") -> Nvcc:
    return Nvcc(path, version(release), why, table_limits(version(release)))


def torch(cuda: str | None, root: str = "/site/torch") -> TorchSdk:
    if cuda is None:
        return TorchSdk("2.13.0+cpu", Path(root))
    return TorchSdk(f"2.13.0+cu{cuda.replace('.', '')}", Path(root), "cuda", version(cuda))


def gxx(release: str) -> Compiler:
    return Compiler(("/usr/bin/g++",), "g++", version(release), "hash", {})


def fake_nvcc(folder: Path, release: str, top: Path | None = None) -> Path:
    """A toolkit whose nvcc tells a release, and where its headers are."""
    program = folder / "bin/nvcc"
    program.parent.mkdir(parents=True)
    dry = f"echo '#$ TOP={top or folder}' >&2"
    program.write_text(f"#!/bin/sh\ncase $1 in --version) echo '{SAYS.format(release, release)}' ;; *) {dry} ;; esac\n")
    program.chmod(0o755)
    return program


def test_another_major_release_than_torchs_is_a_warning_with_both_the_path_and_the_way_out() -> None:
    assert toolkit(nvcc("11.8"), torch("12.4"), {}) == Finding(
        "cuda",
        "warning",
        "nvcc 11.8 (/opt/cuda/bin/nvcc, found first on PATH), torch 2.13.0+cu124 is built with CUDA 12.4: "
        "another major release",
        "set CUDA_HOME to a toolkit 12.x, or install a torch for CUDA 11.8",
    )


def test_another_minor_release_than_torchs_is_said_and_works() -> None:
    found = toolkit(nvcc("12.6"), torch("12.4"), {})
    assert (found.state, found.text.partition("CUDA 12.4")[2]) == ("ok", ": another minor release, which works")
    assert toolkit(nvcc("12.4"), torch("12.4"), {}).text.endswith("built with CUDA 12.4")


@pytest.mark.parametrize(
    ("environment", "text", "hint"),
    [
        ({}, "CUDA_HOME is unset, and none is on PATH", "install a CUDA 12.4 toolkit, and set CUDA_HOME"),
        ({"CONDA_PREFIX": "/conda"}, "no nvcc, though torch", "conda install -c nvidia cuda-nvcc=12.4"),
        (
            {"CUDA_HOME": "/gone"},
            "no nvcc runs in the bin of /gone, which CUDA_HOME names",
            "unset it, or name a toolkit",
        ),
    ],
)
def test_without_nvcc_it_is_said_which_of_the_reasons_it_is(environment: dict[str, str], text: str, hint: str) -> None:
    found = toolkit(None, torch("12.4"), environment)
    assert found.state == "warning"
    assert text in found.text
    assert hint in str(found.hint)


def test_a_cpu_torch_that_pip_chose_for_one_build_is_told_from_one_that_was_wanted() -> None:
    wanted = toolkit(nvcc("12.4"), torch(None), {})
    assert (wanted.state, wanted.hint) == ("ok", None)
    isolated = toolkit(nvcc("12.4"), torch(None, "/tmp/pip-build-env-ab12/overlay/lib/torch"), {})  # noqa: S108 - no such folder is made
    assert isolated.state == "warning"
    assert "--no-build-isolation" in str(isolated.hint)


def test_without_nvcc_and_without_a_torch_with_cuda_nothing_is_missed() -> None:
    assert {toolkit(None, found, {}).state for found in (None, torch(None))} == {"ok"}


@pytest.mark.parametrize(
    ("release", "compiler", "state"),
    [
        ("12.4", "14.1.0", "warning"),
        ("12.4", "13.2.0", "ok"),
        ("12.8", "14.1.0", "ok"),  # the same compiler: a guard must not be stricter than nvcc
        ("12.8", "15.1.0", "warning"),
        ("13.0", "15.1.0", "ok"),
        ("12.0", "12.2.0", "ok"),
    ],
)
def test_a_host_compiler_is_held_against_the_release_of_nvcc(release: str, compiler: str, state: str) -> None:
    assert host_compiler(nvcc(release), gxx(compiler), ()).state == state


def test_a_compiler_that_fits_is_named_when_one_is_there() -> None:
    found = host_compiler(nvcc("12.4"), gxx("15.1.0"), ("g++-14", "g++-13", "g++-12"))
    assert found == Finding("cuda host", "warning", "nvcc 12.4 accepts g++ up to 13, g++ 15.1.0 is newer", "CXX=g++-13")
    alone = host_compiler(nvcc("12.4"), gxx("15.1.0"), ("g++-14",))
    assert alone.hint == "install g++-13, and set CXX to it"


def test_a_release_that_nobody_knows_is_no_warning() -> None:
    assert host_compiler(nvcc("99.1"), gxx("40.0"), ()).state == "ok"


def test_older_compilers_are_those_on_path_newest_first(tmp_path: Path) -> None:
    for name in ("g++-13", "g++-9", "g++-15", "clang++-13"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert older_compilers(gxx("15.1.0"), {"PATH": str(tmp_path)}) == ("g++-13", "g++-9")


def test_the_table_is_no_stricter_than_the_installed_torchs() -> None:
    theirs = pytest.importorskip("torch.utils.cpp_extension", reason="no torch to compare with")
    for family, bounds in (("g++", theirs.CUDA_GCC_VERSIONS), ("clang", theirs.CUDA_CLANG_VERSIONS)):
        excluded = {version(release): newest[0] for release, (_, newest) in bounds.items()}
        both = {release: newest for release, newest in NEWEST_HOST[family].items() if release in excluded}
        assert len(both) > 5
        differing = {str(r): (newest + 1, excluded[r]) for r, newest in both.items() if newest + 1 != excluded[r]}
        assert differing == ({"12.3": (13, 14)} if family == "g++" else {})  # nvcc 12.3 refuses gcc 13


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'\n", "13.0"),
        ("debug = False\ncuda = '12.4'\n", "12.4"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '7.0'\n", None),
    ],
)
def test_the_cuda_release_of_torch_is_read_without_importing_it(text: str, cuda: str | None) -> None:
    assert torch_cuda(text) == (version(cuda) if cuda else None)


def test_the_release_of_nvcc_is_read() -> None:
    assert parse_release(SAYS.format("12.8", "12.8")) == version("12.8")
    assert parse_release("clang version 14") is None


def test_nvcc_is_looked_for_in_order(tmp_path: Path) -> None:
    for name, release in (("home", "12.1"), ("path", "12.2"), ("usual", "12.4")):
        fake_nvcc(tmp_path / name, release)
    path = f"{tmp_path / 'path/bin'}:/usr/bin:/bin"
    cases = {
        "12.1": {"CUDA_HOME": str(tmp_path / "home"), "PATH": path},
        "12.2": {"CUDA_HOME": "", "PATH": path},
        "12.4": {"PATH": "/nowhere"},
    }
    found = {name: find_nvcc(environment, tmp_path / "usual") for name, environment in cases.items()}
    assert {name: str(item.release) for name, item in found.items() if item} == {name: name for name in cases}
    assert [item.why for item in found.values() if item] == ["by CUDA_HOME", "first on PATH", "in the usual place"]
    assert find_nvcc({"PATH": "/nowhere"}, tmp_path / "gone") is None


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
@pytest.mark.parametrize("kind", ["gone", "broken"])
def test_of_a_folder_that_was_named_no_other_nvcc_is_taken(tmp_path: Path, variable: str, kind: str) -> None:
    """That of PATH used to be, without a word."""
    fake_nvcc(tmp_path / "path", "12.2")
    if kind == "broken":
        fake_nvcc(tmp_path / "named", "12.1").write_text("#!/bin/sh\nexit 1\n")
    environment = {variable: str(tmp_path / "named"), "PATH": f"{tmp_path / 'path/bin'}:/usr/bin:/bin"}
    assert find_nvcc(environment, tmp_path / "gone") is None
    told = f"no nvcc runs in the bin of {tmp_path / 'named'}, which {variable} names"
    assert why_no_nvcc(environment) == told
    found = toolkit(None, torch(None), environment)
    assert (found.state, found.text) == ("warning", told)


def test_what_the_toolkits_own_header_says_comes_before_the_table(tmp_path: Path) -> None:
    top = tmp_path / "toolkit"
    fake_nvcc(tmp_path / "cuda", "12.4", top)
    assert find_nvcc({"PATH": ""}, tmp_path / "cuda").newest_host == {"g++": 13, "clang": 16}  # type: ignore[union-attr]
    header = top / "include/crt/host_config.h"
    header.parent.mkdir(parents=True)
    header.write_text("#if __GNUC__ > 42\n#error -- unsupported GNU version!\n#endif\n")
    assert find_nvcc({"PATH": ""}, tmp_path / "cuda").newest_host == {"g++": 42}  # type: ignore[union-attr]


def test_limits_of_the_header() -> None:
    text = "#if __GNUC__ > 15\n#endif\n#error -- unsupported clang version! clang version must be less than 21 and\n"
    assert parse_limits(text) == {"g++": 15, "clang": 20}
    assert parse_limits("") == {}
