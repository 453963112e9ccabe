"""`kernel-builder export`: one package of a workspace, as a project of its own that means the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hubkernels.config import load_project
from hubkernels.export.layout import field_paths
from hubkernels.model.isa import ISAS
from tests.conftest import BINDING, INIT_PY, REPOSITORY, Cli, SmallProject

pytest.importorskip("torch", reason="builds take the headers of an installed torch")

WORKSPACE = """\
[workspace]
schema = 1
general = { edition = 5, license = "MIT", backends = ["cpu", "cuda"] }
torch = { stable-abi = "2.10", include = ["torch-ext/include"] }

[workspace.backend]
cpu = { depends = ["torch"], include = ["cpu", "cpu/include", "torch-ext/include"], cxx-flags = ["-DNAME=\\"a b\\""] }

[package.two-plus]
parity = ["tests/cases/two_plus.py"]
general = { version = 3, hub.repo-id = "org/two-plus" }
torch = { src = ["torch-ext/two_plus/binding.cpp"] }
[package.two-plus.kernel]
cpu = { backend = "cpu", src = ["torch-ext/two_plus/cpu.cpp", "cpu/plus/dispatch.cpp"] }
cpu_avx2 = { backend = "cpu", isa = "avx2", cxx-flags = ["-DFAST"], src = ["cpu/plus/avx2.cpp"] }
cuda = { backend = "cuda", depends = ["torch"], include = ["csrc/include"], src = ["csrc/plus/plus.cu"] }
"""

FILES = {
    "build.toml": WORKSPACE,
    "LICENSE": "the terms",
    "tests/cases/two_plus.py": "CASE = None\n",
    "torch-ext/two_plus/binding.cpp": BINDING.replace("../include/kernel.h", "kernel.h"),
    "torch-ext/two_plus/cpu.cpp": '#include "plus/plus.h"\nint64_t answer() { return two() + fast(); }\n',
    "torch-ext/include/kernel.h": "#pragma once\n#include <cstdint>\nint64_t answer();\n",
    "torch-ext/two_plus/two_plus/__init__.py": INIT_PY,
    "torch-ext/two_plus/two_plus/layers.py": "WHOSE = 1\n",
    "cpu/plus/plus.h": "#pragma once\n#include <kernel.h>\n#include <hk/number.h>\nint64_t two();\nint64_t fast();\n",
    "cpu/plus/dispatch.cpp": '#define H "hk/found.h"\n#include H\n#include "plus.h"\nint64_t two() { return TWO; }\n',
    "cpu/plus/avx2.cpp": '#ifndef FAST\n#include "slow.h"\n#endif\n#include "plus.h"\nint64_t fast() { return 40; }\n',
    "cpu/plus/slow.h": "// a byte that is no UTF-8: \udcff\n",
    "cpu/include/hk/number.h": "#pragma once\n",
    "cpu/include/hk/found.h": "#pragma once\n#define TWO 2\n",
    "csrc/plus/plus.cu": '#ifdef __HIP__\n#include "hk/hip.h"\n#else\n#include "hk/nvidia.h"\n#endif\n',
    "csrc/include/hk/nvidia.h": "",
    "csrc/include/hk/hip.h": "",
    "cpu/other/other.h": "// of another package\n",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work space"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode("utf-8", "surrogateescape"))
    return root


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_export_holds_what_the_package_is_made_of_under_the_fields_names(workspace: Path, cli: Cli) -> None:
    done = workspace.parent / "done"
    ran = cli("export", "two_plus", done, "--project", workspace)
    assert ran.code == 0, ran.err
    assert files_of(done) == {
        *("LICENSE", "build.toml", "tests/cases/two_plus.py"),
        *("torch-ext/torch_binding.cpp", "torch-ext/include/kernel.h"),
        *("torch-ext/two_plus/__init__.py", "torch-ext/two_plus/layers.py"),
        *("two_plus_cpu/two_plus_cpu_torch.cpp", "plus_cpu/plus_cpu.cpp", "plus_cpu/plus_cpu.hpp"),
        *("plus_cpu/plus_avx2.cpp", "plus_cpu/slow.h"),  # slow.h is read where FAST is not defined
        *("cpu/include/hk/number.h", "cpu/include/hk/found.h"),  # the second is named by a macro
        *("csrc/plus/plus.cu", "csrc/include/hk/nvidia.h", "csrc/include/hk/hip.h"),
    }
    assert (done / "plus_cpu/slow.h").read_bytes() == (workspace / "cpu/plus/slow.h").read_bytes()
    assert '#include "../plus_cpu/plus_cpu.hpp"' in (done / "two_plus_cpu/two_plus_cpu_torch.cpp").read_text()
    assert not [path for path in done.rglob("*") if path.is_file() and str(workspace).encode() in path.read_bytes()]


def test_its_build_toml_names_sources_headers_and_flags(workspace: Path, cli: Cli) -> None:
    done = workspace.parent / "done"
    assert cli("export", "two-plus", done, "--project", workspace).code == 0
    (package,) = load_project(done).packages
    sections = {section.name: section for section in package.sections}
    assert (package.name, package.version, package.license, package.repo_id) == ("two-plus", 3, "MIT", "org/two-plus")
    assert sections["cpu_avx2"].cxx_flags == ("-mavx2", "-mfma", "-mf16c", "-DFAST")
    assert sections["cpu"].cxx_flags == ('-DNAME="a b"',)
    assert sections["cuda"].sources == ("csrc/plus/plus.cu", "csrc/include/hk/hip.h", "csrc/include/hk/nvidia.h")
    named = {path for section in package.sections for path in section.sources}
    named |= set(package.framework.sources) if hasattr(package.framework, "sources") else set()
    compiled_or_read = {path for path in files_of(done) if path.rpartition(".")[2] in {"h", "hpp", "cpp", "cu"}}
    assert named == compiled_or_read, "upstream's Nix build sees only the files that build.toml names"
    assert "# parity = [" in (done / "build.toml").read_text()


def test_it_builds_to_an_artifact_that_passes_the_checks_and_the_clients_parser_reads_it(
    workspace: Path, cli: Cli
) -> None:
    client = pytest.importorskip("kernels._rust")
    done = workspace.parent / "done"
    assert cli("export", "two-plus", done, "--project", workspace).code == 0
    assert [str(backend) for backend in client.Build.open(str(done)).general.backends] == ["cpu", "cuda"]
    workspace.rename(workspace.with_name("gone"))
    built = cli("build", "--project", done)
    assert built.code == 0, built.err
    for check in ("builds", "load"):
        ran = cli("check", check, "--project", done)
        assert ran.code == 0, ran.err


def test_nothing_is_overwritten_but_an_earlier_export_with_force(workspace: Path, cli: Cli) -> None:
    done = workspace.parent / "done"
    assert cli("export", "two-plus", done, "--project", workspace).code == 0
    ran = cli("export", "two-plus", done, "--project", workspace)
    assert ran.code == 2
    assert "is there already" in ran.err
    assert cli("export", "two-plus", done, "--project", workspace, "--force").code == 0
    (done / "build.toml").write_text((done / "build.toml").read_text() + "# edited")
    assert cli("export", "two-plus", done, "--project", workspace, "--force").code == 0
    assert "# edited" not in (done / "build.toml").read_text()
    (done / ".git").mkdir()
    (workspace.parent / "mine").mkdir()
    (workspace.parent / "mine/notes").write_text("")
    for folder in (done, workspace.parent / "mine"):
        ran = cli("export", "two-plus", folder, "--project", workspace, "--force")
        assert ran.code == 2
        assert "is no earlier export of two-plus" in ran.err
    assert files_of(workspace.parent / "mine") == {"notes"}


def test_what_the_export_did_not_write_is_never_deleted(workspace: Path, cli: Cli) -> None:
    done = workspace.parent / "done"
    assert cli("export", "two-plus", done, "--project", workspace).code == 0
    for path in ("notes.h", "sub/.git/HEAD", "torch-ext/mine/a.py", "torch-ext/__pycache__/a.pyc"):
        (done / path).parent.mkdir(parents=True, exist_ok=True)
        (done / path).write_text("mine")
    (done / "torch-ext/link").symlink_to(workspace, target_is_directory=True)
    before = files_of(done)
    ran = cli("export", "two-plus", done, "--project", workspace, "--force")
    assert ran.code == 2
    listed = [line.removeprefix("  - ") for line in ran.err.splitlines() if line.startswith("  - ")]
    assert listed == ["notes.h", "sub/", "torch-ext/link/", "torch-ext/mine/"]
    assert "move that away, or export to another folder" in ran.err
    assert files_of(done) == before


@pytest.mark.parametrize("form", ["package", "root", "parent", "link", "marked"])
def test_the_projects_own_folders_are_never_replaced(cli: Cli, tmp_path: Path, form: str) -> None:
    """A member has its name in its build.toml, and no .git of its own: it was taken for an earlier export."""
    root = tmp_path / "root"
    relu = SmallProject(root / "relu", "relu").write().root
    SmallProject(root / "other", "other").write()
    if form == "marked":
        assert cli("export", "relu", tmp_path / "done", "--project", root).code == 0
        shutil.copy(tmp_path / "done/build.toml", relu / "build.toml")
    (tmp_path / "link").symlink_to(root)
    where = {"root": root, "parent": tmp_path, "link": tmp_path / "link/relu"}.get(form, relu)
    before = files_of(root)
    for options in ((), ("--force",)):
        ran = cli("export", "relu", where, "--project", root, *options)
        assert ran.code == 2
        assert f"{where} has the sources in it: {root}" in ran.err
        assert files_of(root) == before


def test_a_project_of_that_name_that_is_no_export_is_not_replaced(cli: Cli, tmp_path: Path) -> None:
    mine = SmallProject(tmp_path / "mine", "relu").write().root
    copy = SmallProject(tmp_path / "copy", "relu").write().root
    ran = cli("export", "relu", copy, "--project", mine, "--force")
    assert ran.code == 2
    assert "is no earlier export of relu" in ran.err
    assert files_of(copy) == files_of(mine)


def test_a_source_that_does_not_exist_is_named_with_its_place(workspace: Path, cli: Cli) -> None:
    """That of another backend too, which no build here looks at."""
    (workspace / "csrc/plus/plus.cu").rename(workspace / "csrc/plus/plsu.cu")
    ran = cli("export", "two-plus", workspace.parent / "done", "--project", workspace)
    assert ran.code == 2
    assert "source file does not exist: csrc/plus/plus.cu" in ran.err
    assert "two-plus.kernel.cuda.src[0]" in ran.err
    assert "did you mean csrc/plus/plsu.cu?" in ran.err


def test_sources_for_other_machines_are_copied_with_a_note(cli: Cli, tmp_path: Path) -> None:
    """Sources of the binding alone, in no section: nothing used to be said."""
    root = SmallProject(tmp_path / "mine", "relu").write().root
    text = (root / "build.toml").read_text().partition("[kernel.cpu]")[0]
    (root / "build.toml").write_text(text.replace('"cpu"', '"metal"'))
    ran = cli("export", "relu", tmp_path / "done", "--project", root)
    assert ran.code == 0, ran.err
    assert "no compiler has looked at the copy" in ran.err


def test_a_folder_stands_for_its_only_package(cli: Cli, tmp_path: Path) -> None:
    root = SmallProject(tmp_path / "one/relu", "relu").write().root
    ran = cli("export", root, tmp_path / "done")
    assert ran.code == 0, ran.err
    SmallProject(tmp_path / "one/other", "other").write()
    ran = cli("export", tmp_path / "one", tmp_path / "two")
    assert ran.code == 2
    assert "an export is for one package; there are other, relu" in ran.err


def test_a_header_outside_the_project_is_refused_and_nothing_is_left(workspace: Path, cli: Cli) -> None:
    (workspace.parent / "outside.h").write_text("")
    with (workspace / "cpu/plus/plus.h").open("a") as header:
        header.write('#include "../../../outside.h"\n')
    before = sorted(workspace.parent.iterdir())
    ran = cli("export", "two-plus", workspace.parent / "done", "--project", workspace)
    assert ran.code == 2
    assert "reads a file outside the project: ../outside.h" in ran.err
    assert sorted(workspace.parent.iterdir()) == before


def test_a_copy_that_would_read_another_header_is_refused(workspace: Path, cli: Cli) -> None:
    """Its name is a macro's, so it cannot be rewritten; the compiler says that it is not found any more."""
    (workspace / "cpu/plus/avx2.cpp").write_text('#define P "plus/plus.h"\n#include P\nint64_t fast() { return 40; }\n')
    ran = cli("export", "two-plus", workspace.parent / "done", "--project", workspace)
    assert ran.code == 2
    assert "plus/plus.h" in ran.err
    assert not (workspace.parent / "done").exists()


