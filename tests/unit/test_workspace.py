"""The workspace form: what a package inherits, where problems are shown, members."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubkernels.config import load_project
from hubkernels.errors import InputError
from hubkernels.model.project import Project, Torch, TorchNoarch
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
    assert found.startswith("member gone has no build.toml\n  --> build.toml:3: workspace.members[0]")


def test_two_packages_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/build.toml").write_text(MEMBER.format(name="rms-norm"))
    (found,) = problems(tmp_path, WORKSPACE.replace("schema = 1", 'schema = 1\nmembers = ["m"]'))
    assert found.startswith("two packages are called rms-norm")


def test_an_isa_is_an_extension_that_upstream_projects_do_not_have(tmp_path: Path) -> None:
    text = MEMBER.format(name="ab") + '[kernel.x]\nbackend = "cpu"\nisa = "avx2"\ndepends = []\nsrc = []\n'
    (found,) = problems(tmp_path, text)
    assert found.startswith("unknown key isa\n  --> build.toml:10: kernel.x.isa")
