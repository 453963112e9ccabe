"""What a pinned nvcc says is asked once; an installed one is asked each time."""

from __future__ import annotations

from pathlib import Path

from hubkernels.build.answers import NvccAnswers
from hubkernels.host.store import Store
from hubkernels.model.version import Version
from hubkernels.toolchain.nvcc import nvcc_at

NVCC = """#!/bin/sh
case $1 in
    --version) echo "Cuda compilation tools, release 13.0, V13.0.88" ;;
    --list-gpu-code) echo "sm_80 sm_90" ;;
    *) printf '#$ _HERE_=%s\\n#$ TOP=%s\\n#$ PATH=/secret\\n' "${0%/*}" "${0%/*/*}" >&2 ;;
esac
"""


def write_nvcc(folder: Path) -> str:
    path = folder / "bin/nvcc"
    path.parent.mkdir(parents=True)
    path.write_text(NVCC)
    path.chmod(0o755)
    return str(path)


def test_a_pinned_nvcc_is_asked_once(tmp_path: Path) -> None:
    path = write_nvcc(tmp_path / "sdk")
    answers = NvccAnswers(Store(tmp_path / "store"), {})
    first = answers.at(path)
    assert first
    assert answers.codes(first) == {"80", "90"}
    Path(path).unlink()
    again = answers.at(path)
    assert again == first
    assert again.own == first.own
    assert again.release == Version((13, 0))
    assert answers.codes(again) == {"80", "90"}


def test_what_is_kept_of_it_are_its_folders(tmp_path: Path) -> None:
    path = write_nvcc(tmp_path / "sdk")
    answers = NvccAnswers(Store(tmp_path / "store"), {})
    nvcc = answers.at(path)
    assert nvcc
    answers.codes(nvcc)
    assert nvcc.own == {"_HERE_": f"{tmp_path}/sdk/bin", "TOP": f"{tmp_path}/sdk"}
    (kept,) = (tmp_path / "store").rglob("*.nvcc")
    assert b"/secret" not in kept.read_bytes()


def test_an_installed_nvcc_is_asked_each_time(tmp_path: Path) -> None:
    path = write_nvcc(tmp_path / "cuda")
    answers = NvccAnswers(Store(tmp_path / "store"), {})
    nvcc = nvcc_at(path, "first on PATH", {})
    assert nvcc
    assert answers.codes(nvcc) == {"80", "90"}
    assert not list((tmp_path / "store").rglob("*.nvcc"))


def test_an_nvcc_that_does_not_run_is_asked_anew(tmp_path: Path) -> None:
    answers = NvccAnswers(Store(tmp_path / "store"), {})
    assert answers.at(str(tmp_path / "sdk/bin/nvcc")) is None
    assert answers.at(write_nvcc(tmp_path / "sdk"))
