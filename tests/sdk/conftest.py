"""A small package index on this machine, with wheels that the tests write and every misbehaviour of a server."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import os
import ssl
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version as Release

from hubkernels.model.sdk import SdkName
from hubkernels.model.version import Version
from hubkernels.toolchain.sdk import newer_pip
from hubkernels.toolchain.sdk.index import Found, Index
from hubkernels.toolchain.sdk.make import Maker
from hubkernels.toolchain.sdk.patience import PATIENT, Patience
from hubkernels.toolchain.sdk.store import SdkStore
from hubkernels.toolchain.sdk.transfer import Settings, Transfer

PLATFORM = "x86_64-linux"
TORCH = SdkName("torch", Version((2, 12)), PLATFORM)
CUDA = SdkName("cuda", Version((13, 0)), PLATFORM)
MATH = SdkName("cuda-math", Version((13, 0)), PLATFORM)
TORCH_FILE = "torch-2.12.1-cp313-cp313-manylinux_2_28_x86_64.whl"

TORCH_FILES = {
    **{f"torch/include/ATen/h{number}.h": b"#pragma once\n" * (number + 1) for number in range(40)},
    "torch/lib/libtorch_cpu.so": bytes(range(256)) * 20_000,
    "torch/lib/libc10.so": b"c10" * 99,
    "torch/include/c10/last.h": b"// far behind the others\n",
    "torch/version.py": b"__version__ = '2.12.1+cu130'\ncuda = '13.0'\n",
    "torch/nn/modules.py": b"not of the SDK\n",
}
CUDA_FILES = {
    "nvidia-cuda-nvcc": {"nvidia/cu13/bin/nvcc": b"#!/bin/sh\necho nvcc\n", "nvidia/cu13/LICENSE": b"same\n"},
    "nvidia-cuda-crt": {"nvidia/cu13/include/crt/host_config.h": b"// host\n", "nvidia/cu13/LICENSE": b"same\n"},
    "nvidia-nvvm": {"nvidia/cu13/nvvm/bin/cicc": b"cicc", "nvidia/cu13/nvvm/lib64/libnvvm.so.4": b"nvvm"},
    "nvidia-cuda-runtime": {"nvidia/cu13/lib/libcudart.so.13": b"cudart", "nvidia/__init__.py": b""},
    "nvidia-cuda-cccl": {"nvidia/cu13/include/cccl/cuda/std/array": b"// array\n"},
}

CUDA_12_FILES = {
    "nvidia-cuda-nvcc-cu12": {
        "nvidia/cuda_nvcc/bin/ptxas": b"#!/bin/sh\necho ptxas\n",
        "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc": b"bitcode",
        "nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so": bytes(99_999),
        "nvidia/cuda_nvcc/include/crt/mma.h": b"// mma\n",
        "nvidia/cuda_nvcc/include/__init__.py": b"",
    },
    "nvidia-cuda-runtime-cu12": {
        "nvidia/cuda_runtime/include/cuda.h": b"#define CUDA_VERSION 12060\n",
        "nvidia/cuda_runtime/include/__init__.py": b"",
        "nvidia/cuda_runtime/lib/libcudart.so.12": b"cudart",
    },
    "nvidia-cuda-cccl-cu12": {"nvidia/cuda_cccl/include/cuda/std/array": b"// array\n"},
    "nvidia-curand-cu12": {
        "nvidia/curand/include/curand_mtgp32_kernel.h": b"// curand\n",
        "nvidia/curand/lib/libcurand.so.10": bytes(99_999),
    },
    "nvidia-cuda-nvcc": {"nvidia/cu13/bin/fatbinary": b"#!/bin/sh\n", "nvidia/cu13/bin/nvcc": b"nvcc"},
}


_DRIPS = 100
"""Bytes, twenty a second: longer than anything that drips is waited for in a test."""


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def metadata(project: str, release: str, requires: tuple[str, ...] = ()) -> bytes:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project}",
        f"Version: {release}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def write_wheel(
    project: str,
    release: str,
    files: Mapping[str, bytes],
    requires: tuple[str, ...] = (),
    listed: Mapping[str, str] | None = None,
) -> bytes:
    """A wheel. listed: lines of its RECORD that are not those of the files."""
    info = f"{project.replace('-', '_')}-{release}.dist-info"
    whole = {
        **files,
        f"{info}/METADATA": metadata(project, release, requires),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n",
    }
    lines = {path: f"{path},{digest(content)},{len(content)}" for path, content in whole.items()} | dict(listed or {})
    whole[f"{info}/RECORD"] = "".join(f"{line}\n" for line in (*lines.values(), f"{info}/RECORD,,")).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in whole.items():
            archive.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def torch_wheel(files: Mapping[str, bytes] = TORCH_FILES, release: str = "2.12.1") -> bytes:
    return write_wheel("torch", release, files)


@dataclass
class Served:
    """What the server has, how it misbehaves for each path, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    ways: dict[str, str] = field(default_factory=dict)
    parts: dict[str, bytes] = field(default_factory=dict)  # of other bytes than the whole
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    url: str = ""
    user: str | None = None
    busy: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # answers before the first right one
    said: dict[str, str] = field(default_factory=dict)  # headers of what is sent whole
    metadata: bool = True
    head: bool = True
    reached: threading.Event = field(default_factory=threading.Event)  # a file that is held was asked for
    go_on: threading.Event = field(default_factory=threading.Event)

    def add(self, file: str, content: bytes, way: str = "") -> Found:
        """Put a wheel on the index; as pip would tell of it."""
        path = f"/packages/{hashlib.sha256(file.encode()).hexdigest()[:4]}/{file}"
        self.files[path] = content
        self.ways[path] = way
        project, release = file.split("-")[:2]
        return Found(project.replace("_", "-"), release, self.url + path, hashlib.sha256(content).hexdigest())

    def add_cuda(self) -> None:
        for project, files in CUDA_FILES.items():
            name = f"{project.replace('-', '_')}-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
            self.add(name, write_wheel(project, "13.0.88", files))

    def parts_of(self, file: str) -> list[str]:
        return [part for path, part, _ in self.asked if path.endswith(file) and part]


