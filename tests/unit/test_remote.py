"""What is told of an error of the Hub's client, and what is no error of it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from hubkernels.errors import EnvironmentLacksError
from hubkernels.hub.changes import Changes
from hubkernels.hub.offer import Content
from hubkernels.hub.remote import Remote

pytest.importorskip("huggingface_hub", reason="an extra: what asks the Hub")


def test_a_bug_of_ours_is_not_told_as_a_hub_that_is_none() -> None:
    """It was "that is no Hub": ours ran inside what catches the client's errors."""
    with pytest.raises(KeyError, match="missing"):
        Remote("org/op").commit("v1", "a" * 40, "x", {}, Changes(("missing",), (), (), ()))
    with pytest.raises(ValueError, match="path_in_repo"):
        Remote("org/op").commit("v1", "a" * 40, "x", {"../x": Content(b"")}, Changes(("../x",), (), (), ()))


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/scratch/x"), "/scratch/x"),
        (OSError(errno.ENOSPC, "No space left on device"), "{cache}, or {tmp}"),
    ],
)
def test_a_full_disk_is_told_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, where: str
) -> None:
    """A full TMPDIR was told as the client's cache."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail() -> None:
        raise error

    with pytest.raises(EnvironmentLacksError, match="cannot read or write a file: No space left") as caught:
        Remote("org/op", cache=Path("/cache"))._ask(fail)
    assert caught.value.problems[0].where == where.format(cache="/cache", tmp=tmp_path)
