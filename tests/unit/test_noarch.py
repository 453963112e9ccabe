"""Packages of Python files alone: built without a compiler and without torch, for every backend that they name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hubkernels.build.pipeline import Builder
from hubkernels.build.settings import Settings
from hubkernels.build.sources import shipped_python
from hubkernels.check.runnable import why_not_loaded
from hubkernels.config import load_project
from hubkernels.host.machine import Machine, TorchSdk, torch_backend
from hubkernels.model.backend import BACKENDS
from hubkernels.model.variant import NoarchVariant, Platform, Variant
from hubkernels.model.version import Version
from tests.conftest import Cli, SmallProject, environment, write_noarch

SHIPPED = {"__init__.py", "_ops.py", "data/table.bin", "op.py"}


def artifacts(root: Path, name: str) -> dict[str, Path]:
    return {path.name: path for path in (root / "build" / name).glob("torch-*") if path.is_dir()}


def metadata(folder: Path) -> dict[str, object]:
    found = json.loads((folder / "metadata.json").read_bytes())
    assert isinstance(found, dict)
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_noarch(tmp_path, "my-table")


def test_each_declared_backend_has_an_artifact_with_the_data_files(project: Path, cli: Cli) -> None:
    ran = cli("build", "-C", project)
    assert ran.code == 0, ran.err
    made = artifacts(project, "my-table")
    assert set(made) == {"torch-cpu", "torch-cuda"}
    for folder in made.values():
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert found == SHIPPED | {"metadata.json"}
        assert (folder / "data/table.bin").read_bytes() == bytes(range(256))
    assert cli("check", "builds", "-C", project).code == 0


def test_no_compiler_and_no_torch_are_needed(project: Path) -> None:
    blocked = """
