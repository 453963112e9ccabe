"""Records, the order in which candidates are timed, and what a run chooses: with a clock of our own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hubkernels.bench.line import line
from hubkernels.bench.record import FailedPeer, Git, Machine, PeerResult, Record, Timing, Versions
from hubkernels.bench.rounds import ROUNDS, time_candidates
from hubkernels.bench.run import PAGE_FAULTS, BenchCell, Wanted, allocator, child_environment, choose_cells
from hubkernels.errors import InputError
from hubkernels.host.cpu import cpu_model, last_level_cache_bytes
from hubkernels.model.backend import CPU
from hubkernels.model.digest import hash_digest
from hubkernels.model.project import Package, Torch
from tests.conftest import REPOSITORY

TIME = Timing(median_us=100.5, best_us=99.0, spread_us=(99.5, 102.0), runs=50)
RECORD = Record(
    op="rms_norm",
    package="rms-norm",
    variant="torch-stable-abi210-cpu-x86_64-linux",
    artifact="_rms_norm_cpu_abc",
    digest="0" * 64,
    dtype="bfloat16",
    shape_name="model size",
    shape=(4096, 4096),
    direction="f+b",
    machine=Machine("Some CPU", 8, None, "default"),
    versions=Versions("3.11.7", "2.13.0+cpu", "0.17.2", "0.1.0", None),
    git=Git("1a2b3c4d5e", dirty=True),
    threads=2,
    time=TIME,
    bytes=168_000_000,
    share_of_copy=0.915,
    copy_gb_s=45.25,
    error=1.7e-3,
    peers=(PeerResult("F.rms_norm", replace(TIME, median_us=50.25), 1.7e-3, 2.0),),
    failed_peers=(FailedPeer("torch.compile", "output: the call raised"),),
    cache="rotating 4 sets of inputs, 134 MB",
    preemptions=3,
    page_faults="pre-touched",
    date="2026-01-02T03:04:05+00:00",
)


@pytest.mark.parametrize("record", [RECORD, replace(RECORD, git=None, peers=(), failed_peers=())])
def test_a_record_survives_its_json_form(record: Record) -> None:
    assert Record.from_json(json.loads(record.text())) == record


def test_times_stand_beside_the_other_fields_in_json() -> None:
    data = RECORD.to_json()
    assert (data["schema"], data["median_us"], data["runs"]) == (1, 100.5, 50)
    assert data["peers"][0]["median_us"] == 50.25
    assert "time" not in data


@pytest.mark.parametrize("schema", [0, 2, None, "1"])
def test_an_unknown_schema_is_refused(schema: object) -> None:
    with pytest.raises(InputError, match=r"record schema .* is unknown"):
        Record.from_json({**RECORD.to_json(), "schema": schema}, "a.json")


@pytest.mark.parametrize("change", [{"more": 1}, {"machine": {"cpu": "x"}}])
def test_fields_that_do_not_belong_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError, match="not a record of schema 1"):
        Record.from_json({**RECORD.to_json(), **change})


def leaves(value: object, *way: str | int) -> Iterator[tuple[str | int, ...]]:
    """The ways to all that is neither a list nor an object."""
    if isinstance(value, dict | list | tuple):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(below, *way, key)
    else:
        yield way


WRONG: dict[type, tuple[object, ...]] = {
    str: (5, None, True, ["x"], {}),
    int: ("5", None, True, 5.5, [5]),
    float: ("5", None, True, [5.0], float("nan"), float("inf"), 10**400),
    bool: ("true", None, 1, []),
    type(None): (5, True, ["x"], {}),
}


@pytest.mark.parametrize("way", [way for way in leaves(RECORD.to_json()) if way != ("schema",)], ids=str)
def test_a_field_of_another_type_is_refused_by_name(way: tuple[str | int, ...]) -> None:
    """A word for a number was a bare ValueError while the card was written."""
    whole = json.loads(RECORD.text())
    *above, last = way
    place = whole
    for key in above:
        place = place[key]
    name = next(str(key) for key in reversed(way) if isinstance(key, str))
    for wrong in WRONG[type(place[last])]:
        place[last] = wrong
        with pytest.raises(InputError, match=f"not a record of schema 1: {name}") as raised:
            Record.from_json(whole, "a.json")
        assert raised.value.problems[0].where == "a.json"


@pytest.mark.parametrize("name", ["shape", "spread_us", "peers", "failed_peers", "machine", "versions", "git"])
@pytest.mark.parametrize("wrong", [5, "text", True, [5], [[]], {"a": 1}, [{}]])
def test_a_part_that_is_none_is_refused(name: str, wrong: object) -> None:
    if (name, wrong) != ("shape", [5]):
        with pytest.raises(InputError, match="not a record of schema 1"):
            Record.from_json({**RECORD.to_json(), name: wrong})


def test_a_whole_number_is_a_number_too() -> None:
    assert Record.from_json({**RECORD.to_json(), "median_us": 100, "copy_gb_s": 45}).time.median_us == 100


def test_every_record_of_the_project_is_one() -> None:
    for path in (REPOSITORY / "bench/records").glob("*.json"):
        Record.from_json(json.loads(path.read_text()), str(path))


@pytest.mark.parametrize("name", ["op", "median_us", "shape", "peers", "date"])
def test_a_missing_field_is_refused(name: str) -> None:
    data = RECORD.to_json()
    del data[name]
    with pytest.raises(InputError, match=name):
        Record.from_json(data)


def test_each_way_of_running_a_cell_has_a_file_name_of_its_own() -> None:
    forced = replace(RECORD, machine=replace(RECORD.machine, isa="avx2"))
    faulting = replace(RECORD, page_faults="default malloc")
    names = {record.file_name for record in (RECORD, forced, faulting, replace(RECORD, threads=1))}
    assert len(names) == 4
    assert RECORD.file_name == "rms-norm-rms_norm-bfloat16-4096x4096-f+b-t2-pre-touched.json"


def test_the_documented_fields_are_those_of_a_record() -> None:
    text = (Path(__file__).parents[2] / "docs/records.md").read_text(encoding="utf-8")
    for name in RECORD.to_json():
        assert f"`{name}`" in text, name


def test_a_slower_result_is_printed_like_any_other() -> None:
    assert line(RECORD) == (
        "rms_norm f+b bf16 4096x4096 | Some CPU, 2 threads, torch2.13 @1a2b3c4+ | 100 us [99.5-102] best 99 | "
        "168.0 MB, 92% of copy (45.2 GB/s) | error 1.7e-03 | F.rms_norm 50.2 us (ours/peer 2.00, error 1.7e-03) | "
        "torch.compile failed: output: the call raised | "
        "pre-touched, rotating 4 sets of inputs, 134 MB, 3 preemptions"
    )


class Machinery:
    """A clock that only calls move, and the list of those calls."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[str, int]] = []

    def clock(self) -> float:
        return self.now

    def candidate(self, name: str, *seconds: float) -> object:
        def call(number: int) -> None:
            self.calls.append((name, number))
            self.now += seconds[number % len(seconds)]

        return call


