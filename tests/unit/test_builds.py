"""What the client will demand of an artifact: a sound one passes, and each way of spoiling it is found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hubkernels.check.builds import COMPILED, NOARCH, check_artifact, check_builds
from hubkernels.check.loaded import loaded_variant
from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.model.client import PYTHON_DEPENDS
from hubkernels.model.digest import digest_folder
from tests.conftest import Cli

TAG = "torch-stable-abi210-cpu-x86_64-linux"
OP_ID = "_my_kernel_cpu_abc123"
METADATA: dict[str, Any] = {
    "name": "my-kernel",
    "id": OP_ID,
    "version": 1,
    "license": "MIT",
    "python-depends": [],
    "kernel-depends": [],
    "backend": {"type": "cpu"},
}
LAYER = "from torch import nn\nclass Norm(nn.Module):\n"
FILES = {
    "__init__.py": "from . import layers\nfrom ._ops import ops\n",
    "_ops.py": f"from . import {OP_ID}\n",
    "layers.py": LAYER + "    has_backward = True\n\n    def forward(self, x):\n        return x\n",
    f"{OP_ID}.abi3.so": "library",
}


def seal(folder: Path, metadata: dict[str, Any]) -> None:
    sealed = metadata | {"digest": {"algorithm": "sha256", "files": digest_folder(folder)}}
    (folder / "metadata.json").write_text(json.dumps(sealed))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    variant = tmp_path / "my-kernel" / TAG
    variant.mkdir(parents=True)
    for name, text in FILES.items():
        (variant / name).write_text(text)
    seal(variant, METADATA)
    return variant.parent


def found(package: Path) -> list[str]:
    return [f"{violation.place}: {violation.what}" for violation in check_builds(package)]


def test_a_sound_artifact_has_no_violation(package: Path) -> None:
    assert found(package) == []


def changed(**fields: object) -> Callable[[Path], None]:
    """Change fields of the metadata; None removes one."""

    def spoil(variant: Path) -> None:
        named = {key.replace("_", "-"): value for key, value in fields.items()}
        kept = {key: value for key, value in (METADATA | named).items() if value is not None}
        seal(variant, kept)

    return spoil


def written(name: str, text: str) -> Callable[[Path], None]:
    """Write a file and seal the folder again, so that only the file's content is wrong."""

    def spoil(variant: Path) -> None:
        (variant / name).write_text(text)
        seal(variant, METADATA)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "violation"),
    [
        (changed(name=None), "metadata.json: name is missing"),
        (changed(name=["a"]), "metadata.json: name must be a JSON string, found ['a']"),
        (changed(version="1"), "metadata.json: version must be a whole number from 0 on, found '1'"),
        (changed(version=-1), "metadata.json: version must be a whole number from 0 on, found -1"),
        (changed(license=""), "metadata.json: license is empty"),
        (changed(id="_my_kernel_cpu_abc_dirty"), "metadata.json: id '_my_kernel_cpu_abc_dirty' is not of the form"),
        (changed(id="my_kernel"), f"{OP_ID}.abi3.so: is not the library of this id"),
        (changed(python_depends=["numpy"]), "metadata.json: python-depends names 'numpy'"),
        (
            changed(kernel_depends=[{"repo-id": "a/b"}]),
            "metadata.json: kernel-depends entries have repo-id and exactly",
        ),
        (changed(backend={"type": "cuda"}), "metadata.json: backend.type is 'cuda' in a folder named for cpu"),
        (changed(backend={"type": "gpu"}), "metadata.json: backend.type 'gpu' is unknown to the client"),
        (changed(backend={"type": "cpu", "archs": ["b", "a"]}), "metadata.json: backend.archs must be sorted"),
        (changed(upstream="example"), "metadata.json: upstream is not a git URL"),
        (changed(kernels_minver="0.17"), "metadata.json: kernels-minver must have three parts"),
        (changed(backend={"type": ["cpu"]}), "metadata.json: backend.type ['cpu'] is unknown to the client"),
        (changed(python_depends=[{}]), "metadata.json: python-depends names {}"),
        (changed(provenance={"kernel-builder": {}}), "metadata.json: provenance.kernel-builder.version must be a JSON"),
        (
            changed(provenance={"kernel-builder": {"version": "1", "commit": "abc", "dirty": False}}),
            "metadata.json: provenance.kernel-builder.commit must be a full hash",
        ),
        (written("a.py", "import my_kernel.b\n"), "a.py:1: imports my_kernel by name"),
        (written("a.py", "\nfrom my_kernel import b\n"), "a.py:2: imports my_kernel by name"),
        (written("a.py", "match x:\n    case 1: pass\n"), "a.py:2: does not parse as Python 3.9"),
        (written("a.py", "x = 1\0\n"), "a.py"),
        (written("a.py", "-" * 100_000 + "1"), "a.py"),
        (
            written("layers.py", LAYER + "    def __init__(self): ...\n"),
            "layers.py:3: layer Norm has a member __init__",
        ),
        (written("layers.py", LAYER + "    eps = 1e-6\n"), "layers.py:3: layer Norm has a member eps"),
        (written("layers.py", LAYER + "    eps: float = 1e-6\n"), "layers.py:3: layer Norm has a member eps"),
        (written("__init__.py", "from ._ops import ops\n"), "__init__.py: does not import layers"),
        (
            written("op.py", '@torch.library.custom_op("mine::op", mutates_args=())\ndef op(): ...\n'),
            "op.py:1: registers mine::op under a fixed name; spell it with _ops.add_op_namespace_prefix",
        ),
        (written("other.so", "x"), "other.so: is not the library of this id"),
        (lambda variant: (variant / "layers.py").write_text("x = 1\n"), "layers.py: differs from its hash"),
        (lambda variant: (variant / "new.py").write_text("x = 1\n"), "new.py: is in the folder, but not in the digest"),
        (lambda variant: (variant / "layers.py").unlink(), "layers.py: is in the digest, but not in the folder"),
        (lambda variant: (variant / "__init__.py").unlink(), "__init__.py: is missing: there is nothing to import"),
        (lambda variant: (variant / "metadata.json").write_text("{"), "metadata.json: is not JSON"),
        (lambda variant: (variant / "metadata.json").write_text("[]"), "metadata.json: is not a JSON object"),
        (
            lambda variant: (variant / "metadata.json").write_text(json.dumps(METADATA)),
            "metadata.json: digest is missing",
        ),
    ],
)
def test_a_spoiled_artifact_is_found(package: Path, spoil: Callable[[Path], object], violation: str) -> None:
    spoil(package / TAG)
    assert any(text.startswith(violation) for text in found(package)), found(package)


