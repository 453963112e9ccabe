"""Artifacts in the stock client: loading, several builds in one process, the client's own parser as oracle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hubkernels.check.load import check_load
from hubkernels.errors import CheckFailedError
from hubkernels.model.digest import digest_folder
from tests.conftest import Cli, SmallProject

pytest.importorskip("kernels", reason="the stock client is not installed")
pytest.importorskip("torch", reason="builds take the headers of an installed torch")

PROBE = """\
import json, sys
from pathlib import Path
import kernels
found = []
for folder in sys.argv[1:]:
    kernel = kernels.get_local_kernel(Path(folder))
    found.append([kernel.answer(), kernel.answer(), kernel.layers.WHOSE])
print(json.dumps(found))
"""


def answers(*folders: Path) -> list[list[int]]:
    """Load each folder in one fresh process; two answers of each (the op counts its calls), and its layers' mark."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *map(str, folders)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "DISABLE_TELEMETRY": "1"},
    )
    found: list[list[int]] = json.loads(done.stdout)
    return found


def test_the_client_loads_what_we_build(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    assert answers(small.root / "build/my-kernel") == [[42, 43, 42]]


def test_check_load_names_the_ops(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    ran = cli("check", "load", "--project", small.root)
    assert ran.code == 0, ran.err
    assert f"{small.op_id}: answer" in ran.out
    loaded = check_load(small.artifact)
    assert (loaded.op_id, loaded.ops) == (small.op_id, ("answer",))


def test_check_load_names_ops_that_cannot_be_called(small: SmallProject, cli: Cli) -> None:
    """A schema whose source is not in src, and a kernel whose schema was forgotten, load as well as any."""
    binding = small.root / "torch-ext/binding.cpp"
    text = binding.read_text().replace(
        'm.def("answer() -> int");', 'm.def("answer() -> int"); m.def("a_schema() -> int");'
    )
    impl = 'm.impl("answer", TORCH_BOX(&answer));'
    binding.write_text(text.replace(impl, f"{impl}\n  {impl.replace('answer', 'a_kernel', 1)}"))
    cli("build", "--project", small.root)
    ran = cli("check", "load", "--project", small.root)
    assert ran.code == 0
    assert f"{small.op_id}: answer  " in ran.out
    assert "a_schema has a schema and no kernel for cpu" in ran.err
    assert "a_kernel has a kernel and no schema" in ran.err


def test_check_load_fails_with_the_clients_own_error(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    (small.artifact / f"{small.op_id}.abi3.so").write_bytes(b"not a library")
    with pytest.raises(CheckFailedError, match="file too short|invalid ELF header"):
        check_load(small.artifact)


def test_a_library_that_lacks_a_definition_says_so_first(small: SmallProject, cli: Cli) -> None:
    """A build refuses to make one; an artifact may come from elsewhere."""
    cli("build", "--project", small.root)
    source, library = small.root / "lacking.cpp", small.artifact / f"{small.op_id}.abi3.so"
    source.write_text('int answer();\nextern "C" int call() { return answer(); }\n')
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    ran = cli("check", "load", "--project", small.root)
    assert ran.code == 1
    assert "is out of date: it was changed after it was built" in ran.err
    first = next(line for line in ran.err.splitlines() if line.startswith("error: "))
    assert first.startswith("error: load: ImportError: ")
    assert "undefined symbol: _Z6answerv" in first
    assert "hint: is the file that defines it under src?" in ran.err


def test_two_builds_and_two_versions_in_one_process_keep_their_own_code(tmp_path: Path, cli: Cli) -> None:
    """The client keys modules by id: with one id for two contents, the second would get the first one's submodules."""
    projects = []
    for folder, answer, version in (("one", 100, 1), ("two", 200, 1), ("three", 100, 2)):
        project = SmallProject(tmp_path / folder, "my-kernel").write(answer, version)
        assert cli("build", "--project", project.root).code == 0
        projects.append(project)
    assert len({project.op_id for project in projects}) == 3
    folders = [project.root / "build/my-kernel" for project in projects]
    assert answers(*folders) == [[100, 101, 100], [200, 201, 200], [100, 101, 100]]


def test_the_clients_parser_reads_our_metadata_and_agrees_on_the_digest(small: SmallProject, cli: Cli) -> None:
    rust = pytest.importorskip("kernels._rust")
    cli("build", "--project", small.root)
    metadata = rust.Metadata.read_from_file(small.artifact / "metadata.json")
    assert (metadata.id, str(metadata.name), metadata.version) == (small.op_id, "my-kernel", 1)
    theirs = rust.Digest.hash_variant(rust.DigestAlgorithm.SHA256, small.artifact)
    theirs.validate(metadata.digest)
    assert dict(theirs.files) == digest_folder(small.artifact)


FULL_ABI = """\
#include <torch/library.h>

#include "registration.h"

static at::Tensor twice(const at::Tensor& x) { return x.add(x); }

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("twice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) { m.impl("twice", &twice); }

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


def test_a_binding_of_the_full_cpp_abi_builds_and_runs(small: SmallProject, cli: Cli) -> None:
    text = (small.root / "build.toml").read_text().replace('stable-abi = "2.10"\n', "")
    (small.root / "build.toml").write_text(text)
    (small.root / "torch-ext/binding.cpp").write_text(FULL_ABI)
    package = small.root / "torch-ext/my_kernel"
    (package / "__init__.py").write_text("from ._ops import ops\n\n\ndef twice(x):\n    return ops.twice(x)\n")
    (package / "layers.py").unlink()
    ran = cli("build", "--project", small.root)
    assert ran.code == 0, ran.err
    code = (
        "import kernels, pathlib, sys, torch; k = kernels.get_local_kernel(pathlib.Path(sys.argv[1]));"
        "print(k.twice(torch.ones(2)).tolist())"
    )
    folder = str(small.root / "build/my-kernel")
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[2.0, 2.0]"
