"""Benchmark records as a card shows them: tables by machine, and a plot that needs no library to draw."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from hubkernels.bench.record import PeerResult, Record
from hubkernels.hub.markdown import code, one_line, plain, table

_HEAD = ("op", "dtype", "shape", "", "us, median [quartiles]", "of copy", "fastest peer, us", "ours / peer")


def bench_lines(records: Sequence[Record], digests: Collection[str]) -> Iterator[str]:
    """A line and a table for each machine and way of measuring. digests: of what is published."""

    def where(record: Record) -> tuple[bool, str]:
        machine, torch = record.machine, record.versions.torch
        of = "these bytes" if record.digest in digests else f"another build, digest {code(record.digest[:16])}"
        parts = (machine.cpu, machine.isa, f"{record.threads} threads", f"torch {torch}", record.page_faults)
        return record.digest not in digests, f"{', '.join(plain(part) for part in parts if part)}; of {of}:"

    ordered = sorted(records, key=lambda record: (where(record), _name(record)))
    for (_, line), rows in groupby(ordered, key=where):
        yield line
        yield table(_HEAD, [_row(record) for record in rows])


def plot(records: Sequence[Record]) -> str:
    """A bar a record: our time over that of the fastest peer. The line is where they are equal."""
    rows = [(record, peer) for record in sorted(records, key=_name) if (peer := fastest(record))]
    height, scale = 18, 200
    body = [f'<line x1="{_LEFT + scale}" x2="{_LEFT + scale}" y1="0" y2="{height * len(rows)}" stroke="#888"/>']
    for number, (record, peer) in enumerate(rows):
        width, y = min(peer.ratio, 2.0) * scale, number * height
        colour = "#2a7ab0" if peer.ratio <= 1 else "#c0702a"
        body.append(f'<rect x="{_LEFT}" y="{y + 3}" width="{width:.1f}" height="12" fill="{colour}"/>')
        body.append(_text(_LEFT - 6, y + 13, _name(record), "end"))
        body.append(_text(_LEFT + width + 6, y + 13, f"{peer.ratio:.2f} of {peer.name}", "start"))
    size = f'width="{_LEFT + 2 * scale + 160}" height="{height * len(rows)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    return "\n".join((head, '<rect width="100%" height="100%" fill="#fff"/>', *body, "</svg>", ""))


_LEFT = 430
"""Room for the names of the rows."""


def fastest(record: Record) -> PeerResult | None:
    return min(record.peers, key=lambda peer: (peer.time.median_us, peer.name), default=None)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" fill="#222">{html.escape(one_line(text))}</text>'


def _name(record: Record) -> str:
    return f"{record.op} {record.dtype} {_shape(record)} {record.direction} {record.page_faults}"


_FEW = 5


def _shape(record: Record) -> str:
    """Sizes, or the name where they would not be read."""
    return "x".join(map(str, record.shape)) if len(record.shape) <= _FEW else record.shape_name


def _row(record: Record) -> tuple[str, ...]:
    time, peer = record.time, fastest(record)
    spread = f"{_us(time.median_us)} [{_us(time.spread_us[0])}-{_us(time.spread_us[1])}]"
    beside = (f"{plain(peer.name)} {_us(peer.time.median_us)}", f"{peer.ratio:.2f}") if peer else ("", "")
    return (
        code(record.op),
        plain(record.dtype),
        plain(_shape(record)),
        plain(record.direction),
        spread,
        f"{record.share_of_copy:.0%}",
        *beside,
    )


def _us(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits say enough
