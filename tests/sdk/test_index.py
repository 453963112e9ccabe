"""pip is asked for wheels, with all that it is configured for; secrets stay with it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version as Release

from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.process import Finished
from hubkernels.model.version import Version
from hubkernels.toolchain.sdk import configured, newer_pip
from hubkernels.toolchain.sdk import index as module
from hubkernels.toolchain.sdk.index import Found, Index, NotOfferedError, configuration, without_secrets
from hubkernels.toolchain.sdk.patience import Patience
from hubkernels.toolchain.sdk.recipes import MATH, RECIPES, recipe_of
from hubkernels.toolchain.sdk.transfer import read_settings
from tests.sdk.conftest import (
    CUDA,
    PLATFORM,
    TORCH,
    TORCH_FILE,
    TORCH_FILES,
    Served,
    pip_environment,
    torch_wheel,
    write_wheel,
)

MATH_NAME = dataclasses.replace(CUDA, kind="cuda-math")
OLDER_MATH = dataclasses.replace(MATH_NAME, version=Version((12, 6)))


def test_the_newest_that_fits_is_found_and_remembered(served: Served, index: Index) -> None:
    found = served.add(TORCH_FILE, torch_wheel())
    served.add(TORCH_FILE.replace("2.12.1", "2.12.0"), torch_wheel(release="2.12.0"))
    served.add(TORCH_FILE.replace("2.12.1", "2.13.0"), torch_wheel(release="2.13.0"))
    assert RECIPES["torch"].wheels(TORCH, index) == (found,)
    served.asked.clear()
    assert RECIPES["torch"].wheels(TORCH, index) == (found,)
    assert (served.asked, index.from_memory) == ([], 1)
    renewed = index.renewed()
    RECIPES["torch"].wheels(TORCH, renewed)
    assert (bool(served.asked), renewed.from_memory) == (True, 0)


def test_an_answer_is_kept_for_what_pip_is_configured_for(served: Served, another: Served, tmp_path: Path) -> None:
    """A constraint, or another index, that came later used to change nothing: a release was answered once for all."""
    newest = served.add(TORCH_FILE, torch_wheel())
    older = served.add(TORCH_FILE.replace("2.12.1", "2.12.0"), torch_wheel(release="2.12.0"))
    elsewhere = another.add(TORCH_FILE, torch_wheel())
    around = {**pip_environment(tmp_path, f"{served.url}/simple/"), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    constraints = tmp_path / "constraints.txt"

    def found(**more: str) -> tuple[Found, ...]:
        return Index({**around, **more}, tmp_path / "answers").ask(("torch==2.12.*",), PLATFORM)

    assert found() == (newest,)
    constraints.write_text("torch<2.12.1\n")
    assert found(PIP_CONSTRAINT=str(constraints)) == (older,)
    constraints.write_text("torch<2.13\n")
    assert found(PIP_CONSTRAINT=str(constraints)) == (newest,)
    assert found(PIP_INDEX_URL=f"{another.url}/simple/") == (elsewhere,)
    constraints.write_text("torch<2.12.1\n")
    (tmp_path / "pip.conf").write_text(f"[install]\nconstraint =\n    {constraints}\n")
    assert found() == (older,)
    (tmp_path / "pip.conf").unlink()
    served.asked.clear()
    assert (found(), served.asked) == ((newest,), [])


@pytest.mark.parametrize("place", [".config/pip/pip.conf", ".pip/pip.conf"])
def test_each_file_of_pip_counts_and_no_secret_does(tmp_path: Path, place: str) -> None:
    around = {"HOME": str(tmp_path)}
    told = {configuration(around)}
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text("[global]\nindex-url = https://a:b@h/simple\n")
    told.add(configuration(around))
    assert len(told) == 2
    (tmp_path / place).write_text("[global]\nindex-url = https://c:d@h/simple\n")
    assert configuration(around) in told
    assert configured.said({**around, "PIP_INDEX_URL": "mine"}, "index-url") == ("https://c:d@h/simple", "mine")


@pytest.mark.parametrize("text", ["[global", "[global]\nx", "\0", "constraint = /none"])
def test_a_file_of_pip_that_cannot_be_read_is_left_to_pip(tmp_path: Path, text: str) -> None:
    (tmp_path / "pip.conf").write_text(text)
    around = {"HOME": "/none", "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "PIP_CONSTRAINT": str(tmp_path)}
    assert len(configuration(around)) == 64
    assert configured.said(around, "index-url") == ()


def test_a_pip_that_does_not_end_is_told_with_the_index_and_the_way_out(tmp_path: Path) -> None:
    """It used to be told as a program that did not end."""

    def waits(*_: object, **__: object) -> Finished:
        raise EnvironmentLacksError("python did not end within 900 s")

    index = Index({"PIP_INDEX_URL": "https://me:secret@h/simple"}, tmp_path, waits)
    with pytest.raises(EnvironmentLacksError) as error:
        index.ask(("torch==1",), PLATFORM)
    assert "pip cannot be waited for, which asks https://h/simple: python did not end within 900 s" in str(error.value)
    assert "hint: is there a network? `pip config list` tells which index pip asks; `toolchain unpack`" in str(
        error.value
    )


def test_all_pips_of_one_question_have_its_time_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each had it for itself, and a newer pip, and pip without parts: an index that drips cost minutes."""
    monkeypatch.setattr(newer_pip, "ENOUGH", Release("23.3"))
    monkeypatch.setattr(newer_pip, "version", lambda _: "23.0.1")
    clock, given = [0.0], []
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0], time=time.time))

    def drips(_: object, *, env: object, timeout_s: float) -> Finished:
        assert env
        given.append(timeout_s)
        clock[0] += timeout_s / 2
        return Finished(1, "", "404 Client Error: for url: x.whl")

    with pytest.raises(EnvironmentLacksError):
        Index({"HOME": "/none"}, tmp_path, drips, patience=Patience(40, 0, 0, 5)).ask(("torch==1",), PLATFORM)
    assert given == [40, 20, 10]