def run(*seconds: tuple[float, ...]) -> tuple[Machinery, tuple[Timing, ...]]:
    machinery = Machinery()
    candidates = [machinery.candidate(name, *cost) for name, cost in zip("abc", seconds, strict=False)]
    return machinery, time_candidates(candidates, 1.0, machinery.clock)  # type: ignore[arg-type]


def test_the_median_the_best_and_the_quartiles_are_of_single_calls() -> None:
    _, (timing,) = run((0.01, 0.03, 0.02, 0.05))
    assert timing.best_us == pytest.approx(10_000)
    assert timing.median_us == pytest.approx(25_000)
    assert timing.spread_us == pytest.approx((17_500, 35_000))


def test_candidates_take_turns_in_blocks_whose_first_call_is_not_timed() -> None:
    machinery, (first, second) = run((0.0625,), (0.09375,))
    assert (first.runs, second.runs) == (3 * ROUNDS, 2 * ROUNDS)
    timed = machinery.calls[4:]
    assert timed[:7] == [("a", -1), ("a", 0), ("a", 1), ("a", 2), ("b", -1), ("b", 0), ("b", 1)]
    names = "".join(name for name, _ in timed)
    assert names == "aaaabbb" + "bbbaaaa" + "aaaabbb" + "bbbaaaa" + "aaaabbb"


def test_input_sets_go_on_where_the_last_block_ended() -> None:
    machinery, _ = run((0.09375,), (0.09375,))
    numbers = [number for name, number in machinery.calls[4:] if name == "a"]
    assert numbers[:6] == [-1, 0, 1, 1, 2, 3]


