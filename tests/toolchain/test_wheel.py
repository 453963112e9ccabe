"""`kernel-builder export --wheel`: an artifact that pip installs where it runs, and nowhere else."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from packaging.tags import cpython_tags
from packaging.utils import parse_wheel_filename

from hubkernels.cli import main
from hubkernels.config import load_project
from hubkernels.errors import InputError
from hubkernels.export.wheel import plan_wheel, write_wheel
from hubkernels.host.machine import find_torch
from hubkernels.model.artifact import with_digest
from hubkernels.model.backend import CPU
from hubkernels.model.digest import METADATA, digest_folder
from hubkernels.model.variant import NoarchVariant, Platform, Variant
from hubkernels.model.version import Version
from tests.conftest import Cli, Ran, SmallProject, write_noarch

pytest.importorskip("torch", reason="builds take the headers of an installed torch")
HERE = Platform("x86_64", "linux")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    project = SmallProject(tmp_path_factory.mktemp("wheel"), "my-kernel").write()
    (project.root / "LICENSE").write_text("the terms")
    assert main(["build", "--project", str(project.root)]) == 0
    return project


@pytest.fixture
def built(original: SmallProject, tmp_path: Path) -> SmallProject:
    return SmallProject(shutil.copytree(original.root, tmp_path / "project"), original.name)


def wheel_of(ran: Ran) -> Path:
    assert ran.code == 0, ran.err
    return Path(ran.out.strip())


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode())


def pip(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    alone = {**own, "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=alone)


def install(wheel: Path, folder: Path) -> Path:
    """A fresh environment with the wheel and this one's torch; its interpreter."""
    venv.create(folder, with_pip=False)
    torch = find_torch()
    assert torch
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "torch.pth").write_text(str(torch.root.parent))
    done = pip("--python", folder / "bin/python", "install", "--no-compile", wheel)
    assert done.returncode == 0, done.stderr
    return folder / "bin/python"


def test_pip_installs_it_beside_a_torch_and_its_op_gives_the_right_number(
    built: SmallProject, cli: Cli, tmp_path: Path
) -> None:
    wheel = wheel_of(cli("export", "--wheel", "my_kernel", "-C", built.root, "-o", tmp_path / "wheels"))
    python = install(wheel, tmp_path / "environment")
    code = "import my_kernel as k; print(k.answer(), k.answer(), k.layers.WHOSE, k.__file__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith("42 43 42 ")
    assert str(tmp_path / "environment") in done.stdout


def test_its_names_tags_and_needs_are_true(built: SmallProject, cli: Cli, tmp_path: Path) -> None:
    wheel = wheel_of(cli("export", "--wheel", "my-kernel", "-C", built.root, "-o", tmp_path))
    assert wheel.name == "my_kernel-1+cpu-cp39-abi3-manylinux_2_28_x86_64.whl"
    metadata = metadata_of(wheel)
    assert (metadata["Name"], metadata["Version"]) == ("my-kernel", "1+cpu")
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert (metadata["Requires-Python"], metadata.get_all("Requires-Dist")) == (">=3.9", ["torch>=2.10"])
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("my_kernel-1+cpu.dist-info/licenses/LICENSE") == b"the terms"
        rows = list(csv.reader(io.StringIO(archive.read("my_kernel-1+cpu.dist-info/RECORD").decode())))
        assert [name for name, _, _ in rows] == archive.namelist()
        assert rows.pop() == ["my_kernel-1+cpu.dist-info/RECORD", "", ""]
        for name, digest, size in rows:
            content = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={expected}", str(len(content)))
        assert json.loads(archive.read("my_kernel/metadata.json"))["id"] == built.op_id


@pytest.mark.parametrize(
    ("target", "fits"),
    [
        (("--platform", "manylinux_2_28_x86_64", "--python-version", "3.9"), True),
        (("--platform", "manylinux_2_28_x86_64", "--python-version", "3.14"), True),
        (("--platform", "musllinux_1_2_x86_64", "--python-version", "3.13"), False),
        (("--platform", "manylinux_2_28_aarch64", "--python-version", "3.13"), False),
        (("--platform", "manylinux_2_17_x86_64", "--python-version", "3.13"), False),
        (("--platform", "macosx_15_0_arm64", "--python-version", "3.13"), False),
    ],
    ids=lambda value: " ".join(value[1::2]) if isinstance(value, tuple) else "",
)
def test_pip_takes_it_where_it_runs_and_refuses_it_elsewhere(
    built: SmallProject, cli: Cli, tmp_path: Path, target: tuple[str, ...], *, fits: bool
) -> None:
    wheel = wheel_of(cli("export", "--wheel", "my-kernel", "-C", built.root, "-o", tmp_path))
    where = ("--target", str(tmp_path / "there"), "--only-binary", ":all:", "--no-deps", *target)
    done = pip("install", "--no-compile", *where, wheel)
    assert (done.returncode == 0) is fits, done.stderr
    assert fits or "is not a supported wheel on this platform" in done.stderr