@pytest.mark.parametrize("beside", ["its metadata", "nothing"])
def test_no_wheel_is_downloaded_to_be_told_of(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    """A newer pip is asked where the interpreter's would, and reads parts where an index has nothing beside a wheel."""
    monkeypatch.setattr(newer_pip, "ENOUGH", Release("23.3"))
    monkeypatch.setattr(newer_pip, "version", lambda _: "23.0.1")
    served.metadata = beside == "its metadata"
    wheel = torch_wheel({**TORCH_FILES, "torch/lib/libtorch.so": os.urandom(300_000)})
    served.add(TORCH_FILE, wheel)
    index = Index(pip_environment(tmp_path, f"{served.url}/simple/"), tmp_path / "sdk/answers")
    newer = tmp_path / "sdk" / newer_pip.KEPT
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(newer), "pip>=23.3"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no index that has pip can be asked")
    (found,) = index.ask(("torch==2.12.*",), PLATFORM)
    assert found.sha256 == hashlib.sha256(wheel).hexdigest()
    parts = [part for path, part, _ in served.asked if path.endswith(".whl")]
    assert bool(parts) == (beside == "nothing")
    assert None not in parts, "all of the wheel was asked for"
    spans = [part.removeprefix("bytes=").split("-") for part in parts if part]
    assert sum(int(end) - int(start) + 1 for start, end in spans) < len(wheel) / 2


def test_an_index_with_neither_metadata_nor_parts_is_asked_for_the_wheel(served: Served, index: Index) -> None:
    served.metadata = served.head = False
    served.add(TORCH_FILE, torch_wheel())
    assert [found.file for found in index.ask(("torch==2.12.*",), PLATFORM)] == [TORCH_FILE]


def test_a_newer_pip_is_installed_once_whole_and_by_the_same_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newer_pip, "ENOUGH", Release("23.3"))
    monkeypatch.setattr(newer_pip, "version", lambda _: "23.0.1")
    started: list[tuple[str, ...]] = []

    def install(command: tuple[str, ...], env: dict[str, str], timeout_s: float) -> Finished:
        assert env == {"PIP_INDEX_URL": "x", "PYTHONPATH": "mine"}
        assert timeout_s
        started.append(command)
        target = Path(command[command.index("--target") + 1])
        target.mkdir()
        return Finished(0, "", "")

    environment = {"PIP_INDEX_URL": "x", "PYTHONPATH": "mine"}
    for _ in range(2):
        found = newer_pip.pip_variables(environment, tmp_path, install)
        assert found == {"PYTHONPATH": f"{tmp_path / newer_pip.KEPT}{os.pathsep}mine"}
    assert len(started) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["pip-{}.{}".format(*sys.version_info)]