def test_a_module_that_is_only_called_layers_is_not_held_to_the_rules_of_kernelize(package: Path) -> None:
    """einops ships layers/ of its own, which it does not export."""
    variant = package / TAG
    written("__init__.py", "from ._ops import ops\n")(variant)
    written("layers.py", LAYER + "    def __init__(self): ...\n")(variant)
    assert found(package) == []


def renamed(package: Path, name: str) -> list[str]:
    (package / TAG).rename(package / name)
    return found(package)


@pytest.mark.parametrize(
    ("name", "violation"),
    [
        ("torch-stable-abi210-cpu-x86_64-linux-v2", "is no variant that the client can choose"),
        ("torch-npu", "metadata.json: backend.type is 'cpu' in a folder named for cann"),
        ("torch213-cxx11-cu1210-x86_64-linux", "has cu1210, which is read as CUDA 121.0"),
        ("torch-cpu", f"{OP_ID}.abi3.so: is a library in a variant without compiled code"),
    ],
)
def test_a_misleading_folder_name_is_found(package: Path, name: str, violation: str) -> None:
    assert any(violation in text for text in renamed(package, name))


def test_a_folder_that_the_client_does_not_see_is_found(package: Path) -> None:
    (package / "torch213-cxx11-cpu-x86_64-linux").mkdir()
    assert found(package) == ["metadata.json: is missing: the client does not see this folder"]


