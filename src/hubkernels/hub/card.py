"""The card of a repository, README.md on main: text made of facts, the same text for the same facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hubkernels.bench.record import Record
from hubkernels.hub.benchmarks import bench_lines
from hubkernels.hub.description import Function
from hubkernels.hub.markdown import plain, table

CARD = "README.md"
PLOT = "media/benchmarks.svg"
"""Where the plot is, on main beside the card: pages of a Hub show no SVG that stands in their text."""


@dataclass(frozen=True)
class CardVariant:
    """A variant of the branch. commit, dirty: of its sources, as far as its metadata tell."""

    tag: str
    backend: str
    size: int
    digest: str
    commit: str | None
    dirty: bool


@dataclass(frozen=True)
class Parity:
    """Of one variant, at one digest. worst: the largest error, in units of the tolerance, as text."""

    tag: str
    digest: str
    passed: int
    rows: int
    worst: str

    @property
    def cells(self) -> tuple[str, ...]:
        return f"`{self.tag}`", f"`{self.digest[:16]}`", f"{self.passed}/{self.rows}", self.worst


@dataclass(frozen=True)
class CardFacts:
    """commit: of the branch, which is what the card tells to load."""

    repo_id: str
    commit: str
    branch: str
    version: int
    license: str
    about: str
    variants: tuple[CardVariant, ...]
    functions: tuple[Function, ...] = ()
    layers: tuple[str, ...] = ()
    parity: tuple[Parity, ...] = ()
    records: tuple[Record, ...] = ()
    upstream: str | None = None
    source: str | None = None
    has_benchmark: bool = False

    @property
    def dirty(self) -> bool:
        return any(variant.dirty for variant in self.variants)


def render(facts: CardFacts) -> str:
    parts = (_head, _use, _variants, _functions, _layers, _parity, _benchmarks, _provenance)
    blocks = ["\n".join(_front_matter(facts)), *("\n\n".join(part(facts)) for part in parts)]
    return "\n\n".join(block for block in blocks if block) + "\n"


_ROW = re.compile(r"^\| `([\w-]+)` \| `([0-9a-f]{16})` \| ([0-9]+)/([0-9]+) \| ([^|\n]*) \|$", re.MULTILINE)


def parity_in(card: str) -> tuple[Parity, ...]:
    """The figures of a card that is there: a machine that cannot run a variant leaves what another one found.

    The digests are as far as the card has them.
    """
    return tuple(Parity(tag, digest, int(ok), int(rows), worst) for tag, digest, ok, rows, worst in _ROW.findall(card))


def settle_parity(
    found: Sequence[Parity], before: Sequence[Parity], variants: Sequence[CardVariant]
) -> tuple[Parity, ...]:
    """One row for each variant of which something is known. found: of this run.

    Where the card that is there says the same of the same bytes, its row stays: the largest error may vary by machine.
    """
    now = {row.tag: row for row in found}
    was = {row.tag: row for row in before}
    rows = []
    for variant in variants:
        new, old = now.get(variant.tag), was.get(variant.tag)
        if old and variant.digest.startswith(old.digest) and (new is None or new.cells[:3] == old.cells[:3]):
            rows.append(old)
        elif new and new.digest == variant.digest:
            rows.append(new)
    return tuple(rows)


def _front_matter(facts: CardFacts) -> Iterator[str]:
    yield "---"
    yield f"license: {facts.license.lower()}"
    yield "library_name: kernels"
    yield "tags:"
    yield from (f"- {tag}" for tag in ("kernel", *sorted({variant.backend for variant in facts.variants})))
    yield "---"


def _head(facts: CardFacts) -> Iterator[str]:
    yield f"# {facts.repo_id.partition('/')[2]}"
    if facts.dirty:
        yield "> **Built of files that were not committed:** nobody can build these again from the commit named below."
    if facts.about:
        yield facts.about


def _use(facts: CardFacts) -> Iterator[str]:
    yield "## Use"
    lines = ("from kernels import get_kernel", "", f'kernel = get_kernel("{facts.repo_id}", revision="{facts.commit}")')
    yield "\n".join(("```python", *lines, "```"))
    yield (
        f"The commit is that of version {facts.version} (branch `{facts.branch}`) when this was written: what it loads "
        "never changes. The kernel of an organization that the Hub does not vouch for needs `trust_remote_code=True`."
    )


def _variants(facts: CardFacts) -> Iterator[str]:
    yield "## Variants"
    rows = [
        (
            f"`{each.tag}`",
            plain(each.backend),
            f"{each.size / 1e6:.2f} MB",
            f"`{each.digest[:16]}`" if each.digest else "none",
        )
        for each in facts.variants
    ]
    yield table(("variant", "backend", "size", "digest"), rows)


def _functions(facts: CardFacts) -> Iterator[str]:
    if facts.functions:
        yield "## Functions"
        yield "\n".join(
            f"- `{each.signature or each.name}`{f': {each.summary}' if each.summary else ''}"
            for each in facts.functions
        )


def _layers(facts: CardFacts) -> Iterator[str]:
    if facts.layers:
        yield "## Layers"
        yield "For `kernels.kernelize`, in `kernel.layers`:"
        yield "\n".join(f"- `{name}`" for name in facts.layers)


def _parity(facts: CardFacts) -> Iterator[str]:
    if facts.parity:
        yield "## Parity"
        yield "Outputs and gradients of the published variant against a float64 reference, loaded back at the commit."
        yield table(
            ("variant", "digest", "agree", "largest error / tolerance"), [parity.cells for parity in facts.parity]
        )


def _benchmarks(facts: CardFacts) -> Iterator[str]:
    if facts.records:
        yield "## Benchmarks"
        if any(record.peers for record in facts.records):
            yield f"![time of one call over that of the fastest peer]({PLOT})"
        yield from bench_lines(facts.records, {each.digest for each in facts.variants})


def _provenance(facts: CardFacts) -> Iterator[str]:
    yield "## Provenance"
    commits = sorted({each.commit for each in facts.variants if each.commit})
    links = (("Source", facts.source), ("Upstream", facts.upstream))
    lines = [f"- {word}: {link}" for word, link in links if link]
    lines += [f"- Commit of the sources: `{commit}`" for commit in commits]
    yield "\n".join((*lines, f"- Licence: {facts.license}"))
