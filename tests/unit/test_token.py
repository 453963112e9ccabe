"""What is told of a token of the Hub that is none: the file, the way out, and never the token."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub", reason="an extra: what asks the Hub")

from hubkernels.errors import InputError
from hubkernels.hub.remote import Remote

SECRET = "hf_secret"  # noqa: S105 - none


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    return tmp_path / "token"


@pytest.mark.parametrize("own", ["", " ", "\n"])
@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda file: file.write_bytes(bytes(range(128, 256))), "other than printable ASCII"),
        (lambda file: file.write_text(SECRET, encoding="utf-16"), "other than printable ASCII"),
        (lambda file: file.write_text("hf_\0secret", encoding="ascii"), "other than printable ASCII"),
        (lambda file: file.write_bytes(b"hf_secret" * 10_000), "more than 65536 bytes"),
        (lambda file: file.mkdir(), "cannot be read: Is a directory"),
        (lambda file: file.symlink_to(file), "cannot be read: Too many levels of symbolic links"),
        (os.mkfifo, "cannot be read: is no regular file"),
    ],
    ids=["bytes", "UTF-16", "NUL", "long", "folder", "loop", "pipe"],
)
def test_a_file_that_has_no_token_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], what: str, own: str
) -> None:
    """These were tracebacks, an error of the client's with the token in it, and, of a pipe, no end.

    A variable with nothing but space is as none, and the client goes on to the file.
    """
    monkeypatch.setenv("HF_TOKEN", own)
    make(file)
    with pytest.raises(InputError, match=what) as caught:
        Remote("org/op")
    (problem,) = caught.value.problems
    assert problem.where == str(file)
    assert "HF_TOKEN, or HF_TOKEN_PATH" in str(problem.hint)
    assert "secret" not in str(problem).replace(str(file), "")


def test_a_token_of_the_environment_is_taken_whatever_the_file_is(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(file)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert Remote("org/op").credentials()["HF_TOKEN"] == SECRET
    monkeypatch.setenv("HF_TOKEN", f"{SECRET}\x07")
    with pytest.raises(InputError, match="other than printable ASCII"):
        Remote("org/op")


def test_a_file_with_a_token_is_taken_as_the_client_does(file: Path) -> None:
    assert "HF_TOKEN" not in Remote("org/op").credentials()
    file.write_text(f" {SECRET}\r\n", encoding="ascii")
    assert Remote("org/op").credentials()["HF_TOKEN"] == SECRET


def test_no_token_is_taken_where_none_is_to_be_sent_unasked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client sends none then, and looks at no file; what it was held to have was handed on to other processes."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    os.mkfifo(file)
    assert "HF_TOKEN" not in Remote("org/op").credentials()
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert "HF_TOKEN" not in Remote("org/op").credentials()
    assert Remote("org/op", token=f" {SECRET}\n").credentials()["HF_TOKEN"] == SECRET
