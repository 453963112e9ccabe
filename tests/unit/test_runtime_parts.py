"""Parts of the runtime that ask nobody: settings of the environment, metadata, and architectures."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, InputError
from hubkernels.runtime.cache import Cache
from hubkernels.runtime.metadata import (
    CONTRACT,
    BadMetadataError,
    _current_arch,
    _supports,
    check_digest,
    read_metadata,
)
from hubkernels.runtime.proof import File, Told, hash_path
from hubkernels.runtime.settings import read_settings
from hubkernels.runtime.system import Device

GOOD: dict[str, Any] = {
    "name": "my-kernel",
    "id": "_my_kernel_cpu_1",
    "version": 1,
    "license": "Apache-2.0",
    "python-depends": ["einops"],
    "backend": {"type": "cuda", "archs": ["9.0"]},
}

CLIENT = """
import json, os
from pathlib import Path
from huggingface_hub import constants, get_token
from kernels import hf_hub
cache = Path(hf_hub.CACHE_DIR or constants.HF_HUB_CACHE).expanduser()  # as every download does
print(json.dumps([constants.ENDPOINT, get_token(), str(cache), constants.HF_HUB_OFFLINE]))
"""


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"HF_ENDPOINT": "http://127.0.0.1:1/", "HF_TOKEN": " hf_x\n"},
        {"HF_HOME": "{tmp}/home", "HF_HUB_OFFLINE": "yes"},
        {"HF_HOME": "$HOME/../home", "HF_TOKEN": ""},
        {"HF_HOME": "{tmp}/home", "HF_TOKEN": " ", "HUGGING_FACE_HUB_TOKEN": "hf_old"},
        {"XDG_CACHE_HOME": "{tmp}/xdg", "HUGGING_FACE_HUB_TOKEN": "hf_old"},
        {"HF_HOME": "{tmp}/home", "HF_HUB_CACHE": "~/elsewhere", "HF_TOKEN_PATH": "{tmp}/file"},
        {"HUGGINGFACE_HUB_CACHE": "{tmp}/older", "TRANSFORMERS_OFFLINE": "1"},
        {"KERNELS_CACHE": "{tmp}/kernels", "HF_HUB_OFFLINE": "0"},
        {"KERNELS_CACHE": "~/kernels"},
        {"KERNELS_CACHE": "$HOME/kernels"},
        {"HF_ENDPOINT": "https://example.org/hub", "HF_HUB_OFFLINE": "true"},
    ],
)
def test_the_environment_is_read_as_the_client_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    pytest.importorskip("kernels", reason="the stock client is not installed")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/token").write_text("hf_home\n")
    (tmp_path / "file").write_text("hf_file")
    for name in [
        name for name in os.environ if name.startswith(("HF_", "HUGGING", "KERNELS_", "XDG_", "TRANSFORMERS_"))
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("{tmp}", str(tmp_path)))
    done = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True, check=True)
    found = read_settings()
    assert [found.endpoint, found.token, str(found.cache), found.offline] == json.loads(done.stdout)


@pytest.mark.parametrize("name", ["KERNELS_CACHE", "HF_HOME"])
def test_a_home_that_is_not_there_is_told(name: str) -> None:
    with pytest.raises(InputError, match="nobody's home is ~no-such-user"):
        read_settings({name: "~no-such-user/kernels"})


def test_folders_stand_for_kernels_by_name() -> None:
    found = read_settings({"LOCAL_KERNELS": "org/x=/a/b:org/y=c=d"})
    assert found.local == {"org/x": Path("/a/b"), "org/y": Path("c=d")}
    assert read_settings({"LOCAL_KERNELS": ""}).local == {}
    with pytest.raises(InputError, match="without a folder: 'nonsense'"):
        read_settings({"LOCAL_KERNELS": "org/x=/a:nonsense"})


def test_a_token_is_not_sent_unasked() -> None:
    assert read_settings({"HF_TOKEN": "x", "HF_HOME": "/nowhere"}).token == "x"  # noqa: S105 - of nobody
    assert read_settings({"HF_HOME": "/nowhere"}).token is None
    assert read_settings({"HF_TOKEN": "x", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}).token is None


@pytest.mark.parametrize(
    "endpoint",
    [
        *("huggingface.co", "//huggingface.co", "file:///etc", "https://", "https://h:abc", "https://h:99999999"),
        *("http://[::1", "https://h\u00e4.example", "https://h/a b", "https://h:0"),
    ],
)
def test_an_endpoint_that_is_no_address_is_refused_by_its_name(endpoint: str) -> None:
    """It ended in a ValueError of Python's, at the first request."""
    with pytest.raises(InputError, match="HF_ENDPOINT is no address of a Hub"):
        read_settings({"HF_ENDPOINT": endpoint, "HF_HOME": "/nowhere"})