def test_where_no_newer_pip_can_be_had_the_old_one_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newer_pip, "ENOUGH", Release("23.3"))
    monkeypatch.setattr(newer_pip, "version", lambda _: "23.0.1")
    failed = lambda *_, **__: Finished(1, "", "no network")  # noqa: E731

    def waits(*_: object, **__: object) -> Finished:
        raise EnvironmentLacksError("it did not end")

    for start in (failed, waits):
        assert newer_pip.pip_variables({}, tmp_path, start) == {}
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(newer_pip, "version", lambda _: "26.3")
    assert newer_pip.pip_variables({}, tmp_path, failed) == {}


def test_a_folder_with_a_cpu_wheel_does_not_hide_the_wheel_of_the_index(served: Served, tmp_path: Path) -> None:
    """2.12.1+cpu is newer than 2.12.1 to pip."""
    found = served.add(TORCH_FILE, torch_wheel())
    links = tmp_path / "links"
    links.mkdir()
    (links / TORCH_FILE.replace("2.12.1", "2.12.1+cpu")).write_bytes(torch_wheel(release="2.12.1+cpu"))
    environment = {**pip_environment(tmp_path, f"{served.url}/simple/"), "PIP_FIND_LINKS": str(links)}
    assert RECIPES["torch"].wheels(TORCH, Index(environment, tmp_path / "answers")) == (found,)


def test_where_only_a_local_release_is_it_is_taken(served: Served, tmp_path: Path) -> None:
    file = TORCH_FILE.replace("2.12.1", "2.12.1+cpu")
    (tmp_path / file).write_bytes(torch_wheel(release="2.12.1+cpu"))
    environment = {**pip_environment(tmp_path, f"{served.url}/simple/"), "PIP_FIND_LINKS": str(tmp_path)}
    (found,) = RECIPES["torch"].wheels(TORCH, Index(environment, tmp_path / "answers"))
    assert (found.release, found.file, found.path) == ("2.12.1+cpu", file, file)


def test_a_constraint_decides(served: Served, tmp_path: Path) -> None:
    served.add(TORCH_FILE, torch_wheel())
    older = served.add(TORCH_FILE.replace("2.12.1", "2.12.0"), torch_wheel(release="2.12.0"))
    (tmp_path / "constraints.txt").write_text("torch<2.12.1\n")
    environment = {
        **pip_environment(tmp_path, f"{served.url}/simple/"),
        "PIP_CONSTRAINT": str(tmp_path / "constraints.txt"),
    }
    index = Index(environment, tmp_path / "answers")
    assert RECIPES["torch"].wheels(TORCH, index) == (older,)
    with pytest.raises(NotOfferedError, match=r"the package index gives no torch===2\.12\.1"):
        index.ask(("torch===2.12.1",), PLATFORM)