def test_a_python_without_the_gil_is_not_offered_it(built: SmallProject, cli: Cli, tmp_path: Path) -> None:
    wheel = wheel_of(cli("export", "--wheel", "my-kernel", "-C", built.root, "-o", tmp_path))
    (tag,) = parse_wheel_filename(wheel.name)[3]
    assert tag in set(cpython_tags((3, 13), ["cp313"], ["manylinux_2_28_x86_64"]))
    assert tag not in set(cpython_tags((3, 13), ["cp313t"], ["manylinux_2_28_x86_64"]))


def test_a_torch_that_is_too_old_is_not_enough(built: SmallProject, cli: Cli, tmp_path: Path) -> None:
    wheel = wheel_of(cli("export", "--wheel", "my-kernel", "-C", built.root, "-o", tmp_path))
    venv.create(tmp_path / "environment", with_pip=False)
    (packages,) = (tmp_path / "environment").glob("lib/python*/site-packages")
    (packages / "torch-2.9.0.dist-info").mkdir()
    (packages / "torch-2.9.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n")
    done = pip("--python", tmp_path / "environment/bin/python", "install", wheel)
    assert done.returncode != 0
    assert "No matching distribution found for torch>=2.10" in done.stderr


def test_the_same_artifact_gives_the_same_bytes_at_any_time(
    built: SmallProject, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = wheel_of(cli("export", "--wheel", "my-kernel", "-C", built.root, "-o", tmp_path / "one")).read_bytes()
    for path in built.artifact.iterdir():
        os.utime(path, (1, 1))
    again = wheel_of(cli("export", "--wheel", "my-kernel", "-C", built.root, "-o", tmp_path / "two"))
    assert again.read_bytes() == first
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    dated = wheel_of(cli("export", "--wheel", "my-kernel", "-C", built.root, "-o", tmp_path / "three"))
    with zipfile.ZipFile(dated) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "4354819201")
    late = cli("export", "--wheel", "my-kernel", "-C", built.root)
    assert late.code == 2
    assert "a wheel is a zip file, whose clock ends with 2107, before 4354819201" in late.err
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "4354819199")
    assert cli("export", "--wheel", "my-kernel", "-C", built.root, "-o", tmp_path / "last").code == 0
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "tomorrow")
    assert cli("export", "--wheel", "my-kernel", "-C", built.root).code == 2


def test_a_full_abi_build_wants_the_torch_that_it_was_built_for(built: SmallProject, tmp_path: Path) -> None:
    (package,) = load_project(built.root).packages
    torch = find_torch()
    assert torch
    variant = Variant(torch.version.minor, CPU, HERE)
    metadata = metadata_of(write_wheel(plan_wheel(package, variant, built.artifact, {}), tmp_path, None))
    assert metadata["Version"] == f"1+torch{torch.version.minor.digits}.cpu"
    assert metadata.get_all("Requires-Dist") == [f"torch=={torch.version.minor}.*"]


def test_python_files_alone_run_anywhere(built: SmallProject, tmp_path: Path) -> None:
    """An artifact without a library, under the name of a noarch variant."""
    folder = built.artifact.rename(built.artifact.with_name("torch-cpu"))
    (library,) = folder.glob("*.so")
    library.unlink()
    metadata = json.loads((folder / METADATA).read_text())
    (folder / METADATA).write_text(json.dumps(with_digest(metadata, digest_folder(folder))))
    (package,) = load_project(built.root).packages
    wheel = write_wheel(plan_wheel(package, NoarchVariant(CPU), folder, {}), tmp_path, None)
    assert wheel.name == "my_kernel-1+cpu-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        assert b"Root-Is-Purelib: true\n" in archive.read("my_kernel-1+cpu.dist-info/WHEEL")
    assert metadata_of(wheel).get_all("Requires-Dist") == ["torch"]