import importlib.abc, sys
class NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, NoTorch())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else find_spec(name, package)
from hubkernels.cli import main
sys.exit(main(["build", "-C", sys.argv[1]]))
"""
    done = subprocess.run(
        [sys.executable, "-c", blocked, str(project)],
        env=environment(PATH="", CXX=""),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(artifacts(project, "my-table")) == 2


def test_the_id_is_of_the_content_and_of_the_backend(project: Path, cli: Cli) -> None:
    def ids() -> list[object]:
        assert cli("build", "-C", project).code == 0
        return [metadata(folder)["id"] for _, folder in sorted(artifacts(project, "my-table").items())]

    first = ids()
    assert [str(op_id).rpartition("_")[0] for op_id in first] == ["_my_table_cpu", "_my_table_cuda"]
    assert ids() == first
    (project / "torch-ext/my_table/data/table.bin").write_bytes(b"\xff\x00")
    second = ids()
    assert not set(first) & set(second)
    (project / "torch-ext/my_table/data/notes.md").write_text("still not shipped\n")
    assert ids() == second


def test_nothing_is_built_again_without_a_change(project: Path, cli: Cli) -> None:
    assert [item["built"] for item in json.loads(cli("build", "-C", project, "--json").out)] == [True, True]
    assert [item["built"] for item in json.loads(cli("build", "-C", project, "--json").out)] == [False, False]
    (project / "build/my-table/torch-cuda/op.py").write_text("spoiled")
    again = {item["variant"]: item["built"] for item in json.loads(cli("build", "-C", project, "--json").out)}
    assert again == {"torch-cpu": False, "torch-cuda": True}


def test_the_metadata_has_the_declared_devices_sorted_and_once(tmp_path: Path, cli: Cli) -> None:
    more = 'cuda_capabilities = ["9.0", "8.0", "9.0"]\nrocm_archs = ["gfx942", "gfx90a"]'
    write_noarch(tmp_path, "my-table", ("cpu", "cuda", "rocm"), more)
    assert cli("build", "-C", tmp_path).code == 0
    backends = {name: metadata(folder)["backend"] for name, folder in artifacts(tmp_path, "my-table").items()}
    assert backends == {
        "torch-cpu": {"type": "cpu"},
        "torch-cuda": {"type": "cuda", "archs": ["8.0", "9.0"]},
        "torch-rocm": {"type": "rocm", "archs": ["gfx90a", "gfx942"]},
    }
    assert cli("check", "builds", "-C", tmp_path).code == 0


def test_the_metadata_of_every_backend_is_read_by_the_client(tmp_path: Path, cli: Cli) -> None:
    rust = pytest.importorskip("kernels._rust", reason="the stock client is not installed")
    variants = pytest.importorskip("kernels.variants")
    write_noarch(tmp_path, "my-table", tuple(BACKENDS), top='[general.neuron]\npython-depends = ["nki"]\n')
    assert cli("build", "-C", tmp_path).code == 0
    made = artifacts(tmp_path, "my-table")
    assert len(made) == len(BACKENDS)
    for name, folder in made.items():
        read = rust.Metadata.read_from_file(folder / "metadata.json")
        assert read.id == metadata(folder)["id"]
        assert isinstance(variants.parse_variant(name), variants.NoarchVariant)
        assert read.python_depends == (["nki"] if name == "torch-neuron" else [])
    assert cli("check", "builds", "-C", tmp_path).code == 0


def test_plan_and_explain_tell_of_files_and_no_toolchain(project: Path, cli: Cli) -> None:
    ran = cli("plan", "-C", project, "--variant", "torch-cpu")
    (plan,) = json.loads(ran.out)
    assert plan["steps"] == []
    assert set(plan["files"]) == SHIPPED
    (told,) = json.loads(cli("explain", "-C", project, "--json").out)
    assert told["toolchain"] == {}
    assert [target["state"] for target in told["targets"]] == ["not built yet", "not built yet"]
    assert told["rejected"]["torch-npu"] == ["general.backends does not name cann"]
    cli("build", "-C", project)
    assert "torch-cuda: up to date" in cli("explain", "-C", project).out


def test_clean_takes_them_away(project: Path, cli: Cli) -> None:
    cli("build", "-C", project)
    assert cli("clean", "-C", project).code == 0
    assert not artifacts(project, "my-table")


def test_data_files_ship_with_compiled_packages_too(small: SmallProject) -> None:
    folder = small.root / "torch-ext/my_kernel"
    for name in ("a.bin", "b.tar.gz", "c.gz", ".bin", "d.md"):
        (folder / name).touch()
    text = (small.root / "build.toml").read_text().replace("[torch]", '[torch]\npyext = ["bin", "tar.gz"]')
    (small.root / "build.toml").write_text(text)
    (package,) = load_project(small.root).packages
    assert [name for name, _ in shipped_python(package)] == ["__init__.py", "a.bin", "b.tar.gz", "layers.py"]


def test_the_python_package_must_be_there(project: Path, cli: Cli) -> None:
    (project / "torch-ext/my_table/__init__.py").unlink()
    ran = cli("build", "-C", project)
    assert ran.code == 2
    assert "torch-ext/my_table/__init__.py does not exist" in ran.err


def test_a_package_of_the_workspace_form_may_be_of_python_alone(tmp_path: Path, cli: Cli) -> None:
    write_noarch(tmp_path / "from", "my-table")
    (tmp_path / "torch-ext/my_table").mkdir(parents=True)
    (tmp_path / "from/torch-ext/my_table").rename(tmp_path / "torch-ext/my_table/my_table")
    text = (
        '[workspace]\nschema = 1\n[package.my-table.torch-noarch]\npyext = ["bin"]\n'
        '[package.my-table.general]\nversion = 1\nlicense = "MIT"\nbackends = ["cpu"]\n'
    )
    (tmp_path / "build.toml").write_text(text)
    ran = cli("build", "-C", tmp_path)
    assert ran.code == 0, ran.err
    assert set(artifacts(tmp_path, "my-table")) == {"torch-cpu"}


@pytest.mark.parametrize(
    ("line", "system", "backend"),
    [
        ("cuda: Optional[str] = None", "linux", "cpu"),
        ("cuda: Optional[str] = '13.0'", "linux", "cuda"),
        ("cuda = '12.6'", "linux", "cuda"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '7.1.25424'", "linux", "rocm"),
        ("xpu: Optional[str] = '20250301'", "linux", "xpu"),
        ("cuda: Optional[str] = None", "darwin", "metal"),
    ],
)
def test_the_backend_of_an_installed_torch_is_read_from_its_version_file(line: str, system: str, backend: str) -> None:
    assert torch_backend(f"__version__ = '2.13.0'\n{line}\n", system) == backend


def test_this_torch_is_told_as_it_tells_itself(project: Path) -> None:
    torch = pytest.importorskip("torch", reason="no torch is installed")
    found = Builder(load_project(project), os.environ, Settings(jobs=1)).machine.torch
    assert found is not None
    assert (found.backend == "cuda") == (torch.version.cuda is not None)


def test_python_alone_is_loaded_where_torch_has_its_backend_and_cpu_everywhere() -> None:
    machine = Machine(Platform("x86_64", "linux"), TorchSdk("2.13.0+cu130", Path("torch"), "cuda"))
    reasons = {name: why_not_loaded(NoarchVariant(backend), machine) for name, backend in BACKENDS.items()}
    assert [name for name, why in reasons.items() if why is None] == ["cpu", "cuda"]
    assert reasons["rocm"] == "needs a torch for rocm; 2.13.0+cu130 is for cuda"
    cuda = Variant(Version((2, 10)), BACKENDS["cuda"], machine.platform, Version((13, 0)), stable_abi=True)
    assert why_not_loaded(cuda, machine) is None
    on_cpu = Machine(machine.platform, TorchSdk("2.13.0+cpu", Path("torch")))
    assert why_not_loaded(cuda, on_cpu) == "needs a torch for cuda; 2.13.0+cpu is for cpu"
    without = Machine(machine.platform, None)
    assert why_not_loaded(NoarchVariant(BACKENDS["cpu"]), without) == "torch is not installed"


def test_what_cannot_ship_under_its_name_is_refused(project: Path, cli: Cli) -> None:
    (package,) = (path.parent for path in project.glob("torch-ext/*/__init__.py"))
    (project / "shared").mkdir()
    (project / "shared/table.py").touch()
    for name, make, what in (
        ("linked", lambda path: path.symlink_to(project / "shared"), "linked is a link to a folder, whose files would"),
        ("gone.py", lambda path: path.symlink_to("nowhere"), "gone.py is a link that leads to no file: nowhere"),
        ("pipe.py", os.mkfifo, "pipe.py is a pipe, a socket or a device, and no file"),
        ("metadata.json", lambda path: write(path / "a.py"), "a folder has the name of a file that the builder writes"),
    ):
        make(package / name)
        ran = cli("build", "-C", project)
        assert ran.code == 2
        assert what in ran.err
        (package / name).rename(project / f"{name}.away")
    (package / ".hidden").symlink_to(project / "shared")
    (package / "one.py").symlink_to(project / "shared/table.py")
    assert cli("build", "-C", project).code == 0


def test_a_link_out_of_the_project_does_not_ship(
    project: Path, cli: Cli, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A link in a pull request used to put any file of the machine that builds it into the artifact."""
    elsewhere = tmp_path_factory.mktemp("home") / "token"
    elsewhere.write_text("secret", encoding="utf-8")
    (project / ".git").mkdir()
    (project / ".git/config").write_text("secret", encoding="utf-8")
    link = project / "torch-ext/my_table/env.py"
    for target, why in (
        (elsewhere, "env.py is a link out of the project"),
        (Path("/proc/self/environ"), "env.py is a link out of the project"),
        (Path("../../.git/config"), "env.py is a link to what is hidden"),
    ):
        link.symlink_to(target)
        for verb in (("build",), ("check", "config")):
            ran = cli(*verb, "-C", project)
            assert ran.code == 2, ran.err
            assert why in ran.err
            assert "hint: put the file itself there" in ran.err
        link.unlink()
    assert not (project / "build/my-table").exists()