def test_what_the_index_lacks_is_told_with_what_it_has(served: Served, index: Index) -> None:
    served.add(TORCH_FILE, torch_wheel())
    with pytest.raises(NotOfferedError, match=r"the package index has no torch==2\.9\.\*; it has 2\.12\.1\n") as error:
        index.ask(("torch==2.9.*",), PLATFORM)
    assert error.value.problems[0].hint


def test_pip_that_may_ask_no_index_is_told_as_that(served: Served, tmp_path: Path) -> None:
    """It used to read as if the index lacked the wheel."""
    served.add(TORCH_FILE, torch_wheel())
    (tmp_path / TORCH_FILE.replace("2.12.1", "2.11.0")).write_bytes(torch_wheel(release="2.11.0"))
    around = {**pip_environment(tmp_path, f"{served.url}/simple/"), "PIP_FIND_LINKS": str(tmp_path)}
    with pytest.raises(NotOfferedError) as error:
        Index({**around, "PIP_NO_INDEX": "1"}, tmp_path / "answers").ask(("torch==2.12.*",), PLATFORM)
    what = "PIP_NO_INDEX keeps pip from any index, and what find-links names has no torch==2.12.*; it has 2.11.0\n"
    assert str(error.value).startswith(what)
    assert "hint: unset it, or let PIP_FIND_LINKS name a folder with the wheel" in str(error.value)
    assert served.asked == []
    assert Index({**around, "PIP_NO_INDEX": "no"}, tmp_path / "answers").ask(("torch==2.12.*",), PLATFORM)