def test_a_library_that_breaks_the_promise_of_the_tag_gets_none(built: SmallProject, cli: Cli, tmp_path: Path) -> None:
    (library,) = built.artifact.glob("*.so")
    newer = tmp_path / "newer.c"
    newer.write_text("extern int __libc_single_threaded; int needs(void) { return __libc_single_threaded; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", newer, "-o", library], check=True)
    assert cli("hash", built.root).code == 0, "else the digest names another library, which is refused first"
    ran = cli("export", "--wheel", "my-kernel", "-C", built.root, "-o", tmp_path / "none")
    assert ran.code == 1
    assert "__libc_single_threaded needs GLIBC_2.32" in ran.err
    assert not (tmp_path / "none").exists()


def test_there_are_wheels_for_linux_alone(built: SmallProject) -> None:
    (package,) = load_project(built.root).packages
    variant = Variant(Version((2, 10)), CPU, Platform("aarch64", "darwin"), stable_abi=True)
    with pytest.raises(InputError, match="no wheel tag for aarch64-darwin"):
        plan_wheel(package, variant, built.artifact, {})


def test_what_is_not_built_is_named(built: SmallProject, cli: Cli) -> None:
    ran = cli("export", "--wheel", "my-kernel", "-C", built.root, "--variant", "torch-stable-abi210-cpu-x86_64-linus")
    assert ran.code == 2
    assert "did you mean torch-stable-abi210-cpu-x86_64-linux?" in ran.err
    built.artifact.rename(built.artifact.with_name("torch99-cxx11-cpu-x86_64-linux"))
    ran = cli("export", "--wheel", "my-kernel", "-C", built.root)
    assert ran.code == 2
    assert "is no variant of build.toml now" in ran.err


def test_a_kernel_that_loads_others_from_the_hub_is_refused(built: SmallProject, cli: Cli) -> None:
    text = (built.root / "build.toml").read_text()
    depends = 'kernel-depends = [{ repo-id = "org/other", version = 1 }]\n'
    (built.root / "build.toml").write_text(text.replace("[torch]", f"{depends}\n[torch]"))
    ran = cli("export", "--wheel", "my-kernel", "-C", built.root)
    assert ran.code == 2
    assert "loads kernels from the Hub" in ran.err
    assert "org/other" in ran.err


def test_the_folder_is_enough_where_it_has_one_package(
    built: SmallProject, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_folder = wheel_of(cli("export", "--wheel", built.root, "-o", tmp_path / "one"))
    monkeypatch.chdir(built.root)
    assert wheel_of(cli("export", "--wheel", "-o", tmp_path / "two")).read_bytes() == by_folder.read_bytes()


def test_a_neighbour_that_cannot_be_read_is_in_nobodys_way(built: SmallProject, cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "several"
    shutil.copytree(built.root, root / "good", ignore=shutil.ignore_patterns("build"))
    shutil.copytree(built.root / "build", root / "build")
    (root / "broken").mkdir()
    (root / "broken/build.toml").write_text("[general]\n")
    wheel_of(cli("export", "--wheel", "my-kernel", "-C", root, "-o", tmp_path))
    ran = cli("export", "--wheel", root, "-o", tmp_path / "none")
    assert ran.code == 2
    assert "broken/build.toml" in ran.err


def test_of_several_wheels_of_python_alone_one_is_named(tmp_path: Path, cli: Cli) -> None:
    write_noarch(tmp_path, "my-table", ("cpu", "xpu"))
    assert cli("build", tmp_path).code == 0
    ran = cli("export", "--wheel", tmp_path, "-o", tmp_path / "wheels")
    assert (ran.code, (tmp_path / "wheels").exists()) == (2, False)
    assert "pip cannot tell their wheels apart\n  hint: name the one to write: --variant torch-cpu" in ran.err
    assert cli("export", "--wheel", tmp_path, "-o", tmp_path / "wheels", "--variant", "torch-xpu").code == 0
    assert [path.name for path in (tmp_path / "wheels").iterdir()] == ["my_table-1+xpu-py3-none-any.whl"]


def test_a_wheel_of_an_artifact_that_is_out_of_date_comes_with_a_warning(tmp_path: Path, cli: Cli) -> None:
    write_noarch(tmp_path, "my-table", ("cpu",))
    assert cli("build", tmp_path).code == 0
    assert "warning" not in cli("export", "--wheel", tmp_path, "-o", tmp_path / "wheels").err
    (tmp_path / "torch-ext/my_table/op.py").write_text("import torch\n")
    ran = cli("export", "--wheel", tmp_path, "-o", tmp_path / "wheels")
    assert ran.code == 0
    assert "warning: my-table: torch-cpu is out of date: " in ran.err