def test_a_project_in_upstreams_form_keeps_its_paths_and_its_text(cli: Cli, tmp_path: Path) -> None:
    assert cli("init", tmp_path / "relu", "--name", "org/relu-two").code == 0
    ran = cli("export", "relu-two", tmp_path / "done", "--project", tmp_path / "relu")
    assert ran.code == 0, ran.err
    assert "there is no licence file" in ran.err
    mark = b"# Written by `kernel-builder export`: relu-two\n"
    for path in files_of(tmp_path / "done"):
        text = (tmp_path / "done" / path).read_bytes()
        assert text == (mark if path == "build.toml" else b"") + (tmp_path / "relu" / path).read_bytes()
    assert cli("export", "relu-two", tmp_path / "again", "--project", tmp_path / "done").code == 0
    assert (tmp_path / "again/build.toml").read_bytes() == (tmp_path / "done/build.toml").read_bytes()
    tests = {"tests/conftest.py", "tests/test_relu_two.py", "benchmarks/benchmark.py"}
    assert {"build.toml", "CARD.md", "relu_two_cpu/cpu_features.hpp", *tests} <= files_of(tmp_path / "done")


def test_an_older_edition_is_sent_to_update_build(small_edition_4: Path, cli: Cli, tmp_path: Path) -> None:
    ran = cli("export", "my-kernel", tmp_path / "done", "--project", small_edition_4)
    assert ran.code == 2
    assert "update-build" in ran.err