@pytest.mark.parametrize("token", ["hf_\u20ac", "hf_a\tb", "hf_\x00"])
def test_a_token_that_no_header_can_hold_is_refused(token: str) -> None:
    with pytest.raises(InputError, match="the token of the Hub is none") as caught:
        _ = read_settings({"HF_TOKEN": token, "HF_HOME": "/nowhere"}).token
    assert token not in str(caught.value)


@pytest.mark.parametrize("variables", [{}, {"HF_TOKEN": " "}, {"HF_TOKEN": "", "HUGGING_FACE_HUB_TOKEN": "\n"}])
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (os.mkfifo, "is no regular file"),
        (lambda file: file.symlink_to("/dev/zero"), "is no regular file"),
        (lambda file: file.mkdir(), "Is a directory"),
        (lambda file: file.write_bytes(b"hf_secret" * 10_000), "more than 65536 bytes"),
        (lambda file: file.write_text("hf_secret", encoding="utf-16"), "other than printable ASCII"),
    ],
    ids=["pipe", "device", "folder", "long", "UTF-16"],
)
def test_a_file_that_has_no_token_is_named_and_left_alone_where_none_is_sent(
    tmp_path: Path, make: Callable[[Path], object], what: str, variables: dict[str, str]
) -> None:
    """A pipe was waited for, for ever, a device was read until the memory was full, and a folder was as no token."""
    file = tmp_path / "token"
    make(file)
    found = read_settings({**variables, "HF_TOKEN_PATH": str(file)})
    with pytest.raises(InputError, match=what) as caught:
        _ = found.token
    (problem,) = caught.value.problems
    assert problem.where == str(file)
    assert "HF_HUB_DISABLE_IMPLICIT_TOKEN=1 sends none" in str(problem.hint)
    assert "hf_secret" not in str(problem)
    assert read_settings({"HF_HOME": str(tmp_path), "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}).token is None
    assert read_settings({"HF_HOME": str(tmp_path), "HF_TOKEN": "x"}).token == "x"  # noqa: S105 - of nobody


def test_the_contract_is_that_of_the_client() -> None:
    kernels = pytest.importorskip("kernels", reason="the stock client is not installed")
    assert kernels.__version__ == ".".join(map(str, CONTRACT)), "read the new client's contract, then say so here"


@pytest.mark.parametrize("name", ["_ops", "__pycache__"])
def test_a_link_to_a_folder_beside_a_kernel_is_refused(tmp_path: Path, name: str) -> None:
    """Python imports the package ``_ops`` before ``_ops.py``, and links to folders were not looked at."""
    top = tmp_path / "torch-cpu"
    (top / "__pycache__").mkdir(parents=True)
    (top / "_ops.py").touch()
    (top / "__pycache__/_ops.cpython-312.pyc").touch()
    Cache.refuse_others(top, {"_ops.py"})
    shutil.rmtree(top / "__pycache__")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/__init__.py").touch()
    (top / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckFailedError, match=rf"is not of the kernel: .*/{name}\n"):
        Cache.refuse_others(top, {"_ops.py"})


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_a_digest_by_either_hash_is_held_against_every_file(tmp_path: Path, algorithm: str) -> None:
    """SHA-512 was passed over."""
    (tmp_path / "op.py").write_text("good")
    entry = base64.b64encode(hashlib.new(algorithm, b"good").digest()).decode()
    text = {**GOOD, "digest": {"algorithm": algorithm, "files": {"op.py": entry}}}
    metadata = read_metadata(json.dumps(text).encode(), "here")
    check_digest(metadata, {"op.py": hash_path(tmp_path / "op.py")}, tmp_path)
    (tmp_path / "op.py").write_text("evil")
    with pytest.raises(CheckFailedError, match=r"op\.py is not as metadata\.json has it"):
        check_digest(metadata, {"op.py": hash_path(tmp_path / "op.py")}, tmp_path)
    with pytest.raises(CheckFailedError, match=r"op\.py is not as"):
        check_digest(metadata, {}, tmp_path)


ARCHS = ["9.0", "9.0a", "10.0f", "10.0", "12.0+PTX", "8.9", "9.0a+PTX", "nonsense", "9", "9.0b", "gfx90a", "8.0+PTX"]


@pytest.mark.parametrize("device", ["8.0", "8.9", "9.0", "9.1", "10.0", "10.3", "12.0", "12.1", "13.0"])
def test_architectures_run_where_the_client_says(device: str) -> None:
    archs = pytest.importorskip("kernels.archs", reason="the stock client is not installed")
    major, minor = map(int, device.split("."))
    for each in [[arch] for arch in ARCHS] + [ARCHS[start : start + 3] for start in range(len(ARCHS))]:
        assert _supports(tuple(each), device) is archs._supports_cuda_capability(each, (major, minor)), each


def test_rocm_runs_what_names_it() -> None:
    assert _supports(("gfx90a", "gfx942"), "gfx942")
    assert not _supports(("gfx90a",), "gfx942")


@pytest.mark.torch
def test_without_a_device_of_the_backend_nothing_is_compared() -> None:
    pytest.importorskip("torch", reason="devices are torch's to tell")
    assert _current_arch("cpu") is None
    assert _current_arch("rocm") is None


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"{}", b"{", b"\xff", b"[" * 100_000, b'"x"', b"5"])
def test_what_is_no_metadata_is_refused(text: bytes) -> None:
    with pytest.raises(BadMetadataError, match=r"metadata\.json"):
        read_metadata(text, "here")