def test_a_call_slower_than_its_block_is_still_timed_in_each_round() -> None:
    _, (timing,) = run((3.0,))
    assert timing.runs == ROUNDS


def test_input_sets_outgrow_the_cache_and_small_ones_have_an_end() -> None:
    pytest.importorskip("torch", reason="the timing module runs torch")
    from hubkernels.bench.timing import count_sets  # noqa: PLC0415 - only with torch

    assert [count_sets(size, cache_bytes=32) for size in (0, 1, 30, 200)] == [64, 64, 5, 1]


PACKAGE = Package("rms-norm", 1, "Apache-2.0", (CPU,), Torch(), Path(), "torch-ext/rms_norm")


def cell(
    op: str, shape_name: str, dtype: str, *, usual: bool, directions: tuple[str, ...] = ("fwd", "f+b")
) -> BenchCell:
    return BenchCell(PACKAGE, Path("build"), "case.py", op, shape_name, (1,), dtype, directions, usual)


CELLS = (
    cell("rms_norm", "tail", "float32", usual=False),
    cell("rms_norm", "model", "float32", usual=True),
    cell("rms_norm", "model", "bfloat16", usual=True),
    cell("iou", "boxes", "float32", usual=True, directions=("fwd",)),
)


def test_without_a_wish_the_shapes_of_the_case_s_benchmark_are_timed() -> None:
    assert choose_cells(CELLS, Wanted()) == CELLS[1:]


def test_a_named_shape_is_timed_even_if_no_benchmark_has_it() -> None:
    assert choose_cells(CELLS, Wanted(shape="tail")) == CELLS[:1]
    assert choose_cells(CELLS, Wanted(op="rms_norm", dtype="bfloat16")) == CELLS[2:3]


def test_an_op_without_gradients_has_no_backward_to_time() -> None:
    chosen = choose_cells(CELLS, Wanted(directions=("f+b",)))
    assert [(c.op, c.directions) for c in chosen] == [("rms_norm", ("f+b",))] * 2
    with pytest.raises(InputError, match="nothing to time"):
        choose_cells(CELLS, Wanted(op="iou", directions=("f+b",)))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(op="rms_nrom"), r"op 'rms_nrom'\n  hint: did you mean rms_norm"),
        (Wanted(dtype="float46"), r"dtype 'float46'\n  hint: did you mean bfloat16"),
        (Wanted(op="iou", shape="model"), r"shape 'model'\n  hint: allowed: boxes"),
    ],
)
def test_a_word_that_no_case_has_is_refused_with_a_hint(wanted: Wanted, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_cells(CELLS, wanted)


def test_malloc_is_as_the_record_says_whatever_the_user_has_set() -> None:
    users = {"MALLOC_ARENA_MAX": "1", "PATH": "/bin", "LD_PRELOAD": "/opt/lib/libjemalloc.so.2"}
    default = child_environment(users, PAGE_FAULTS["default"])
    assert default == {"PATH": "/bin", "LD_PRELOAD": users["LD_PRELOAD"], "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    assert allocator(default) == "LD_PRELOAD=libjemalloc.so.2"
    assert allocator({"PATH": "/bin"}) == "default"
    touched = child_environment({}, PAGE_FAULTS["pretouched"])
    assert allocator(touched) == "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184"


def test_the_hash_of_a_digest_depends_on_names_and_contents_alone() -> None:
    assert hash_digest({"a": "x", "b": "y"}) == hash_digest({"b": "y", "a": "x"})
    assert len({hash_digest(files) for files in ({"a": "x"}, {"a": "y"}, {"b": "x"}, {})}) == 4


def test_last_level_caches_are_added_up_once_each(tmp_path: Path) -> None:
    for cpu, shared in enumerate(("0-1", "0-1", "2-3", "2-3")):
        for index, (level, size, whose) in enumerate((("2", "1024K", str(cpu)), ("3", "32M", shared))):
            folder = tmp_path / f"cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", whose)):
                (folder / name).write_text(text + "\n")
    assert last_level_cache_bytes(tmp_path) == 2 * 32 * 2**20
    assert last_level_cache_bytes(tmp_path / "nothing") is None


def test_a_processor_is_named_with_family_and_model(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\n" * 2)
    assert cpu_model(tmp_path / "cpuinfo") == "AMD EPYC (family 25, model 17)"