class _Handler(BaseHTTPRequestHandler):
    served: Served

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        content = self.served.files.get(self.path)
        headers = {"Content-Length": str(len(content or b"")), "Accept-Ranges": "bytes"}
        self._send(200 if content and self.served.head else 405, b"", headers)

    def do_GET(self) -> None:
        path, part, user = self.path.partition("?")[0], self.headers.get("Range"), self.headers.get("Authorization")
        served = self.served
        served.asked.append((path, part, user))
        if served.user and user != "Basic " + base64.b64encode(served.user.encode()).decode():
            self._send(401, b"", {"WWW-Authenticate": "Basic realm=x"})
        elif path.startswith("/simple/"):
            self._page(path.split("/")[2])
        elif path.removesuffix(".metadata") in served.files:
            content = served.files[path.removesuffix(".metadata")]
            self._metadata(content) if path.endswith(".metadata") else self._file(path, content, part)
        else:
            self._send(404, b"")

    def _page(self, project: str) -> None:
        rows = []
        for path, content in self.served.files.items():
            file = path.rpartition("/")[2]
            if file.split("-")[0].replace("_", "-").lower() == project:
                sha256 = hashlib.sha256(content).hexdigest()
                with zipfile.ZipFile(io.BytesIO(content)) as archive:
                    name = next(each for each in archive.namelist() if each.endswith("/METADATA"))
                    meta = hashlib.sha256(archive.read(name)).hexdigest()
                beside = f'data-dist-info-metadata="sha256={meta}" data-core-metadata="sha256={meta}"'  # old, new pip
                beside = beside if self.served.metadata else ""
                rows.append(f'<a href="{path}#sha256={sha256}" {beside}>{file}</a>')
        self._send(
            200 if rows else 404,
            f"<!DOCTYPE html><html><body>{''.join(rows)}</body></html>".encode(),
            {"Content-Type": "text/html"},
        )

    def _metadata(self, content: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            self._send(200, archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))))

    def _file(self, path: str, content: bytes, part: str | None) -> None:
        way = self.served.ways.get(path, "")
        if self.served.busy:
            status, headers = self.served.busy.pop(0)
            self._send(status, b"", headers)
            return
        if way == "held":
            self.served.reached.set()
            self.served.go_on.wait(60)
        if way == "drips its headers":
            self.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
            self._drip(b"x" * _DRIPS)
        elif way.startswith("to "):
            self._send(302, b"", {"Location": way[3:]})
        elif way == "broken off" or (
            way == "broken once" and sum(p == path and not r for p, r, _ in self.served.asked) < 2
        ):
            self._send(200, content[: len(content) // 2], {"Content-Length": str(len(content))})
        elif way == "altered":
            self._send(200, content[:-9] + bytes(9))
        elif part and way.isdigit():
            self._send(int(way), b"")
        elif part is None or way in {"no ranges", "whole altered"}:
            self._send(200, bytes(len(content)) if way == "whole altered" else content, self.served.said)
        else:
            self._part(way, self.served.parts.get(path, content), *map(int, part.removeprefix("bytes=").split("-")))

    def _part(self, way: str, content: bytes, start: int, end: int) -> None:
        end = min(end, len(content) - 1)
        body, said = content[start : end + 1], f"bytes {start}-{end}/{len(content)}"
        if way == "another part":
            said = f"bytes {start + 1}-{end + 1}/{len(content)}"
        elif way == "endless":
            said = f"bytes {start}-{end}/{'9' * 5000}"
        elif way == "no word of it":
            said = ""
        elif way == "too little" and len(body) > 1:
            body = body[:-1]
        elif way == "other bytes" and len(body) > 1:
            body = bytes(byte ^ 0x55 for byte in body)
        elif way == "grows" and len(body) > 1:
            said = f"bytes {start}-{end}/{len(content) + 1}"
        elif way == "changes" and len(body) > 1:
            self._send(206, body, {"Content-Range": said, "ETag": '"two"'})
            return
        self._send(206, body, {"Content-Range": said, "ETag": '"one"'})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.served.ways.get(self.path) == "drips" and len(body) > 1:
            self._drip(body[:_DRIPS])
        else:
            self.wfile.write(body)
        self.close_connection = True

    def _drip(self, content: bytes) -> None:
        with contextlib.suppress(OSError):  # whoever asked has gone
            for at in range(len(content)):
                if self.served.go_on.wait(0.05):
                    return
                self.wfile.write(content[at : at + 1])


def serve(tls: ssl.SSLContext | None = None) -> Iterator[Served]:
    served = Served()
    handler = type("Handler", (_Handler,), {"served": served})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    served.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    try:
        yield served
    finally:  # whoever closes this generator goes on nowhere else
        served.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def pip_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's pip, also where it is old: the indexes of these tests have no pip."""
    monkeypatch.setattr(newer_pip, "ENOUGH", Release("0"))


@pytest.fixture
def served() -> Iterator[Served]:
    yield from serve()


@pytest.fixture
def another() -> Iterator[Served]:
    yield from serve()


@pytest.fixture
def store(tmp_path: Path) -> SdkStore:
    return SdkStore(tmp_path / "sdk")


@dataclass
class Told:
    """An index that answers what it was told, as if long ago, and a maker that asks it."""

    store: SdkStore
    found: dict[str, tuple[Found, ...]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    settings: Settings = field(default_factory=Settings)
    newer: dict[str, tuple[Found, ...]] = field(default_factory=dict)  # where it is asked anew
    kept: bool = True
    from_memory: int = 0
    renewals: int = 0
    slept_s: list[float] = field(default_factory=list)
    patience: Patience = PATIENT

    def ask(self, requirements: tuple[str, ...], _: str) -> tuple[Found, ...]:
        self.from_memory += self.kept
        return tuple(self.found[requirement.partition("=")[0]][0] for requirement in requirements)

    def renewed(self) -> Told:
        self.renewals += 1
        return Told(self.store, {**self.found, **self.newer})

    @property
    def maker(self) -> Maker:
        index: Any = self
        transfer = Transfer(self.settings, self.slept_s.append, self.patience)
        return Maker(self.store, index, lambda: transfer, self.said.append)


@pytest.fixture
def told(store: SdkStore) -> Told:
    return Told(store)


def pip_environment(home: Path, index: str) -> dict[str, str]:
    """An environment in which pip knows this index alone."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return {
        **own,
        "HOME": str(home),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": index,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "0",
    }


@pytest.fixture
def index(served: Served, tmp_path: Path) -> Index:
    return Index(pip_environment(tmp_path, f"{served.url}/simple/"), tmp_path / "answers")
