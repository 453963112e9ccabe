"""The documents name every verb, option and key that there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

from hubkernels.cli.app import app
from hubkernels.config import edition
from hubkernels.model.backend import BACKENDS

REPOSITORY = Path(__file__).parents[2]


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def verbs(command: Any, path: str = "") -> dict[str, Any]:  # noqa: ANN401 - typer brings a click of its own
    """Every verb below a command, by its words."""
    below = getattr(command, "commands", {})
    if not below:
        return {path: command}
    return {words: verb for name, sub in below.items() for words, verb in verbs(sub, f"{path} {name}".strip()).items()}


VERBS = verbs(typer.main.get_command(app))


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_option_is_in_the_command_line_reference(verb: str) -> None:
    text = read("docs/cli.md")
    assert f"**`{verb}" in text
    options = {option for parameter in VERBS[verb].params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {option for option in options if option.startswith("-") and f"`{option}" not in text} <= {"--help"}


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


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/cli.md", "docs/build-toml.md"])
def test_every_file_that_a_document_names_exists(name: str) -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", read(name))]
    paths = re.findall(r"`((?:src|tests|docs|scripts)/[\w./-]+)`", read(name))
    missing = [link for link in links if "://" not in link and not (REPOSITORY / name).parent.joinpath(link).exists()]
    assert missing + [path for path in paths if not (REPOSITORY / path).exists()] == []


PEERS = ("F.rms_norm", "torch.compile", "kernels-community")


def table_row(record: dict[str, Any]) -> str:
    """The row of README's results that a record makes."""
    medians = {peer["name"]: peer["median_us"] for peer in record["peers"]}
    words = {"fwd": "forward", "f+b": "forward and backward"}[record["direction"]]
    dtype = {"bfloat16": "bf16", "float32": "fp32"}[record["dtype"]]
    memory = {"pre-touched": "touched before", "default malloc": "fresh memory"}[record["page_faults"]]
    times = [*(medians[name] for name in PEERS), record["median_us"]]
    cells = [f"**{time:.0f}**" if time == min(times) else f"{time:.0f}" for time in times]
    shape = "x".join(map(str, record["shape"]))
    return f"| {shape} {dtype} {words}, {memory} | {' | '.join(cells)} | {record['share_of_copy']:.0%} |"


def test_every_row_of_the_results_is_a_record_and_every_record_is_a_row() -> None:
    records = [json.loads(path.read_text()) for path in (REPOSITORY / "bench/records").glob("rms-norm-rms_norm-*.json")]
    text = read("README.md").partition("## Results")[2].partition("## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert records
    assert sorted(rows) == sorted(table_row(record) for record in records)
    assert not any(record["git"]["dirty"] for record in records)