@pytest.fixture
def small_edition_4(tmp_path: Path) -> Path:
    root = SmallProject(tmp_path / "old", "my-kernel").write().root
    text = (root / "build.toml").read_text().replace("edition = 5\n", "")
    (root / "build.toml").write_text(text)
    return root


def test_sources_keep_their_paths_where_two_would_share_one(workspace: Path) -> None:
    (package,) = load_project(workspace).packages
    clashing = ("cpu/plus/dispatch.cpp", "cpu/plus/cpu.cpp", "torch-ext/two_plus/two_plus/__init__.py")
    assert list(field_paths(clashing, package).values()) == [*clashing[:2], "torch-ext/two_plus/__init__.py"]


def test_our_own_package_exports_and_the_clients_parser_reads_it(cli: Cli, tmp_path: Path) -> None:
    client = pytest.importorskip("kernels._rust")
    ran = cli("export", "rms_norm", tmp_path / "done", "--project", REPOSITORY)
    assert ran.code == 0, ran.err
    assert [str(backend) for backend in client.Build.open(str(tmp_path / "done")).general.backends] == ["cpu", "cuda"]
    (package,) = load_project(tmp_path / "done").packages
    flags = {section.name: section.cxx_flags for section in package.sections}
    assert flags["cpu_avx512_bf16"] == (*ISAS["avx512-bf16"].flags, "-ffp-contract=off")
    assert {"rms_norm_cpu/rms_norm_cpu.cpp", "rms_norm_cpu/rms_norm_avx2.cpp"} <= files_of(tmp_path / "done")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "export needs a folder"),
        (("done", "--variant", "torch-cpu"), "with --wheel only"),
        (("done", "--output", "there"), "with --wheel only"),
        (("done", "--wheel"), "takes no DEST"),
        (("--wheel", "--force"), "takes no DEST"),
    ],
)
def test_options_of_the_other_form_are_refused(workspace: Path, cli: Cli, words: tuple[str, ...], said: str) -> None:
    ran = cli("export", "two-plus", *words, "--project", workspace)
    assert ran.code == 2
    assert said in ran.err
    assert not Path("done").exists()
