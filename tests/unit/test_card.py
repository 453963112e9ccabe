"""The text of a card, and what is read of a kernel for it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from hubkernels.bench.record import Record
from hubkernels.hub.benchmarks import plot
from hubkernels.hub.card import PLOT, CardFacts, CardVariant, Parity, parity_in, render, settle_parity
from hubkernels.hub.description import Function, describe, first_paragraph
from hubkernels.hub.local.card import card_errors, card_warnings
from hubkernels.hub.show import is_front
from tests.conftest import REPOSITORY

CPU = CardVariant("torch-cpu", "cpu", 2_500_000, "a" * 64, "c" * 40, dirty=False)
FACTS = CardFacts("org/my-kernel", "1" * 40, "v1", 1, "Apache-2.0", "Squares.", (CPU,))
TIMES = {"median_us": 1.0, "best_us": 1.0, "spread_us": [1.0, 1.0], "runs": 5}
ROW = Parity("torch-cpu", "a" * 64, 24, 24, "0.51")


def record() -> Record:
    file = REPOSITORY / "bench/records/rms-norm-rms_norm-float32-4096x4096-fwd-t2-pre-touched.json"
    return Record.from_json(json.loads(file.read_text()))


def test_the_front_matter_is_what_the_hub_takes() -> None:
    text = render(FACTS)
    assert (card_errors(text), card_warnings(text)) == ([], [])


def test_sections_without_content_are_left_out() -> None:
    headings = [line for line in render(FACTS).splitlines() if line.startswith("#")]
    assert headings == ["# my-kernel", "## Use", "## Variants", "## Provenance"]


def test_a_card_is_read_as_it_was_written() -> None:
    text = render(replace(FACTS, parity=(ROW,)))
    assert parity_in(text) == (replace(ROW, digest="a" * 16),)


def test_figures_of_the_same_bytes_stay() -> None:
    """From a run that did not look, and from one that found another error on another machine."""
    old = replace(ROW, digest="a" * 16)
    assert settle_parity((), (old,), (CPU,)) == (old,)
    assert settle_parity((replace(ROW, worst="0.52"),), (old,), (CPU,)) == (old,)
    more = replace(ROW, passed=25, rows=25)
    assert settle_parity((more,), (old,), (CPU,)) == (more,)


def test_figures_of_other_bytes_go() -> None:
    assert settle_parity((), (replace(ROW, digest="b" * 16),), (CPU,)) == ()
    assert settle_parity((replace(ROW, digest="b" * 64),), (), (CPU,)) == ()
    assert settle_parity((), (replace(ROW, tag="torch-cuda", digest="a" * 16),), (CPU,)) == ()


def test_a_plot_is_an_image_whatever_the_names_are() -> None:
    strange = replace(record(), op='<a & "b">')
    root = ET.fromstring(plot([strange, replace(strange, peers=())]))  # noqa: S314 - our own text
    texts = [found.text or "" for found in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ['<a & "b"> float32 4096x4096 fwd pre-touched', "0.77 of kernels-community"]


ADDRESSES = (
    "see HTTPS://example.org/x",
    "www.example.org",
    "me@example.org",
    "mailto:me@example.org",
    "xmpp:me@example.org",
)
BREAK = "@<!-- -->"
"""Without it an `@` is found after escapes are resolved."""

USE = 'x\r\n\n## Use\x85\n```python\u2028get_kernel("evil/x")\n```\n|[a](b)|`<img src=x>\ud800\0'


@pytest.mark.parametrize(
    "name", ["cpu", "isa", "torch", "page_faults", "op", "dtype", "direction", "digest", "shape", "peer"]
)
@pytest.mark.parametrize("words", [USE, "# Use", "~~~", "- x", "<b>", "***", *ADDRESSES])
def test_a_record_writes_no_more_than_its_cell_of_the_card(name: str, words: str) -> None:
    """The machine with the GPU sends records: a processor of several lines made a section that loads another kernel."""
    whole = record().to_json()
    changes: dict[str, dict[str, Any]] = {
        **{part: {"machine": {**whole["machine"], part: words}} for part in ("cpu", "isa")},
        "torch": {"versions": {**whole["versions"], "torch": words}},
        "shape": {"shape": [1, 2, 3, 4, 5, 6], "shape_name": words},
        "peer": {"peers": [{"name": words, "error": 0.1, "ratio": 0.5, **TIMES}]},
    }
    found = Record.from_json({**whole, **changes.get(name, {name: words})})
    usual, text = (render(replace(FACTS, records=(each,))) for each in (record(), found))
    text.encode()
    assert len(text.splitlines()) == len(usual.splitlines())
    assert [line for line in text.splitlines() if line.startswith("#")] == HEADINGS
    *_, row = (line for line in text.splitlines() if line.startswith("|"))
    assert len(re.split(r"(?<!\\)\|", row)) == 10
    section = text.partition("## Benchmarks")[2].partition("## Provenance")[0].replace(f"]({PLOT})", "")
    bare = re.sub(r"(?<!\\)`[^`]*`", "", section)
    bare = bare.replace(BREAK, "")
    assert not re.search(r"(?<!\\)(\]\(|[<`#~*])|^-", bare, re.MULTILINE), bare
    assert not re.search(r"(?i)[a-z]://|www\.|@", bare), bare
    ET.fromstring(plot([found]))  # noqa: S314 - our own text


@pytest.mark.parametrize("words", [*ADDRESSES, "<b>", "[a](b)", "*x*"])
def test_a_backend_of_a_branch_writes_no_more_than_its_cell(words: str) -> None:
    """The metadata that are there may be anybody's who can write there."""
    text = render(replace(FACTS, variants=(replace(CPU, backend=words),)))
    row = text.splitlines()[text.splitlines().index("| --- | --- | --- | --- |") + 1].replace(BREAK, "")
    assert not re.search(r"(?i)[a-z]://|www\.|@|(?<!\\)[<*\[]", row), row