def test_a_file_of_pip_may_keep_it_from_any_index_too(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[install]\nno-index = Yes\n")
    around = {"HOME": "/none", "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    assert configured.without_index(around) == "no-index in pip's configuration"
    assert configured.without_index({**around, "PIP_NO_INDEX": "0"}) is None
    assert configured.without_index({"PIP_CONFIG_FILE": os.devnull}) is None


def test_the_math_libraries_of_a_release_are_those_that_its_metapackage_names(served: Served, index: Index) -> None:
    pins = tuple(f"{name}==12.{number}.*; extra == 'all'" for number, name in enumerate(MATH))
    served.add("cuda_toolkit-13.0.3-py2.py3-none-any.whl", write_wheel("cuda-toolkit", "13.0.3", {}, pins))
    for number, name in enumerate(MATH):
        for minor in (number, number + 1):
            file = f"{name.replace('-', '_')}-12.{minor}.5-py3-none-manylinux2014_x86_64.whl"
            served.add(file, write_wheel(name, f"12.{minor}.5", {"nvidia/cu13/include/x.h": b""}))
    found = RECIPES["cuda-math"].wheels(MATH_NAME, index)
    assert [(each.project, each.release) for each in found] == [(name, f"12.{n}.5") for n, name in enumerate(MATH)]


def test_a_metapackage_without_them_is_told(served: Served, index: Index) -> None:
    served.add(
        "cuda_toolkit-12.6.3-py2.py3-none-any.whl",
        write_wheel("cuda-toolkit", "12.6.3", {}, ("x-cu12==1; extra == 'all'",)),
    )
    with pytest.raises(NotOfferedError, match=r"cuda-toolkit 12\.6\.3 of the package index has no nvidia-cublas"):
        recipe_of(OLDER_MATH).wheels(OLDER_MATH, index)


def test_libraries_of_cuda_12_are_called_after_it(served: Served, index: Index) -> None:
    pins = tuple(f"{name}-cu12==12.{number}.*; extra == 'all'" for number, name in enumerate(MATH))
    served.add("cuda_toolkit-12.6.3-py2.py3-none-any.whl", write_wheel("cuda-toolkit", "12.6.3", {}, pins))
    for number, name in enumerate(MATH):
        file = f"{name.replace('-', '_')}_cu12-12.{number}.5-py3-none-manylinux2014_x86_64.whl"
        served.add(file, write_wheel(f"{name}-cu12", f"12.{number}.5", {"nvidia/x/include/x.h": b""}))
    recipe = recipe_of(OLDER_MATH)
    assert [each.project for each in recipe.wheels(OLDER_MATH, index)] == [f"{name}-cu12" for name in MATH]
    assert recipe.place("nvidia/cublas/include/cublas.h") == "nvidia/cu12/include/cublas.h"
    assert recipe.place("nvidia/cublas/lib/libcublas.so.12") is None


def test_an_index_that_is_not_there_is_no_index_without_the_wheel(tmp_path: Path) -> None:
    index = Index(pip_environment(tmp_path, "http://127.0.0.1:9/simple/"), tmp_path / "answers")
    with pytest.raises(EnvironmentLacksError, match=r"cannot be reached for torch==2\.12\.\*") as error:
        index.ask(("torch==2.12.*",), PLATFORM)
    assert not isinstance(error.value, NotOfferedError)
    assert "toolchain unpack" in str(error.value)


def test_credentials_of_pip_are_used_and_told_to_nobody(served: Served, tmp_path: Path) -> None:
    served.user = "me:se cret"
    served.add(TORCH_FILE, torch_wheel())
    address = f"{served.url.replace('://', '://me:se%20cret@')}/simple/"
    environment = pip_environment(tmp_path, address)
    answers = tmp_path / "answers"
    (found,) = Index(environment, answers).ask(("torch==2.12.*",), PLATFORM)
    settings = read_settings(environment)
    assert settings.credentials == {served.url.removeprefix("http://"): "me:se cret"}
    assert "cret" not in repr(settings) + repr(found) + "".join(path.read_text() for path in answers.iterdir())


def test_wrong_credentials_are_told_without_them(served: Served, tmp_path: Path) -> None:
    served.user = "me:secret"
    served.add(TORCH_FILE, torch_wheel())
    address = f"{served.url.replace('://', '://me:guess@')}/simple/"
    with pytest.raises(EnvironmentLacksError, match=r"refuses to tell of torch==2\.12\.\*") as error:
        Index(pip_environment(tmp_path, address), tmp_path / "answers").ask(("torch==2.12.*",), PLATFORM)
    assert "guess" not in str(error.value)


def test_settings_come_from_pip_and_netrc(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine mirror.example login a password b\n")
    (tmp_path / ".netrc").chmod(0o600)
    (tmp_path / "pip.conf").write_text(
        "[global]\ncert = /c.pem\nproxy = http://p:1\ntrusted-host = t.example u.example:8\n"
        "find-links = https://x:y@links.example/a\n"
    )
    environment = {**pip_environment(tmp_path, "https://i:j@index.example:8443/simple")}
    environment["PIP_CONFIG_FILE"] = str(tmp_path / "pip.conf")
    found = read_settings(environment)
    assert (found.certificates, found.proxy) == ("/c.pem", "http://p:1")
    assert found.trusted == {"t.example", "u.example:8"}
    assert found.credentials == {
        "mirror.example": "a:b",
        "index.example:8443": "i:j",
        "links.example:443": "x:y",
    }


def test_a_netrc_that_is_not_utf_8_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_bytes(b"machine x login a password p\xe9\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert read_settings(pip_environment(tmp_path, "https://x/simple")).credentials == {}


def test_the_last_of_several_settings_wins_and_that_of_another_verb_is_none() -> None:
    said = (
        ":env:.proxy='http://env'\nglobal.cert='/of-the-machine.pem'\nglobal.cert='/of-the-user.pem'\n"
        "global.proxy='http://global'\ninstall.proxy='http://install'\ndownload.cert='/no.pem'\n"
    )
    found = read_settings({"HOME": "/nowhere"}, lambda *_, **__: Finished(0, said, ""))
    assert (found.certificates, found.proxy) == ("/of-the-user.pem", "http://env")


def failing(errors: str, status: int = 1, output: str = "") -> Any:  # noqa: ANN401 - stands for a function
    return lambda *_, **__: Finished(status, output, errors)


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        (f"{sys.executable}: No module named pip", r"has no pip to ask for torch==1\n  hint: python -m ensurepip"),
        ("no such option: --report", "pip is too old"),
        ("403 Client Error: Forbidden for url: https://u:p@h/x?sig=1", r"refuses to tell of torch==1: [^@?]*h/x\n"),
        ("  Could not fetch URL https://h/simple: 503 Server Error", r"cannot be reached for torch==1"),
        ("ERROR: Exception:\nTraceback\nValueError: of pip", r"pip cannot tell of torch==1: [^$]*ValueError: of pip"),
        ("ERROR: pip said so", r"pip cannot tell of torch==1: pip said so"),
    ],
)
def test_what_pip_says_becomes_the_way_out(tmp_path: Path, errors: str, message: str) -> None:
    with pytest.raises(EnvironmentLacksError, match=message):
        Index({}, tmp_path, failing(errors)).ask(("torch==1",), PLATFORM)


def reporting(report: str) -> Any:  # noqa: ANN401 - stands for a function
    def start(command: tuple[str, ...], **_: object) -> Finished:
        Path(command[command.index("--report") + 1]).write_text(report)
        return Finished(0, "", "")

    return start


@pytest.mark.parametrize("report", ["", "[]", '{"install": []}', '{"install": [{"metadata": {"name": "torch"}}]}'])
def test_a_report_that_cannot_be_read_is_told(tmp_path: Path, report: str) -> None:
    with pytest.raises(EnvironmentLacksError, match="pip's report on torch==1 cannot be read"):
        Index({}, tmp_path, reporting(report)).ask(("torch==1",), PLATFORM)


@pytest.mark.parametrize("kept", ["", "[]", '{"form": 1}', '{"form": 1, "found": [{"url": 1}]}', '{"form": 0}'])
def test_a_damaged_answer_is_none(tmp_path: Path, served: Served, kept: str) -> None:
    found = served.add(TORCH_FILE, torch_wheel())
    entry = {
        "download_info": {"url": found.url, "archive_info": {"hash": f"sha256={found.sha256}"}},
        "metadata": {"name": "Torch", "version": "2.12.1"},
    }
    index = Index({}, tmp_path, reporting(json.dumps({"install": [entry]})))
    index._kept(("torch==2",), PLATFORM).write_text(kept)
    assert index.ask(("torch==2",), PLATFORM)[0].url == found.url


def test_the_newest_of_several_is_asked_for_again_after_a_day_and_one_release_is_not(
    served: Served, index: Index
) -> None:
    served.add(TORCH_FILE, torch_wheel())
    for requirement, again in (("torch==2.12.*", True), ("torch===2.12.1", False)):
        index.ask((requirement,), PLATFORM)
        kept = index._kept((requirement,), PLATFORM)
        os.utime(kept, (kept.stat().st_mtime - 90_000,) * 2)
        served.asked.clear()
        index.ask((requirement,), PLATFORM)
        assert bool(served.asked) == again


@pytest.mark.parametrize(
    ("url", "path", "beside"),
    [
        ("https://h/a/packages/1/t-1%2Bcpu.whl?k=v", "packages/2/t-1+x.whl", "https://h/a/packages/2/t-1%2Bx.whl"),
        ("https://h/wheels/t-1%2Bcpu.whl", "t-1.whl", "https://h/wheels/t-1.whl"),
        ("file:///opt/packages/t-1.whl", "t-2.whl", "file:///opt/packages/t-2.whl"),
    ],
)
def test_another_file_of_an_index_is_found_by_its_path(url: str, path: str, beside: str) -> None:
    assert Found("t", "1", url, "").beside(path) == beside


def test_secrets_are_taken_out_of_texts() -> None:
    assert without_secrets("at https://a:b@h/x.whl?k=v and 'https://h/y?z'") == "at https://h/x.whl and 'https://h/y'"
