"""What the stock client and the Hub demand of names in build.toml and metadata.json."""

from __future__ import annotations

import re
from collections.abc import Mapping

PYTHON_DEPENDS: Mapping[str, Mapping[str, tuple[str, str | None]]] = {
    "": {
        "einops": ("einops", "einops"),
        "helion": ("helion", "helion"),
        "tvm-ffi": ("apache-tvm-ffi", "tvm_ffi"),
    },
    "cuda": {"nvidia-cutlass-dsl": ("nvidia-cutlass-dsl", "cutlass")},
    "xpu": {"onednn": ("onednn-devel", None)},
    "neuron": {"nki": ("nki", "nki")},
}
"""What the client lets a kernel depend on, for every backend and for one: the package, and what is imported of it.

A kernel that names another fails to load.
"""

_HOST = r"([\w-]+\.)*[a-z][\w-]*"
GIT_URL = re.compile(
    rf"(https?|git|ssh|git\+ssh|git\+https?)://([^\s/@:]+@)?{_HOST}(:[1-5]?\d{{1,4}})?(/\S*)?|[\w.-]+@{_HOST}:[^\s/]\S*",
    re.ASCII | re.IGNORECASE,
)
"""An address of a git repository, on a host with a name."""

COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
"""A full commit hash, of either kind that git has."""

SHA1_COMMIT = re.compile(r"[0-9a-f]{40}")
"""A full commit hash of the kind that the Hub has."""

_BEGINNING = re.compile(r"(?![0-9]{7,39}\Z)[0-9a-fA-F]{7,64}")
"""Of a commit hash, as short as git and the Hub show it; a branch may be called ``2026``, ``feed`` or by a date."""


def begins_a_commit(revision: str) -> bool:
    """Whether this looks as a commit hash that is not whole."""
    return COMMIT.fullmatch(revision.lower()) is None and _BEGINNING.fullmatch(revision) is not None


def may_stand_for(revision: str, commit: str) -> bool:
    """Whether a Hub may name this commit for a revision: what looks like a hash begins that of the commit."""
    return _BEGINNING.fullmatch(revision) is None or commit.startswith(revision.lower())


BEGINNING_RULE = (
    "7 digits of hex and more are the beginning of a commit: refs/heads/NAME is a branch of such a name, refs/tags/NAME"
    " a tag"
)
"""may_stand_for in words."""

_WORD = r"[A-Za-z0-9_]([A-Za-z0-9_]|[-.](?![-.]))*(?<![-.])"
REPO_ID = re.compile(rf"(?=.{{3,96}}\Z){_WORD}/{_WORD}(?<!\.git)")
"""A repository on the Hub: owner and name; no two of ``-`` and ``.`` in a row, none at an end."""

REPO_RULE = "OWNER/NAME: letters, digits, - _ . with no two of - and . in a row, at most 96 characters"
"""REPO_ID in words."""


def spelled_alike(name: str) -> str:
    """What the Hub holds equal: `org/ms_deform_attn`, `org/ms-deform-attn` and `Org/MS-Deform-Attn` are one."""
    return name.lower().replace("_", "-")


_REFUSED_IN_BRANCH = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|\Z)|\A[-/.@]\Z|\A[-/.]|[/.]\Z")


def is_branch(name: str) -> bool:
    """Whether git takes this as the name of a branch."""
    return bool(name) and not _REFUSED_IN_BRANCH.search(name)


LICENSES = frozenset(
    {
        *("afl-3.0", "agpl-3.0", "apache-2.0", "apple-amlr", "apple-ascl", "artistic-2.0", "bigcode-openrail-m"),
        *("bigscience-bloom-rail-1.0", "bigscience-openrail-m", "bsd", "bsd-2-clause", "bsd-3-clause"),
        *("bsd-3-clause-clear", "bsl-1.0", "c-uda", "cc", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0"),
        *("cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0"),
        *("cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0"),
        *("cc-by-sa-4.0", "cc0-1.0", "cdla-permissive-1.0", "cdla-permissive-2.0", "cdla-sharing-1.0"),
        *("creativeml-openrail-m", "deepfloyd-if-license", "ecl-2.0", "epl-1.0", "epl-2.0", "etalab-2.0"),
        *("eupl-1.1", "eupl-1.2", "fair-noncommercial-research-license", "gemma", "gfdl", "gpl", "gpl-2.0"),
        *("gpl-3.0", "grok2-community", "h-research", "intel-research", "isc", "lgpl", "lgpl-2.1", "lgpl-3.0"),
        *("lgpl-lr", "llama2", "llama3", "llama3.1", "llama3.2", "llama3.3", "llama4", "lppl-1.3c", "mit"),
        *("mpl-2.0", "ms-pl", "ncsa", "odbl", "odc-by", "ofl-1.1", "openmdw-1.0", "openrail", "openrail++"),
        *("osl-3.0", "other", "pddl", "postgresql", "unknown", "unlicense", "wtfpl", "zlib"),
    }
)
"""Licence ids that the Hub takes in a card, lower-cased as upstream's builder writes them there."""