@pytest.mark.parametrize("key", [*GOOD, "digest", "provenance", "kernels-minver", "kernel-depends"])
@pytest.mark.parametrize("value", [None, [], {}, 5, -1, "", "x", [5], True, {"type": 5, "files": 5, "algorithm": 5}])
def test_any_value_of_a_key_is_taken_or_refused_and_no_bug(key: str, value: object) -> None:
    with contextlib.suppress(BadMetadataError):
        read_metadata(json.dumps({**GOOD, key: value}).encode(), "here")


@pytest.mark.parametrize("key", GOOD)
def test_a_key_that_the_client_needs_must_be_there(key: str) -> None:
    fewer = {name: value for name, value in GOOD.items() if name != key}
    with pytest.raises(BadMetadataError, match=f"lacks '{key}'"):
        read_metadata(json.dumps(fewer).encode(), "here")


def test_devices_are_spelled_as_variants_spell_them() -> None:
    tags = [Device("cuda", (13, 0)), Device("rocm", (7, 1)), Device("xpu", (2025, 2)), Device("cpu")]
    assert [each.tag for each in tags] == ["cu130", "rocm71", "xpu20252", "cpu"]


@pytest.mark.parametrize("make", [os.mkfifo, lambda place: place.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_what_is_no_file_in_a_cache_is_written_anew_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    """A load read from it for ever."""
    cache, commit = Cache(tmp_path), "a" * 40
    file = File("op.py", None, hashlib.sha256(b"x = 1").hexdigest(), 5)
    places = {name: tmp_path / name for name in (f"blobs/{file.sha256}", "refs/v1")}
    places |= {kind: tmp_path / f"hubkernels/{commit}.{kind}" for kind in ("objects", "json")}
    for place in places.values():
        place.parent.mkdir(parents=True, exist_ok=True)
        make(place)
    target = cache.variant(commit, "torch-cpu") / file.path
    target.parent.mkdir(parents=True)
    make(target)
    assert cache.hashes(commit, "torch-cpu", [file]) == {"op.py": None}
    assert (cache.ref("v1"), cache.revision(commit)) == (None, None)

    def fill(written: BinaryIO) -> None:
        written.write(b"x = 1")

    assert cache.put(commit, "torch-cpu", file, fill).size == 5
    assert target.read_bytes() == b"x = 1"
    with pytest.raises(EnvironmentLacksError, match="is no regular file, and is not replaced"):
        cache.keep(Told(commit, {"build/torch-cpu/op.py": file}))


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
}
BLOB = hashlib.sha256(b"1").hexdigest()


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *((name, what) for name in ("blobs", "snapshots", "hubkernels") for what in IN_THE_WAY),
        (f"blobs/{BLOB}", "folder"),
        (f"snapshots/{'a' * 40}/build/cpu/x.py", "folder"),
    ],
)
def test_what_is_in_the_way_in_a_cache_is_named_to_be_deleted(tmp_path: Path, name: str, what: str) -> None:
    """It was sent to another cache, though nothing was wrong with writing to this one."""
    place, cache = tmp_path / name, Cache(tmp_path)
    place.parent.mkdir(parents=True, exist_ok=True)
    {**IN_THE_WAY, "folder": Path.mkdir}[what](place)

    def fill(written: BinaryIO) -> None:
        written.write(b"1")

    def put() -> None:
        cache.put("a" * 40, "cpu", File("x.py", None, BLOB, 1), fill)

    with pytest.raises(EnvironmentLacksError, match="cannot write") as error:
        put()
    assert f"delete {place}, which is in the way, and try again" in str(error.value)
    place.rmdir() if what == "folder" else place.unlink()
    put()


def test_a_cache_that_cannot_be_written_leads_to_another() -> None:
    with pytest.raises(EnvironmentLacksError, match="KERNELS_CACHE names another cache"):
        Cache(Path("/proc/no")).put("a" * 40, "cpu", File("x.py", None, BLOB, 1), lambda _: None)