def test_a_folder_with_the_name_of_a_python_file_is_passed_over(package: Path) -> None:
    (package / TAG / "folder.py").mkdir()
    assert found(package) == []


def test_a_tie_that_the_client_breaks_by_chance_is_found(package: Path) -> None:
    shutil.copytree(package / TAG, package / "torch-cpu")
    shutil.copytree(package / TAG, package / "tvm-ffi01-cpu-x86_64-linux")
    assert any("the client picks by chance" in text for text in found(package))


def test_violations_of_all_variants_are_sorted_values(package: Path) -> None:
    shutil.copytree(package / TAG, package / "torch213-cxx11-cpu-x86_64-linux")
    for variant in package.iterdir():
        (variant / "layers.py").unlink()
        (variant / "new.py").write_text("")
    violations = check_builds(package)
    assert len(violations) == 4
    assert list(violations) == sorted(violations)


def test_nothing_built_is_said_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing is built in .*\n  hint: run `kernel-builder build`"):
        check_builds(tmp_path)


def test_the_verb_fails_with_every_violation(package: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "build.toml").write_text(
        '[general]\nname = "my-kernel"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n[torch]\n'
    )
    package.rename(tmp_path / "kept")
    (tmp_path / "build").mkdir()
    (tmp_path / "kept").rename(tmp_path / "build/my-kernel")
    assert cli("check", "builds", "--project", tmp_path).out.split() == ["ok", "builds", "my-kernel", TAG]
    (tmp_path / "build/my-kernel" / TAG / "layers.py").unlink()
    ran = cli("check", "builds", "--project", tmp_path)
    assert ran.code == 1
    assert f"error: layers.py: is in the digest, but not in the folder\n  --> {TAG}\n" in ran.err


def test_the_table_of_python_packages_is_the_installed_clients() -> None:
    client = pytest.importorskip("kernels", reason="the stock client is not installed")
    theirs = json.loads((Path(client.__file__).parent / "python_depends.json").read_text())
    tables = {"": theirs["general"], **theirs["backends"]}
    wanted = {
        backend: {name: (info["python"][0]["pkg"], info["python"][0].get("import")) for name, info in table.items()}
        for backend, table in tables.items()
        if table
    }
    assert wanted == PYTHON_DEPENDS


class Vanishing(type(Path())):  # type: ignore[misc]
    """Paths whose library is there when the folder is listed, and gone when it is read: a build replaces it."""

    def read_bytes(self) -> bytes:
        if self.suffix == ".so":
            self.unlink()
        content: bytes = super().read_bytes()
        return content


def test_a_file_that_a_build_takes_away_is_a_violation(package: Path) -> None:
    (violation,) = check_artifact(Vanishing(package / TAG))
    assert f"{OP_ID}.abi3.so was removed while it was checked" in violation.what


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="this system has no file that even root cannot read")
def test_a_file_that_cannot_be_read_is_the_machines(package: Path) -> None:
    (package / TAG / "data.bin").symlink_to("/proc/self/mem")
    with pytest.raises(EnvironmentLacksError, match="cannot read .*: Input/output error"):
        check_builds(package)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(package: Path) -> None:
    (package / TAG / "layers.py").chmod(0)
    with pytest.raises(EnvironmentLacksError, match="cannot read .*layers.py: Permission denied"):
        check_builds(package)


COMMIT = "a" * 40
BUILDER = {"version": "1"}


def spoiled(**fields: object) -> str:
    return json.dumps(METADATA | {key.replace("_", "-"): value for key, value in fields.items()})


def depends(**entry: object) -> str:
    return spoiled(kernel_depends=[{key.replace("_", "-"): value for key, value in entry.items()}])


def provenance(builder: object, **others: object) -> str:
    return spoiled(provenance={"kernel-builder": builder, **others})