def test_members_share_files_of_their_checkout_or_of_the_project_above_them(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "repo/shared").mkdir(parents=True)
    (tmp_path / "repo/shared/table.py").write_text("ROWS = 1\n", encoding="utf-8")
    root = write_noarch(tmp_path / "repo/aa", "aa-kernel")
    (root / "torch-ext/aa_kernel/table.py").symlink_to("../../../shared/table.py")
    assert "is a link out of the project" in cli("build", "-C", root).err
    (tmp_path / "repo/build.toml").write_text('[workspace]\nschema = 1\nmembers = ["aa"]\n', encoding="utf-8")
    assert cli("build", "-C", root).code == 0
    (tmp_path / "repo/build.toml").rename(tmp_path / "repo/.git")  # of a worktree it is a file
    assert cli("build", "-C", root).code == 0
    assert (root / "build/aa-kernel/torch-cpu/table.py").read_text() == "ROWS = 1\n"


def write(path: Path) -> None:
    path.parent.mkdir()
    path.touch()


def devices(root: Path) -> dict[str, object]:
    """backend.archs of each artifact."""
    found = (json.loads(path.read_bytes()) for path in root.glob("build/*/*/metadata.json"))
    return {data["backend"]["type"]: data["backend"].get("archs") for data in found}


def test_devices_that_no_release_compiles_for_are_left_out_of_the_metadata(tmp_path: Path, cli: Cli) -> None:
    more = 'cuda_capabilities = ["3.5", "7.0", "9.0"]\nrocm_archs = ["gfx940", "gfx942"]'
    root = write_noarch(tmp_path, "ab", ("cuda", "rocm"), more)
    assert cli("build", "-C", root).code == 0
    assert devices(root) == {"cuda": ["7.0", "9.0"], "rocm": ["gfx942"]}
    assert json.loads(cli("list-variants", "-C", root, "--json").out)["ab"]["left-out"] == [
        "torch-noarch.cuda_capabilities: left out: 3.5 (removed in CUDA 12.0); 7.0, 9.0 stay",
        "torch-noarch.cuda_capabilities, CUDA 13.0, 13.2: does not run on 7.0 (removed in CUDA 13.0)",
        "torch-noarch.rocm_archs: left out: gfx940 (removed in ROCm 7.0); gfx942 stays",
    ]