HEADINGS = ["# my-kernel", "## Use", "## Variants", "## Benchmarks", "## Provenance"]


def test_records_without_peers_have_no_picture() -> None:
    assert "media/" not in render(replace(FACTS, records=(replace(record(), peers=()),)))


INIT = b'''"""Squares, and
more.

Not this."""
__all__ = ["layers", "square", "ISA"]
'''


def test_functions_are_told_as_they_are_written() -> None:
    source = b'def square(x: Tensor, *, scale: float = 2.0) -> Tensor:\n    """Square it: ``x * x``.\n\n    More."""\n'
    found = describe({"__init__.py": INIT, "op.py": source})
    assert found.about == "Squares, and more."
    assert found.functions == (Function("ISA"), Function("square", "square(x, *, scale=2.0)", "Square it: ``x * x``."))


@pytest.mark.parametrize("name", ["layers.py", "layers/__init__.py"])
def test_layers_are_those_of_all_or_the_public_classes(name: str) -> None:
    classes = b"class B: ...\nclass _C: ...\nclass A: ...\n"
    assert describe({"__init__.py": INIT, name: classes}).layers == ("A", "B")
    assert describe({"__init__.py": INIT, name: classes + b'__all__ = ["B"]\n'}).layers == ("B",)
    assert describe({"__init__.py": b"__all__ = []", name: classes}).layers == ()


def test_python_that_is_none_says_nothing() -> None:
    assert describe({"__init__.py": b"def"}).functions == ()


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("---\nlicense: mit\n---\n# Name\n\n[![b](c)](d)\n\nOne\ntwo.\n\nThree.", "One two."),
        ("```\ncode\n\nmore\n```\n\nProse.", "Prose."),
        ("# Name\n", ""),
    ],
)
def test_the_first_paragraph_is_prose(text: str, first: str) -> None:
    assert first_paragraph(text) == first


@pytest.mark.parametrize(
    ("branch", "branches", "is_it"),
    [
        ("v1", ("main", "v1"), True),
        ("v1", ("v1", "v10"), False),
        ("v10", ("v9", "v10"), True),
        ("test", ("main", "test"), True),
        ("test", ("main", "test", "v1"), False),
    ],
)
def test_the_card_is_of_the_newest_version(branch: str, branches: tuple[str, ...], is_it: bool) -> None:  # noqa: FBT001
    assert is_front(branch, branches) is is_it
