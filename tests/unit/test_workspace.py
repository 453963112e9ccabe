"""The workspace form: what a package inherits, where problems are shown, members."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubkernels.build.sources import compiled_sources
from hubkernels.config import load_project
from hubkernels.errors import InputError
from hubkernels.model.backend import CPU
from hubkernels.model.project import Package, Project, Torch, TorchNoarch
from hubkernels.model.variant import Platform, Variant
from hubkernels.model.version import Version

WORKSPACE = """\
[workspace]
schema = 1
general = { edition = 5, license = "Apache-2.0", backends = ["cpu", "cuda"] }
torch = { stable-abi = "2.10", include = ["torch-ext/include"] }

[workspace.backend]
cpu = { depends = ["torch"], include = ["cpu/include"] }
cuda = { depends = ["torch"], cuda-capabilities = ["9.0"] }

[package.rms-norm]
parity = ["tests/cases/rms_norm.py"]
general = { version = 1, hub.repo-id = "org/rms-norm" }
torch = { src = ["b.cpp"] }

[package.rms-norm.kernel]
cpu = { backend = "cpu", src = ["a.cpp"] }
fast = { backend = "cpu", isa = "avx512", include = ["own"], src = ["f.cpp"] }
cuda = { backend = "cuda", src = ["a.cu"] }