def test_a_variant_without_any_device_left_is_rejected(tmp_path: Path, cli: Cli) -> None:
    root = write_noarch(tmp_path, "ab", ("cuda", "rocm"), 'rocm_archs = ["gfx940"]')
    ran = cli("build", "-C", root)
    assert (ran.code, devices(root)) == (0, {"cuda": None})
    found = json.loads(cli("list-variants", "-C", root, "--json").out)["ab"]
    why = "torch-noarch.rocm_archs: nothing is left: gfx940 (removed in ROCm 7.0)"
    assert (found["accepted"], found["rejected"]["torch-rocm"]) == (["torch-cuda"], [why])
    ran = cli("build", "-C", root, "--variant", "torch-rocm")
    assert ran.code == 2
    assert why in ran.err


def test_a_device_that_never_was_is_an_error(tmp_path: Path, cli: Cli) -> None:
    root = write_noarch(tmp_path, "ab", ("cuda",), 'cuda_capabilities = ["99999.0"]')
    ran = cli("build", "-C", root)
    assert ran.code == 2
    assert "there is no CUDA capability 99999.0" in ran.err


def test_the_notes_are_told_of_one_variant_too(tmp_path: Path, cli: Cli) -> None:
    root = write_noarch(tmp_path, "ab", ("cuda", "rocm"), 'rocm_archs = ["gfx940", "gfx942"]')
    (explained,) = json.loads(cli("explain", "-C", root, "--variant", "torch-rocm", "--json").out)
    assert explained["left-out"] == ["torch-noarch.rocm_archs: left out: gfx940 (removed in ROCm 7.0); gfx942 stays"]


@pytest.mark.parametrize(
    ("was", "now"), [('"version": 1', '"version": true'), ("{\n", "{\n\n"), ("{\n", '{\n  "name": "other",\n')]
)
def test_metadata_that_say_the_same_in_other_bytes_are_made_anew(project: Path, cli: Cli, was: str, now: str) -> None:
    """To Python, True is 1, and of two keys the last one counts."""
    assert cli("build", "-C", project).code == 0
    path = project / "build/my-table/torch-cpu/metadata.json"
    right = path.read_text(encoding="utf-8")
    assert was in right
    path.write_text(right.replace(was, now, 1), encoding="utf-8")
    assert cli("build", "-C", project).out.startswith("built ")
    assert path.read_text(encoding="utf-8") == right