WRONG_VALUES: tuple[object, ...] = (None, "", "1", -1, 1.5, 1 << 64, True, [], [{}], [1], {}, {"a": 1})
SPOILED = [
    "",
    "[]",
    "{",
    spoiled() + "x",
    "\ufeff" + spoiled(),
    spoiled()[:-1] + ', "name": "my-kernel"}',
    spoiled()[:-1] + ', "more": NaN}',
    spoiled(license="\ud800"),
    spoiled()[:-1] + ', "more": "\n"}',
    spoiled().replace('"version": 1', '"version": 1e0'),
    *(spoiled(**{key: value}) for key in (*METADATA, "upstream", "source", "kernels-minver") for value in WRONG_VALUES),
    *(spoiled(provenance=value) for value in WRONG_VALUES),
    *(spoiled(backend={"type": value}) for value in ("gpu", "CPU", "npu", *WRONG_VALUES)),
    *(spoiled(backend={"type": "cpu", "archs": value}) for value in WRONG_VALUES),
    *(spoiled(name=name) for name in ("a", "A-b", "my_kernel", "a-", "é")),
    *(spoiled(kernels_minver=text) for text in ("0.17", "1.2.3.4", "1.2.3-rc1", "\u0661.2.3", f"{1 << 64}.0.0")),
    *(
        spoiled(upstream=text)
        for text in (
            "example",
            "host:org/repo",
            "file:///a",
            "git+git://a/b",
            "https://",
            "https:// a",
            "https://a:99999/",
            "https://[::1",
            "https://1.2.3.400/",
            "https://%",
            "https://<a>/",
            "ssh://git@host:org/repo",
            "git@host",
            "git@host:",
            "git@host:/x",
            "git@ho st:x",
        )
    ),
    depends(repo_id="a/b"),
    depends(repo_id="a/b", version=1, revision=COMMIT),
    depends(repo_id="a/b", version=1, other=2),
    *(depends(repo_id="a/b", version=value) for value in WRONG_VALUES),
    *(depends(repo_id="a/b", revision=value) for value in WRONG_VALUES),
    *(depends(repo_id=value, version=1) for value in WRONG_VALUES),
    *(provenance(value) for value in WRONG_VALUES),
    *(provenance({"version": value}) for value in WRONG_VALUES),
    *(provenance({**BUILDER, "commit": value, "dirty": False}) for value in (*WRONG_VALUES, COMMIT[:7], "g" * 40)),
    *(provenance({**BUILDER, "commit": COMMIT, "dirty": value}) for value in (*WRONG_VALUES, "no")),
    provenance({**BUILDER, "commit": COMMIT}),
    provenance({**BUILDER, "dirty": False}),
    provenance({**BUILDER, "commit": COMMIT, "sha": COMMIT, "dirty": False}),
    *(provenance(BUILDER, kernel=value) for value in WRONG_VALUES),
    *(provenance(BUILDER, kernel={"commit": COMMIT, "dirty": value}) for value in WRONG_VALUES),
    *(provenance(BUILDER, kernel={"commit": value, "dirty": True}) for value in (*WRONG_VALUES, COMMIT[:7])),
    provenance(BUILDER, kernel={"commit": COMMIT}),
    provenance(BUILDER, kernel={"commit": COMMIT, "sha": COMMIT, "dirty": True}),
]


def test_whatever_the_clients_parser_refuses_is_a_violation(package: Path) -> None:
    parse = pytest.importorskip("kernels._rust", reason="the stock client is not installed").Metadata.from_bytes
    refused = 0
    for text in SPOILED:
        raw = text.encode(errors="surrogatepass")
        try:
            parse(raw)
        except ValueError:
            refused += 1
            (package / TAG / "metadata.json").write_bytes(raw)
            texts = [text for text in found(package) if text.startswith("metadata.json: ")]
            assert [text for text in texts if "digest is missing" not in text], raw
    assert refused > len(SPOILED) // 2


SOUND = [
    {},
    {"version": 0, "license": "x", "kernels-minver": "0.17.2"},
    {"python-depends": ["einops"], "backend": {"type": "cpu", "archs": ["a", "b"]}},
    {"kernel-depends": [{"repo-id": "a/b", "version": 1}, {"repo-id": "a/b", "revision": COMMIT}]},
    {"provenance": {"kernel-builder": BUILDER}},
    {
        "provenance": {
            "kernel-builder": {**BUILDER, "commit": COMMIT, "dirty": False},
            "kernel": {"commit": "b" * 64, "dirty": True},
        }
    },
    *(
        {"upstream": url, "source": url}
        for url in (
            "https://example.org/a",
            "http://example.org:8080/a.git",
            "git://example.org/a",
            "git+ssh://git@example.org/a",
            "git+https://example.org/a",
            "git@example.org:org/repo.git",
        )
    ),
]