[package.other]
general = { version = 2, license = "MIT" }
torch-noarch = {}
"""


def load(folder: Path, text: str) -> Project:
    (folder / "build.toml").write_text(text, encoding="utf-8")
    return load_project(folder)


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(folder, text)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_a_missing_key_comes_from_the_workspace_whole(tmp_path: Path) -> None:
    package, other = load(tmp_path, WORKSPACE).packages
    assert (package.name, package.version, package.license) == ("rms-norm", 1, "Apache-2.0")
    assert isinstance(package.framework, Torch)
    assert (package.framework.sources, package.framework.include) == (("b.cpp",), ("torch-ext/include",))
    assert set(package.framework.stable_abi.values()) == {Version((2, 10))}
    cpu, fast, cuda = package.sections
    assert (cpu.depends, cpu.include, cpu.isa) == (("torch",), ("cpu/include",), None)
    assert (fast.include, fast.isa) == (("own",), "avx512")  # not merged with the workspace's
    assert cuda.archs == ("9.0",)
    assert package.parity == ("tests/cases/rms_norm.py",)
    assert package.python_source == "torch-ext/rms_norm/rms_norm"
    assert other.license == "MIT"
    assert isinstance(other.framework, TorchNoarch)  # its own framework keeps the workspace's [torch] out


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            ('license = "Apache-2.0", ', 'licence = "Apache-2.0", '),
            "unknown key licence\n  --> build.toml:3: workspace.general.licence\n  hint: did you mean license?",
        ),
        (
            ('include = ["own"]', 'includes = ["own"]'),
            "unknown key includes\n  --> build.toml:17: package.rms-norm.kernel.fast.includes\n"
            "  hint: did you mean include?",
        ),
        (
            ("avx512", "avx-512"),
            "unknown isa avx-512\n  --> build.toml:17: package.rms-norm.kernel.fast.isa\n  hint: did you mean avx512?",
        ),
        (
            ('cuda-capabilities = ["9.0"]', "cuda-capabilities = [9.0]"),
            "cuda-capabilities holds strings, found a float: 9.0\n"
            "  --> build.toml:8: workspace.backend.cuda.cuda-capabilities[0]",
        ),
        (("schema = 1", "schema = 2"), "schema must be 1"),
        (("version = 1, hub", "edition = 4, version = 1, hub"), "edition 4 has no edition key"),
        (
            ("version = 1, hub", "hub"),
            "missing key version\n  --> build.toml:12: package.rms-norm.general",
        ),
        (("general = { version = 1", "general = 3 # {"), "general must be a table, found an integer: 3"),
        (("version = 1,", "name = 'x', version = 1,"), "the name of a workspace package is its key"),
        (("[package.other]", "[package.Other]"), '"Other" is not a package name\n  --> build.toml:20: package.Other'),
        (("[package.other]", "[packages.other]"), "unknown key packages"),
        (("[workspace.backend]", "[workspace.backends]"), "unknown key backends"),
        (("torch-noarch = {}", "torch-noarch = 3"), "torch-noarch must be a table, found an integer: 3"),
    ],
)
def test_a_problem_is_shown_where_the_user_wrote_it(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    assert WORKSPACE.replace(*change) != WORKSPACE
    found = problems(tmp_path, WORKSPACE.replace(*change))
    assert any(text.startswith(problem) for text in found), found


MEMBER = '[general]\nname = "{name}"\nversion = 0\nlicense = "MIT"\nbackends = ["cpu"]\n[torch]\nsrc = []\n'


def test_members_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "kernels/a").mkdir(parents=True)
    (tmp_path / "kernels/a/build.toml").write_text(MEMBER.format(name="member"))
    project = load(tmp_path, '[workspace]\nschema = 1\nmembers = ["kernels/a"]\n')
    (package,) = project.packages
    assert (package.name, package.root, package.python_source) == (
        "member",
        tmp_path / "kernels/a",
        "torch-ext/member",
    )


def test_a_member_without_build_toml_is_named(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, '[workspace]\nschema = 1\nmembers = ["gone"]\n')
    assert found == (
        "no build.toml in gone\n  --> build.toml:3: workspace.members[0]\n  hint: write one, or drop the member"
    )


def test_two_packages_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/build.toml").write_text(MEMBER.format(name="rms-norm"))
    (found,) = problems(tmp_path, WORKSPACE.replace("schema = 1", 'schema = 1\nmembers = ["m"]'))
    assert found == "two packages are called rms-norm\n  --> build.toml:3: workspace.members[0]"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("general = 3", "general must be a table, found an integer: 3\n  --> build.toml:2: workspace.general"),
        ("general = { name = 'ab' }", "the name of a workspace package is its key"),
        ("general = { edition = 4 }", "edition 4 has no edition key\n  --> build.toml:2: workspace.general.edition"),
        ("general.cuda = { zzz = 1 }", "unknown key zzz\n  --> build.toml:2: workspace.general.cuda.zzz"),
        ("torch = 3", "torch must be a table, found an integer: 3\n  --> build.toml:2: workspace.torch"),
        ("torch = { stable-abi = '2' }", "the version of a stable ABI is two numbers, found 2\n  --> build.toml:2:"),
        ("torch-noarch = { zzz = 1 }", "unknown key zzz\n  --> build.toml:2: workspace.torch-noarch.zzz"),
        ("backend = 3", "backend must be a table, found an integer: 3\n  --> build.toml:2: workspace.backend"),
        ("backend.cpu = 3", "cpu must be a table, found an integer: 3\n  --> build.toml:2: workspace.backend.cpu"),
        ("backend.cuda = { foo = 1 }", "unknown key foo\n  --> build.toml:2: workspace.backend.cuda.foo"),
        ("backend.cpu.backend = 'cpu'", "unknown key backend\n  --> build.toml:2: workspace.backend.cpu.backend"),
        ("backend.cpu.isa = 'avx'", "unknown isa avx\n  --> build.toml:2: workspace.backend.cpu.isa"),
        ("backend.tpu.src = []", "unknown key tpu\n  --> build.toml:2: workspace.backend.tpu"),
        ("members = 3", "members must be a list, found an integer: 3\n  --> build.toml:2: workspace.members"),
    ],
)
def test_what_no_package_uses_is_checked_too(tmp_path: Path, line: str, problem: str) -> None:
    (found,) = problems(tmp_path, f"[workspace]\n{line}\nschema = 1\n")
    assert found.startswith(problem)


def test_what_a_workspace_lacks_is_no_problem(tmp_path: Path) -> None:
    text = "[workspace]\nschema = 1\ngeneral = {}\ntorch = {}\ntvm-ffi = {}\nbackend.cpu = {}\n"
    assert load(tmp_path, text).packages == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[workspace]\n", "missing key schema\n  --> build.toml:1: workspace.schema"),
        ("[workspace]\nschema = '1'\n", 'schema must be an integer, found "1"\n  --> build.toml:2: workspace.schema'),
        ("workspace = 3\n", "workspace must be a table, found an integer: 3\n  --> build.toml:1: workspace"),
    ],
)
def test_one_mistake_is_one_problem(tmp_path: Path, text: str, problem: str) -> None:
    assert problems(tmp_path, text) == [problem]


def test_a_wrong_key_that_two_packages_inherit_is_one_problem(tmp_path: Path) -> None:
    text = WORKSPACE.replace('"MIT"', '"MIT", backend = []').replace(
        "general = { edition", "general = { sauce = 1, edition"
    )
    found = [problem.splitlines()[:2] for problem in problems(tmp_path, text)]
    assert found == [
        ["unknown key sauce", "  --> build.toml:3: workspace.general.sauce"],
        ["unknown key backend", "  --> build.toml:21: package.other.general.backend"],
    ]


def test_what_neither_package_nor_workspace_has_is_missing_in_the_package(tmp_path: Path) -> None:
    assert problems(tmp_path, "[workspace]\nschema = 1\n[package.ab]\ntorch = {}\n") == [
        f"missing key {key}\n  --> build.toml:3: package.ab.general.{key}" for key in ("version", "license", "backends")
    ]


def test_packages_are_edition_5_without_saying_so(tmp_path: Path) -> None:
    text = WORKSPACE.replace("edition = 5, ", 'kernel-depends = [{ repo-id = "org/o", version = 1 }], ')
    assert [len(package.kernel_depends) for package in load(tmp_path, text).packages] == [1, 1]


def test_one_list_holds_the_problems_of_workspace_packages_and_members(tmp_path: Path) -> None:
    members = {"a": MEMBER.format(name="Bad"), "b": "[", "c": MEMBER.format(name="cc").replace("src", "srcs")}
    for name, text in members.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "build.toml").write_text(text)
    (tmp_path / "e/build.toml").mkdir(parents=True)
    text = WORKSPACE.replace("schema = 1", 'schema = 2\nmembers = [1, "a", "b", "c", "d", "e"]')
    found = problems(tmp_path, text.replace("avx512", "avx-512"))
    assert [problem.replace("\n  -->", " -->").splitlines()[0] for problem in found] == [
        "schema must be 1 --> build.toml:2: workspace.schema",
        "members holds strings, found an integer: 1 --> build.toml:3: workspace.members[0]",
        "unknown isa avx-512 --> build.toml:18: package.rms-norm.kernel.fast.isa",
        "no build.toml in d --> build.toml:3: workspace.members[4]",
        "cannot read e/build.toml: Is a directory --> build.toml:3: workspace.members[5]",
        '"Bad" is not a package name --> a/build.toml:2: general.name',
        "not valid TOML: Invalid initial character for a key part --> b/build.toml:1:2",
        "unknown key srcs --> c/build.toml:7: torch.srcs",
    ]


def missing_sources(package: Package) -> list[str]:
    variant = Variant(Version((2, 10)), CPU, Platform("x86_64", "linux"), stable_abi=True)
    with pytest.raises(InputError) as caught:
        compiled_sources(package, variant, "g++")
    return [str(problem).replace(f"{package.root}/", "") for problem in caught.value.problems]


def test_a_missing_source_is_named_by_the_users_own_line_and_key(tmp_path: Path) -> None:
    text = WORKSPACE.replace("[package.rms-norm.kernel]", '[package.rms-norm.kernel]\n"a.b" = { backend = "cpu" }')
    text = text.replace('cpu = { depends = ["torch"]', 'cpu = { src = ["b.cpp", "shared.cpp"], depends = ["torch"]')
    package, _ = load(tmp_path, text).packages
    (tmp_path / "b.cpp").touch()
    (tmp_path / "ff.cpp").touch()
    assert missing_sources(package) == [
        "source file does not exist: shared.cpp\n  --> build.toml:7: workspace.backend.cpu.src[1]",
        "source file does not exist: a.cpp\n  --> build.toml:17: package.rms-norm.kernel.cpu.src[0]\n"
        "  hint: did you mean b.cpp?",
        "source file does not exist: f.cpp\n  --> build.toml:18: package.rms-norm.kernel.fast.src[0]\n"
        "  hint: did you mean ff.cpp?",
    ]


def test_a_missing_source_of_a_member_is_named_in_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/build.toml").write_text(MEMBER.format(name="member").replace("src = []", 'src = ["gone.cpp"]'))
    (package,) = load(tmp_path, '[workspace]\nschema = 1\nmembers = ["m"]\n').packages
    assert missing_sources(package) == ["source file does not exist: gone.cpp\n  --> build.toml:7: torch.src[0]"]


def test_members_without_a_name_are_not_called_the_same(tmp_path: Path) -> None:
    for name in ("m", "n"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "build.toml").write_text(MEMBER.format(name="x").replace('name = "x"\n', ""))
    assert problems(tmp_path, '[workspace]\nschema = 1\nmembers = ["m", "n"]\n') == [
        f"missing key name\n  --> {name}/build.toml:1: general.name" for name in ("m", "n")
    ]


def test_an_isa_is_an_extension_that_upstream_projects_do_not_have(tmp_path: Path) -> None:
    text = MEMBER.format(name="ab") + '[kernel.x]\nbackend = "cpu"\nisa = "avx2"\ndepends = []\nsrc = []\n'
    (found,) = problems(tmp_path, text)
    assert found.startswith("unknown key isa\n  --> build.toml:10: kernel.x.isa")
