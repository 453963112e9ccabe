"""Lines that arrive in pieces say what they say in one; long files go to the disk."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.ndjson import LONG, Lines

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=5,
)


def read(scratch: Path, pieces: Iterator[bytes] | list[bytes]) -> list[Any]:
    with closing(Lines(scratch, 1 << 30)) as lines:
        return [value for piece in pieces for value in lines.feed(piece)] + list(lines.finish())


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(VALUES, max_size=5), cuts=st.lists(st.integers(0, 500), max_size=6), data=st.data())
def test_where_a_line_is_cut_makes_no_difference(tmp_path: Path, values: list[Any], cuts: list[int], data: Any) -> None:  # noqa: ANN401
    plain = data.draw(st.booleans())
    text = b"".join(json.dumps(value, ensure_ascii=plain).encode("utf-8", "surrogatepass") + b"\n" for value in values)
    text = text[:-1] if data.draw(st.booleans()) else text
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert read(tmp_path, pieces) == values


@pytest.mark.parametrize("size", [LONG // 4 * 3 - 1, LONG // 4 * 3, LONG // 4 * 3 + 1, 200_000, 200_001, 1_000_003])
@pytest.mark.parametrize("step", [1 << 20, 65_537, 1000])
def test_a_long_file_goes_to_the_disk(tmp_path: Path, size: int, step: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    content = content[:size]
    line = json.dumps({"path": "a", "content": base64.b64encode(content).decode()}).encode() + b"\n"
    with closing(Lines(tmp_path, 1 << 30)) as lines:
        for start in range(0, len(line), step):
            for value in lines.feed(line[start : start + step]):
                file = lines.file(value["content"])
                if file:
                    file.seek(0)
                found = file.read() if file else base64.b64decode(value["content"])
                assert found == content
                assert (file is not None) == (size > LONG // 4 * 3)
                lines.forget_files()
    assert not list(tmp_path.iterdir())


def test_no_client_can_name_another_s_file(tmp_path: Path) -> None:
    with closing(Lines(tmp_path, 1 << 30)) as lines:
        line = json.dumps({"content": "abcd" * 100_000}).encode() + b"\n"
        (value,) = lines.feed(line)
        assert lines.file(value["content"])
        lines.forget_files()
        assert lines.file(value["content"]) is None
        assert lines.file(["x"]) is None


def test_what_is_left_of_a_refused_line_is_deleted(tmp_path: Path) -> None:
    with closing(Lines(tmp_path, 100_000)) as lines, pytest.raises(Refusal, match="more than 100000 bytes"):
        list(lines.feed(b'{"content": "' + b"abcd" * 100_000))
    assert not list(tmp_path.iterdir())


def test_a_line_opens_one_file(tmp_path: Path) -> None:
    """Each long string opened one, up to the end of the line: thousands left the Hub no descriptor."""
    long = json.dumps("abcd" * 20_000).encode()
    with closing(Lines(tmp_path, 1 << 30)) as lines:
        for _ in range(3):
            assert len(list(lines.feed(b'{"content": ' + long + b"}\n"))) == 1
            lines.forget_files()
        with pytest.raises(Refusal, match="a line has one text of more than 65536 bytes"):
            list(lines.feed(b"[" + long + b", " + long))
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())
