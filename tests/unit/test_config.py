"""Reading build.toml in upstream's form: values, and every problem with its line, key path and way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubkernels.build.sources import compiled_sources
from hubkernels.config import load_project
from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.model.backend import BACKENDS, CPU, CUDA
from hubkernels.model.project import KernelDependency, KernelSection, Package, Torch, TorchNoarch, TvmFfi
from hubkernels.model.variant import Platform, Variant
from hubkernels.model.version import Version

CPU_VARIANT = Variant(Version((2, 10)), CPU, Platform("x86_64", "linux"), stable_abi=True)
WHOLE = """\
[general]
name = "my-kernel"
version = 3
edition = 5
license = "Apache-2.0"
upstream = "https://example.org/a.git"
backends = ["cpu", "cuda"]
python-depends = ["einops"]
kernel-depends = [{ repo-id = "org/other", version = 2 }]

[general.hub]
repo-id = "org/my-kernel"

[general.cuda]
minver = "12.6"
python-depends = ["nvidia-cutlass-dsl"]

[torch]
src = ["torch-ext/b.cpp", "torch-ext/b.h"]
include = ["inc"]
pyext = ["json"]
minver = "2.11"
cxx-flags = ["-DX"]
stable-abi = { cpu = "2.10" }

[kernel.one]
backend = "cpu"
depends = ["torch"]
src = ["a.cpp"]
cxx-flags = ["-mavx2"]

[kernel.two]
backend = "cuda"
depends = ["torch", "cutlass_4_5"]
cuda-capabilities = ["9.0a"]
cuda-flags = ["-O3"]
cuda-minver = "12.8"
src = ["a.cu"]
"""

SHORT = """\
[general]
name = "my-kernel"
version = 3
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["b.cpp"]

[kernel.one]
backend = "cpu"
depends = ["torch"]
src = ["a.cpp"]
"""


def load(folder: Path, text: str) -> Package:
    (folder / "build.toml").write_text(text, encoding="utf-8")
    (package,) = load_project(folder).packages
    return package


def problems(folder: Path, text: str) -> list[str]:
    (folder / "build.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_project(folder)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_every_table_reaches_the_model(tmp_path: Path) -> None:
    package = load(tmp_path, WHOLE)
    assert (package.name, package.python_name, package.version) == ("my-kernel", "my_kernel", 3)
    assert package.backends == (CPU, CUDA)
    assert package.kernel_depends == (KernelDependency("org/other", version=2),)
    assert package.requirements["cuda"].minver == Version((12, 6))
    assert package.requirements["cuda"].python_depends == ("nvidia-cutlass-dsl",)
    assert package.framework == Torch(
        sources=("torch-ext/b.cpp", "torch-ext/b.h"),
        include=("inc",),
        python_suffixes=("py", "pyi", "json"),
        minver=Version((2, 11)),
        stable_abi={"cpu": Version((2, 10))},
        cxx_flags=("-DX",),
    )
    assert package.sections == (
        KernelSection("one", CPU, ("a.cpp",), ("torch",), cxx_flags=("-mavx2",)),
        KernelSection(
            "two",
            CUDA,
            ("a.cu",),
            ("torch", "cutlass_4_5"),
            device_flags=("-O3",),
            archs=("9.0a",),
            cuda_minver=Version((12, 8)),
        ),
    )
    assert package.python_source == "torch-ext/my_kernel"
    assert package.repo_id == "org/my-kernel"


def test_a_stable_abi_of_one_version_holds_for_every_backend(tmp_path: Path) -> None:
    framework = load(tmp_path, WHOLE.replace('{ cpu = "2.10" }', '"2.11"')).framework
    assert isinstance(framework, Torch)
    assert dict(framework.stable_abi) == dict.fromkeys(BACKENDS, Version((2, 11)))


@pytest.mark.parametrize(("table", "kind"), [("[torch-noarch]", TorchNoarch), ("[tvm-ffi]\nsrc = []", TvmFfi)])
def test_frameworks_that_are_not_built_yet_are_read(tmp_path: Path, table: str, kind: type) -> None:
    text = f'[general]\nname = "ab"\nversion = 0\nlicense = "MIT"\nbackends = ["cuda"]\n{table}\n'
    assert isinstance(load(tmp_path, text).framework, kind)


def test_every_problem_is_reported_at_once_with_line_path_and_way_out(tmp_path: Path) -> None:
    text = """\
