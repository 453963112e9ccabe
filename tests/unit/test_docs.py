"""The documents name every verb, option and key that there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hubkernels.cli.app import app
from hubkernels.cli.tree import verbs
from hubkernels.config import edition
from hubkernels.model.backend import BACKENDS
from tests.conftest import Cli

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


VERBS = [verb for verb in verbs(app) if verb.words and not verb.hidden]
GROUPS = {verb.words[:-1] for verb in VERBS}


@pytest.mark.parametrize("verb", [" ".join(verb.words) for verb in VERBS if verb.words not in GROUPS])
def test_the_guide_to_the_command_line_tells_what_every_verb_is_for(verb: str) -> None:
    assert f"**`{verb}" in read("docs/cli.md")


def test_the_reference_of_the_command_line_is_what_the_command_line_has(cli: Cli) -> None:
    assert read("docs/cli-reference.md") == cli("generate-docs").out


def test_every_key_is_in_the_build_toml_reference() -> None:
    words = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`\n]+)`", read("docs/build-toml.md")))))
    sections = {key for backend in BACKENDS.values() for key in backend.section_keys | set(backend.general_keys)}
    keys = {
        *edition.GENERAL_KEYS,
        *edition.TORCH_KEYS,
        *edition.NOARCH_KEYS,
        *edition.TVM_FFI_KEYS,
        *edition.SECTION_KEYS,
        *edition.FRAMEWORKS,
        *edition.EXTENSIONS,
        *sections,
        *BACKENDS,
        "schema",
        "members",
    }
    assert keys - words == set()


@pytest.mark.parametrize(
    "name", sorted(str(path.relative_to(REPOSITORY)) for path in (*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")))
)
def test_every_file_that_a_document_names_exists(name: str) -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", read(name))]
    paths = re.findall(r"`((?:src|tests|docs|scripts)/[\w./-]+)`", read(name))
    missing = [link for link in links if "://" not in link and not (REPOSITORY / name).parent.joinpath(link).exists()]
    assert missing + [path for path in paths if not (REPOSITORY / path).exists()] == []


def test_the_edition_5_text_of_the_example_is_what_is_printed(cli: Cli) -> None:
    """But for the numbers of lines, which move with every package."""
    _, _, told = read("docs/build-toml.md").partition("$ kernel-builder explain --config ms-deform-attn\n")
    printed = cli("explain", "--config", "ms-deform-attn", "--project", REPOSITORY).out
    example, text = (re.sub(r"build\.toml:\d+", "build.toml:N", each) for each in (told.partition("...\n")[0], printed))
    assert text.startswith(example)
    assert "edition = 5" in example


PEERS = ("F.rms_norm", "torch.compile", "kernels-community")


DIRECTIONS = {"fwd": "forward", "f+b": "forward and backward"}
DTYPES = {"bfloat16": "bf16", "float32": "fp32"}


def table_row(record: dict[str, Any]) -> str:
    """The row of README's results that a record makes."""
    medians = {peer["name"]: peer["median_us"] for peer in record["peers"]}
    words, dtype = DIRECTIONS[record["direction"]], DTYPES[record["dtype"]]
    memory = {"pre-touched": "touched before", "default malloc": "fresh memory"}[record["page_faults"]]
    times = [*(medians[name] for name in PEERS), record["median_us"]]
    cells = [f"**{time:.0f}**" if time == min(times) else f"{time:.0f}" for time in times]
    shape = "x".join(map(str, record["shape"]))
    return f"| {shape} {dtype} {words}, {memory} | {' | '.join(cells)} | {record['share_of_copy']:.0%} |"


def measured_row(record: dict[str, Any]) -> str:
    """The row of a kernel's page that a record makes; a shape of many numbers goes by its name."""
    words, dtype = DIRECTIONS[record["direction"]], DTYPES[record["dtype"]]
    shape = "x".join(map(str, record["shape"])) if len(record["shape"]) < 6 else record["shape_name"]
    peers = [peer["median_us"] for peer in record["peers"][:2]]
    ours = record["median_us"]
    times = " | ".join(f"{time:,.0f}" for time in peers)
    return f"| `{record['op']}` {shape} {dtype} {words} | {times} | **{ours:,.0f}** | {min(peers) / ours:.2f}x |"


@pytest.mark.parametrize("name", ["rms-norm", "activation", "ms-deform-attn"])
def test_every_row_of_a_kernel_s_page_is_a_record(name: str) -> None:
    records = [json.loads(path.read_text()) for path in (REPOSITORY / "bench/records").glob(f"{name}-*.json")]
    lines = read(f"docs/kernels/{name}.md").partition("## Measured")[2].splitlines()
    rows = [line for line in lines if line.startswith("|")][2:]
    assert rows
    assert set(rows) <= {measured_row(record) for record in records}
    assert not [record["op"] for record in records if record["git"]["dirty"]]


def test_every_row_of_the_results_is_a_record_and_every_record_is_a_row() -> None:
    records = [json.loads(path.read_text()) for path in (REPOSITORY / "bench/records").glob("rms-norm-rms_norm-*.json")]
    text = read("README.md").partition("## Results")[2].partition("## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert records
    assert sorted(rows) == sorted(table_row(record) for record in records)
    assert not any(record["git"]["dirty"] for record in records)