@pytest.mark.parametrize("fields", SOUND)
def test_what_the_client_takes_is_no_violation(package: Path, fields: dict[str, Any]) -> None:
    seal(package / TAG, METADATA | fields)
    assert found(package) == []
    rust = pytest.importorskip("kernels._rust", reason="the stock client is not installed")
    rust.Metadata.read_from_file(package / TAG / "metadata.json")


VARIANT_NAMES = [
    f"{framework}-{backend}-{system}"
    for framework in (
        *("torch213", "torch213-cxx11", "torch29-cxx98", "torch2", "torch", "torch213-cxx12", "torch213-", "torch2.13"),
        *("torch-stable-abi210", "torch-stable-abi21", "torch-stable-abi2", "torch-stable-abi", "torch-abi210"),
        *("tvm-ffi01", "tvm-ffi010", "tvm-ffi0", "tvm-ffi", "tvm01", "jax01", "torch\u0662\u0663"),
    )
    for backend in (
        *("cpu", "cpu1", "cpus", "metal", "metal4", "neuron", "neuron12", "tpu", "tpu12", "npu", "gpu", "CPU", ""),
        *(f"{tag}{version}" for tag in ("cu", "rocm", "xpu", "cann") for version in ("", "7", "13", "130", "20260")),
        *("cuda130", "cu13.0", "cu\u0661\u0662"),
    )
    for system in ("x86_64-linux", "aarch64-darwin", "x86_64-windows", "x86_64", "x86_64-linux-v2", "x86_64-linux-")
]


def test_the_grammar_of_compiled_variants_is_the_clients() -> None:
    variants = pytest.importorskip("kernels.variants", reason="the stock client is not installed")

    def is_compiled(name: str) -> bool:
        try:
            return isinstance(variants.parse_variant(name), variants.ArchVariant)
        except ValueError:
            return False

    theirs = {name for name in VARIANT_NAMES if is_compiled(name)}
    assert theirs == {name for name in VARIANT_NAMES if COMPILED.fullmatch(name)}
    assert len(theirs) > 100


def test_noarch_names_are_those_that_some_backend_of_the_client_chooses() -> None:
    variants = pytest.importorskip("kernels.variants", reason="the stock client is not installed")
    backends = pytest.importorskip("kernels.backends", reason="the stock client is not installed")
    version = pytest.importorskip("packaging.version").Version("1.0")
    every = [
        *(getattr(backends, name)() for name in ("CPU", "Metal", "Neuron", "TPU")),
        *(getattr(backends, name)(version) for name in ("CUDA", "ROCm", "XPU", "CANN")),
    ]

    def is_chosen(name: str) -> bool:
        parsed = variants.parse_variant(name)
        return any(
            variants._resolve_variant_for_system([parsed], backend, "x86_64", "linux", version, None, None)[0]
            for backend in every
        )

    words = (*(backend.name for backend in every), "universal", "npu", "cu", "gpu", "cuda-x", "")
    names = [f"torch-{word}" for word in words]
    assert {name for name in names if is_chosen(name)} == {name for name in names if NOARCH.fullmatch(name)}


def test_a_kernel_of_the_hubs_cache_is_known_by_its_folder(tmp_path: Path) -> None:
    """Its files are links to blobs elsewhere: no package with cases could be loaded back."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs/1").write_text("", encoding="utf-8")
    folder = tmp_path / "snapshot/build/torch-cpu"
    folder.mkdir(parents=True)
    (folder / "__init__.py").symlink_to(tmp_path / "blobs/1")
    kernel = ModuleType("_kernel")
    kernel.__file__ = str(folder / "__init__.py")
    assert loaded_variant(kernel, folder.parent) == "torch-cpu"
