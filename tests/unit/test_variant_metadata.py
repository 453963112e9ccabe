"""What a published variant's metadata tell, whatever is in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hubkernels.hub.variant_metadata import Sources, read_variant, sources_of

COMMIT = "a" * 40


@pytest.mark.parametrize(
    ("provenance", "expected"),
    [
        ({"kernel": {"commit": COMMIT, "dirty": False}}, Sources(COMMIT, dirty=False)),
        ({"kernel": {"sha": COMMIT, "dirty": True}}, Sources(COMMIT, dirty=True)),
        ({"kernel": {"commit": "main", "dirty": "no"}}, Sources()),
        ({"kernel": [COMMIT]}, Sources()),
        ([], Sources()),
        (None, Sources()),
    ],
)
def test_the_sources_of_a_variant_are_read_in_one_way(provenance: Any, expected: Sources) -> None:  # noqa: ANN401
    assert sources_of({"provenance": provenance}) == expected


@pytest.mark.parametrize("digest", [None, [], {"files": []}, {"algorithm": "sha256"}])
def test_a_digest_that_is_none_names_no_file(digest: Any) -> None:  # noqa: ANN401 - any JSON
    found = read_variant("build/torch-cpu/metadata.json", json.dumps({"digest": digest}).encode(), "here")
    assert (found.tag, found.files, found.promised) == ("torch-cpu", {}, {})
