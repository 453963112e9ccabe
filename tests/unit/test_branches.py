"""Branches that are called as versions are."""

from __future__ import annotations

import pytest

from hubkernels.hub.branches import version_of


@pytest.mark.parametrize(("branch", "version"), [("v1", 1), ("v0", 0), ("v12", 12)])
def test_a_version_s_branch_is_v_and_its_number(branch: str, version: int) -> None:
    assert version_of(branch) == version


@pytest.mark.parametrize("branch", ["", "v", "1", "V1", "v1.0", "v-1", "v1\n", "v\u0661", "v\u00b2", "v1_0", "main"])
def test_other_branches_are_no_version_s(branch: str) -> None:
    """Digits of other scripts used to count in some places and not in others."""
    assert version_of(branch) is None