[general]
name = "My_Kernel"
version = "1"
edition = 5
licence = "MIT"
backends = ["cpu", "cudda", "cpu"]

[torch]
srcs = ["a.cpp"]
minver = 2.10

[kernel.one]
backend = "cpu"
depends = ["troch"]
src = ["a.cpp", 7]
cuda-flags = ["-O3"]

[kernel.two]
backend = "tpu"
src = []

[extra]
"""
    assert problems(tmp_path, text) == [
        "unknown key extra\n  --> build.toml:22: extra\n  hint: allowed: general, kernel, torch, torch-noarch, tvm-ffi",
        "unknown key licence\n  --> build.toml:5: general.licence\n  hint: did you mean license?",
        '"My_Kernel" is not a package name\n  --> build.toml:2: general.name\n'
        "  hint: two or more lower-case letters, digits and dashes; a letter first, no dash last: my-kernel, relu2d",
        'version must be an integer, found "1"\n  --> build.toml:3: general.version',
        "unknown backend cudda\n  --> build.toml:6: general.backends[1]\n  hint: did you mean cuda?",
        "backend cpu is named twice\n  --> build.toml:6: general.backends[2]",
        "unknown key srcs\n  --> build.toml:9: torch.srcs\n  hint: did you mean src?",
        "minver must be a string\n  --> build.toml:10: torch.minver\n"
        '  hint: quote it: "2.10" and "2.1" are two versions',
        "unknown key cuda-flags\n  --> build.toml:16: kernel.one.cuda-flags\n  hint: did you mean cxx-flags?",
        "src holds strings, found an integer: 7\n  --> build.toml:15: kernel.one.src[1]",
        "unknown dependency troch\n  --> build.toml:14: kernel.one.depends[0]\n  hint: did you mean torch?",
        "backend tpu takes no kernel section\n  --> build.toml:19: kernel.two.backend\n"
        "  hint: ship Python: [torch-noarch]",
        "missing key depends\n  --> build.toml:18: kernel.two.depends",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('backends = ["cpu", "cuda"]', 'backends = "cpu"'), 'backends must be a list, found "cpu"'),
        (("version = 3", "version = -1"), "version must not be negative, found -1"),
        (("version = 3", "version = true"), "version must be an integer, found a boolean: True"),
        (("edition = 5", "edition = 6"), "edition 6 is newer than this hubkernels reads (5)"),
        (("edition = 5", "edition = 3"), "edition 3 is older than this hubkernels reads (4)"),
        (('"2.11"', '"2.x"'), 'minver must be a version number, found "2.x"'),
        (("version = 2 }", "version = 2, revision = 'a' }"), "exactly one of version and revision is needed"),
        (("[torch]", "[tvm-ffi]"), "unknown key pyext"),
        (("[kernel.one]", "[torch-noarch]\n[kernel.one]"), "exactly one of [torch], [torch-noarch], [tvm-ffi]"),
        (('backend = "cpu"', "backend = ['cpu']"), "backend must be a string, found a list"),
        (('"-mavx2"', '"@flags.txt"'), "cxx-flags reads flags from a file: @flags.txt"),
        (('"-mavx2"', '"-Wa,@f"'), "cxx-flags reads flags from a file: -Wa,@f"),
        (('"-mavx2"', '"-Wp,-MD,x"'), "cxx-flags has a flag that is the builder's to give: '-Wp,-MD,x'"),
        (('"-mavx2"', '"-Wp,-I../b"'), "cxx-flags has a flag that is the builder's to give: '-Wp,-I../b'"),
        (('"-mavx2"', '"-Wa,-adhln=x"'), "cxx-flags has a flag that is the builder's to give: '-Wa,-adhln=x'"),
        (('"-mavx2"', '"-Wa,-W,-a=x"'), "cxx-flags has a flag that is the builder's to give: '-Wa,-W,-a=x'"),
        (
            ('"-mavx2"', f'"{"$<1:" * 330}-O3{">" * 330}"'),
            "cxx-flags has a word with more than 64 expressions of CMake",
        ),
        (('"-mavx2"', '"-MMD"'), "cxx-flags has a flag that is the builder's to give: '-MMD'"),
        (('"-mavx2"', '""'), "cxx-flags has a flag that is the builder's to give: ''"),
        (('"-mavx2"', '"-DA=1\\n"'), "cxx-flags has a control character: '-DA=1\\n'"),
        (('"a.cpp"', '"a\\u0000.cpp"'), "src has a control character"),
        (('"2.11"', "2.11"), "minver must be a string"),
        (("[kernel.one]", 'parity = ["x"]\n[kernel.one]'), "unknown key parity"),
        (("[kernel.one]", "[kernel]\nthree = 3\n[kernel.one]"), "three must be a table, found an integer: 3"),
        (("version = 3", f"version = 0x{'f' * 5000}"), "version has more than 64 bits"),
        (('"Apache-2.0"', f"0x{'f' * 5000}"), "license must be a string, found an integer\n"),
        (('"Apache-2.0"', f"{'[' * 300}{']' * 300}"), "license must be a string, found a list\n"),
        (('"2.11"', '"2.11+cpu"'), 'minver must be a version number, found "2.11+cpu"'),
        (('{ cpu = "2.10" }', '"2.10+junk"'), 'stable-abi must be a version number, found "2.10+junk"'),
        (('{ cpu = "2.10" }', '"2"'), "the version of a stable ABI is two numbers, found 2\n"),
        (('cpu = "2.10"', 'cpu = "2.10.1"'), "the version of a stable ABI is two numbers, found 2.10.1\n"),
    ],
)
def test_a_wrong_value_is_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    if change[1] == "[tvm-ffi]":
        message = "unknown key minver"
    found = problems(tmp_path, WHOLE.replace(*change))
    assert any(problem.startswith(message) for problem in found), found


def test_a_key_that_only_edition_5_has_is_unknown_without_an_edition(tmp_path: Path) -> None:
    found = problems(tmp_path, WHOLE.replace("edition = 5\n", ""))
    assert found[0].startswith("unknown key kernel-depends\n  --> build.toml:8: general.kernel-depends")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            ("edition =", "editon ="),
            "unknown key editon\n  --> build.toml:4: general.editon\n  hint: did you mean edition?",
        ),
        (
            ("\ndepends", "\ndependss"),
            "unknown key dependss\n  --> build.toml:13: kernel.one.dependss\n  hint: did you mean depends?",
        ),
        (("[torch]", "[troch]"), "unknown key troch\n  --> build.toml:8: troch\n  hint: did you mean torch?"),
        (("[general]", "[generl]"), "unknown key generl\n  --> build.toml:1: generl\n  hint: did you mean general?"),
    ],
)
def test_a_misspelled_key_is_one_problem(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    """The right one is not missing too, and an edition is looked for among the keys of every one."""
    assert problems(tmp_path, SHORT.replace(*change)) == [problem]


def test_numbers_and_single_words_where_a_list_of_strings_is_due(tmp_path: Path) -> None:
    for value, hint in (("[9.0]", 'quote it: ["9.0"]'), ("9.0", 'write ["9.0"]'), ('"9.0"', 'write ["9.0"]')):
        (problem,) = problems(tmp_path, WHOLE.replace('["9.0a"]', value))
        assert problem.endswith(f"\n  hint: {hint}")


def test_a_missing_general_table_is_one_problem(tmp_path: Path) -> None:
    assert problems(tmp_path, "[torch]\nsrc = []\n") == ["missing table [general]\n  --> build.toml:1"]


def test_text_that_is_not_toml_is_refused_with_line_and_column(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, "[general]\nname = my-kernel\n")
    assert found == "not valid TOML: Invalid value\n  --> build.toml:2:8"
    (found,) = problems(tmp_path, 'a = [\n  "x"\n  "y"\n]\n')
    assert found.endswith("\n  hint: a comma or a bracket is missing here or before")


def test_a_backend_by_a_name_of_the_field_gets_the_names_it_may_mean(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, WHOLE.replace('["cpu", "cuda"]', '["cpu", "cuda", "gpu"]'))
    assert found.startswith("unknown backend gpu\n")
    assert found.endswith("\n  hint: cuda, rocm or xpu")


def test_items_keep_their_index_beside_wrong_ones(tmp_path: Path) -> None:
    found = problems(tmp_path, WHOLE.replace('["cpu", "cuda"]', '[1, "cudda"]'))
    assert [problem.splitlines()[1].split()[-1] for problem in found] == ["general.backends[0]", "general.backends[1]"]


def test_a_section_of_an_unknown_backend_is_read_further(tmp_path: Path) -> None:
    text = WHOLE.replace('backend = "cuda"\ndepends = ["torch", "cutlass_4_5"]', 'backend = "cudda"\nincludes = []')
    assert problems(tmp_path, text.replace('src = ["a.cu"]', "src = [7]")) == [
        "unknown backend cudda\n  --> build.toml:33: kernel.two.backend\n  hint: did you mean cuda?",
        "unknown key includes\n  --> build.toml:34: kernel.two.includes\n  hint: did you mean include?",
        "src holds strings, found an integer: 7\n  --> build.toml:38: kernel.two.src[0]",
        "missing key depends\n  --> build.toml:32: kernel.two.depends",
    ]  # and its cuda-flags are not unknown keys


def test_every_framework_table_is_read_when_there_are_too_many(tmp_path: Path) -> None:
    found = problems(tmp_path, WHOLE.replace("[kernel.one]", "[tvm-ffi]\nsrc = []\npyexts = []\n[kernel.one]"))
    assert [problem.splitlines()[0] for problem in found] == [
        "exactly one of [torch], [torch-noarch], [tvm-ffi] is needed, found torch and tvm-ffi",
        "unknown key pyexts",
    ]


def test_a_missing_source_is_named_by_line_and_key(tmp_path: Path) -> None:
    package = load(tmp_path, WHOLE)
    (tmp_path / "torch-ext").mkdir()
    for name in ("torch-ext/b.cpp", "torch-ext/b.h"):
        (tmp_path / name).touch()
    with pytest.raises(InputError) as caught:
        compiled_sources(package, CPU_VARIANT, "g++")
    (found,) = caught.value.problems
    assert str(found) == f"source file does not exist: a.cpp\n  --> {tmp_path}/build.toml:29: kernel.one.src[0]"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("9" * 5000, "Exceeds the limit (4300"),
        (f"{'[' * 5000}{']' * 5000}", "TOML inline arrays/tables are nested more than the allowed"),
    ],
)
def test_a_value_beyond_the_limits_of_the_parser_is_refused(tmp_path: Path, value: str, reason: str) -> None:
    (found,) = problems(tmp_path, f"version = {value}\n")
    assert found.startswith(f"not readable as TOML: {reason}")
    assert found.endswith("\n  --> build.toml")


def test_a_byte_order_mark_is_called_by_its_name(tmp_path: Path) -> None:
    assert problems(tmp_path, f"\ufeff{WHOLE}") == [
        "the file begins with a byte-order mark\n  --> build.toml:1:1\n  hint: save it as UTF-8 without BOM"
    ]


def test_a_file_that_cannot_be_read_is_the_environments_fault(tmp_path: Path) -> None:
    (tmp_path / "build.toml").mkdir()
    with pytest.raises(EnvironmentLacksError, match="cannot read .*build.toml: Is a directory"):
        load_project(tmp_path)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "build.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(InputError, match="not UTF-8"):
        load_project(tmp_path)


def test_a_folder_without_build_toml_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no build\.toml in .*\n  hint: .*--project"):
        load_project(tmp_path)
