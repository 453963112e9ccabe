"""SDKs are whole or not there, whoever writes, kills or removes; a disk that is full or read-only is told."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.model.sdk import LockedSdk, lock_text, tree_hash
from hubkernels.toolchain.sdk.draft import scan
from hubkernels.toolchain.sdk.index import Found
from hubkernels.toolchain.sdk.store import SdkStore
from tests.conftest import REPOSITORY, Mount
from tests.sdk.conftest import TORCH, TORCH_FILE, Served, Told, torch_wheel

SMALL = {
    "torch/include/a.h": b"a\n",
    "torch/include/b/c.h": b"c\n" * 999,
    "torch/lib/libc10.so": b"",
    "torch/version.py": b"v\n",
}

PRELUDE = """\
import json, sys
from pathlib import Path
from tests.sdk.conftest import TORCH, Told
from hubkernels.toolchain.sdk.index import Found
from hubkernels.toolchain.sdk.store import SdkStore

store = SdkStore(Path(sys.argv[1]))
told = Told(store, {"torch": (Found(**json.loads(sys.argv[2])),)})
"""

KILLED_EVERYWHERE = """\
import os, signal

EVENTS = {"open", "os.rename", "os.mkdir", "os.symlink", "os.remove", "os.rmdir", "os.utime", "shutil.rmtree"}

def killed_at(moment, work):
    child = os.fork()
    if not child:
        left = [moment]
        def count(event, _):
            left[0] -= event in EVENTS
            if event in EVENTS and left[0] < 0:  # the kill is an event, too
                os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        work()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in {0, signal.SIGKILL}, status
    return status != 0

def damaged():
    return [store.damage(stored) for stored in store.stored() if store.damage(stored)]

def everywhere(work, before=lambda: None):
    moment = 0
    before()
    while killed_at(moment, work):
        assert not damaged(), moment
        before()
        moment += 1
    return moment

def cleared():
    for stored in list(store.stored()):
        store._remove(stored.root.parent)

def aged():
    sdk = told.maker.lock(TORCH)
    os.utime(store.folder / "trees" / sdk.tree / "about.json", (1, 1))

made = everywhere(lambda: told.maker.lock(TORCH), cleared)
sdk = told.maker.lock(TORCH)
removed = everywhere(lambda: store.prune(0), aged)
told.maker.lock(TORCH)
store.prune(90)
print(json.dumps([made, removed, [str(path) for path in (store.folder / "parts").iterdir() if path.is_dir()]]))
"""


def run_child(code: str, store: SdkStore, found: Found) -> subprocess.Popen[str]:
    path = os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, str(store.folder), json.dumps(vars(found))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def local(tmp_path: Path, files: dict[str, bytes] = SMALL) -> Found:
    content = torch_wheel(files)
    (tmp_path / TORCH_FILE).write_bytes(content)
    return Found("torch", "2.12.1", (tmp_path / TORCH_FILE).as_uri(), hashlib.sha256(content).hexdigest())


@pytest.fixture
def sdk(told: Told, tmp_path: Path) -> LockedSdk:
    told.found["torch"] = (local(tmp_path),)
    return told.maker.lock(TORCH)


def test_killed_at_any_moment_it_leaves_whole_sdks_or_none_and_the_next_one_works(
    store: SdkStore, tmp_path: Path
) -> None:
    """By enumeration: a process is killed at its first step on disk, another at its second, until one comes through."""
    with run_child(KILLED_EVERYWHERE, store, local(tmp_path)) as child:
        out, errors = child.communicate()
    assert child.returncode == 0, errors
    made, removed, left = json.loads(out)
    assert made > 15
    assert removed > 5
    assert left == [], "what the killed ones left is swept up"


def test_of_several_processes_one_fetches_and_the_others_wait(store: SdkStore, served: Served) -> None:
    found = served.add(TORCH_FILE, torch_wheel(), "no ranges")
    code = "print(told.maker.lock(TORCH).tree, *told.said, sep='\\n')"
    children = [run_child(code, store, found) for _ in range(4)]
    outputs = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0] * 4, outputs
    assert len({out.split("\n")[0] for out, _ in outputs}) == 1
    assert len([1 for path, part, _ in served.asked if path.endswith(".whl") and not part]) == 1
    assert len(list(store.stored())) == 1


def test_a_process_that_waits_says_so(store: SdkStore, tmp_path: Path) -> None:
    place = store.folder / "parts" / f"{hashlib.sha256(str(TORCH).encode()).hexdigest()[:32]}.lock"
    place.parent.mkdir(parents=True)
    lock = FileLock(place)
    lock.acquire()
    code = "told.said = type('Said', (), {'append': staticmethod(lambda text: print(text, flush=True))})\n"
    with run_child(code + "told.maker.lock(TORCH)", store, local(tmp_path)) as child:
        assert child.stdout
        assert child.stdout.readline() == f"another process is fetching {TORCH}: waiting for it\n"
        lock.release()
        child.stdout.read()
    assert child.returncode == 0


@pytest.mark.parametrize("kind", ["altered", "longer", "removed", "added", "no program", "link", "pipe", "pipe added"])
def test_what_is_not_as_it_was_made_is_named_and_removed(store: SdkStore, sdk: LockedSdk, kind: str) -> None:
    (stored,) = store.stored()
    file = stored.root / "torch/include/a.h"
    damages: dict[str, Callable[[], object]] = {
        "altered": lambda: file.write_bytes(b"b\n"),
        "longer": lambda: file.write_bytes(b"a\n\n"),
        "removed": file.unlink,
        "added": lambda: file.with_name("z.h").write_bytes(b""),
        "no program": lambda: file.chmod(0o755),
        "link": lambda: file.rename(file.with_name("z.h")).with_name("a.h").symlink_to("z.h"),
        "pipe": lambda: os.mkfifo(file.rename(file.with_name("z.h")).with_name("a.h")),
        "pipe added": lambda: os.mkfifo(file.with_name("z.h")),
    }
    damages[kind]()
    damage = store.damage(stored)
    assert set(damage) <= {"torch/include/a.h", "torch/include/z.h"}
    assert damage
    assert store.find(sdk.tree) is None


def test_a_sound_tree_stays(store: SdkStore, sdk: LockedSdk) -> None:
    (stored,) = store.stored()
    assert store.damage(stored) == ()
    assert store.find(sdk.tree) == stored.root


def test_of_two_that_remove_one_sdk_neither_fails(store: SdkStore, sdk: LockedSdk) -> None:
    (stored,) = store.stored()
    (stored.root / "torch/include/a.h").write_bytes(b"b\n")
    other = SdkStore(store.folder)
    assert store.damage(stored)
    assert other.damage(stored)
    assert other.find(sdk.tree) is None


def about_of(store: SdkStore, sdk: LockedSdk) -> Path:
    return store.folder / "trees" / sdk.tree / "about.json"


ABOUTS: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda about: about.write_bytes(b""),
    "cut off": lambda about: about.write_bytes(about.read_bytes()[:-9]),
    "with a hole": lambda about: about.write_bytes(about.read_bytes()[:99] + bytes(99) + about.read_bytes()[198:]),
    "of another": lambda about: about.write_text(about.read_text().replace(about.parent.name, "0" * 64)),
}


@pytest.mark.parametrize("kind", ABOUTS)
def test_a_tree_that_does_not_tell_what_it_is_is_not_used_and_is_made_anew(
    told: Told, store: SdkStore, sdk: LockedSdk, kind: str
) -> None:
    """It used to be found, and what no list names went unseen; without the list it could not be kept again, either."""
    header = about_of(store, sdk).parent / "root/torch/include/a.h"
    header.write_bytes(b"altered\n")
    ABOUTS[kind](about_of(store, sdk))
    assert store.find(sdk.tree) is None
    assert tree_hash(scan(told.maker.fetch(sdk))) == sdk.tree
    assert [stored.sdk for stored in store.stored()] == [sdk]


@pytest.mark.parametrize("kind", ABOUTS)
def test_a_tree_that_does_not_tell_what_it_is_is_removed_where_it_may_be(
    store: SdkStore, sdk: LockedSdk, tmp_path: Path, kind: str
) -> None:
    ABOUTS[kind](about_of(store, sdk))
    root = about_of(store, sdk).parent / "root"
    assert SdkStore(tmp_path / "mine", (store.folder,)).untold() == (root,)
    assert root.is_dir()
    assert store.untold() == (root,)
    assert (root.exists(), store.untold()) == (False, ())


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": float("inf")},
        {"recipe": 1.0},
        {"recipe": "1"},
        {"tree": {"a": 5}},
        {"tree": {"a\ud800b": f"f {'0' * 64}"}},
        {"tree": {"caf\udce9": f"f {'0' * 64}"}},
        {"tree": {"a\0b": f"f {'0' * 64}"}},
        {"tree": {"a": "l \ud800"}},
    ],
    ids=ascii,
)
def test_a_tree_that_tells_of_what_no_tree_has_does_not_tell_what_it_is(
    store: SdkStore, sdk: LockedSdk, change: dict[str, object]
) -> None:
    """Each used to end a verb in a traceback, and some of them the one that removes it."""
    about = about_of(store, sdk)
    whole = json.loads(about.read_text())
    about.write_text(json.dumps({key: change.get(key, whole[key]) for key in whole}))
    assert (list(store.stored()), store.prune(90)) == ([], ())
    root = store.find(sdk.tree)
    assert root, "builds look at what they read of it, and no further"
    with pytest.raises(EnvironmentLacksError, match="does not tell what it is"):
        store.told(root)
    assert store.untold() == (root,)
    assert not root.exists()


def test_a_list_of_other_files_is_damage_though_all_files_are_right(store: SdkStore, sdk: LockedSdk) -> None:
    about = about_of(store, sdk)
    about.write_text(about.read_text().replace("torch/include/a.h", "torch/include/z.h"))
    (stored,) = store.stored()
    assert store.damage(stored) == ("about.json",)
    assert list(store.stored()) == []


def used(store: SdkStore, sdk: LockedSdk, age_s: float) -> None:
    about = about_of(store, sdk)
    now = about.stat().st_mtime
    os.utime(about, (now - age_s, now - age_s))


@pytest.mark.parametrize("folder", ["project", os.fsdecode(b"caf\xe9")], ids=["UTF-8", "Latin-1"])
def test_what_a_lock_names_stays_until_nobody_used_it_for_long(
    store: SdkStore, sdk: LockedSdk, tmp_path: Path, folder: str
) -> None:
    lock = tmp_path / folder / "toolchain.lock"
    lock.parent.mkdir()
    lock.write_text(lock_text([sdk]))
    store.note(lock)
    used(store, sdk, 89 * 86400)
    assert store.prune(90) == ()
    used(store, sdk, 2 * 86400)
    assert store.prune(90) == (sdk,)
    assert store.find(sdk.tree) is None


@pytest.mark.parametrize("kind", ["removed", "another"])
def test_what_no_lock_names_goes(store: SdkStore, sdk: LockedSdk, tmp_path: Path, kind: str) -> None:
    lock = tmp_path / "toolchain.lock"
    lock.write_text(lock_text([sdk]))
    store.note(lock)
    lock.unlink() if kind == "removed" else lock.write_text(lock_text([dataclasses.replace(sdk, tree="0" * 64)]))
    assert store.prune(90) == (), "it was used within the hour: a build may be at it"
    used(store, sdk, 7200)
    assert store.prune(90) == (sdk,)


def test_days_are_never_less_than_the_hour_in_which_a_build_may_use_it(store: SdkStore, sdk: LockedSdk) -> None:
    """Of no days, what was used 10 ms before used to go."""
    assert store.prune(0) == ()
    used(store, sdk, 3700)
    assert store.prune(0) == (sdk,)


NOTES: dict[str, bytes] = {
    "an empty note": b"",
    "a note of a zero byte": b'{"lock": "/tmp/a\\u0000b"}',
    "a note of half a character": b'{"lock": "/tmp/a\\ud800b"}',
    "a note of a number": b'{"lock": 5}',
}


@pytest.mark.parametrize("kind", ["no JSON", "a folder", *NOTES])
def test_nothing_goes_while_a_lock_that_was_noted_cannot_be_read(
    store: SdkStore, sdk: LockedSdk, tmp_path: Path, kind: str
) -> None:
    """It used to count as one that names nothing, or a damaged note to end in a traceback."""
    lock = tmp_path / "toolchain.lock"
    lock.write_text(lock_text([sdk]))
    store.note(lock)
    (note,) = (store.folder / "locks").glob("*.json")
    damages: dict[str, Callable[[], object]] = {
        "no JSON": lambda: lock.write_text("<<<<<<< ours\n"),
        "a folder": lambda: lock.rename(lock.with_name("old")).with_name(lock.name).mkdir(),
        **{each: partial(note.write_bytes, content) for each, content in NOTES.items()},
    }
    damages[kind]()
    used(store, sdk, 100 * 86400)
    named = re.escape(str(note if kind in NOTES else lock))
    with pytest.raises(
        InputError, match=rf"no SDK is removed while a lock[^$]*--> {named}\n  hint: mend it, or delete"
    ):
        store.prune(90)
    assert [stored.sdk for stored in store.stored()] == [sdk]
    note.unlink()
    assert store.prune(90) == (sdk,)


def test_the_lock_for_which_an_sdk_is_used_is_noted(store: SdkStore, sdk: LockedSdk, tmp_path: Path) -> None:
    lock = tmp_path / "toolchain.lock"
    lock.write_text(lock_text([sdk]))
    beside = SdkStore(tmp_path / "mine", (store.folder,), lock)
    assert beside.find(sdk.tree)
    assert not beside.folder.exists(), "where it is only read, nothing is written"
    assert SdkStore(store.folder, (), lock).find(sdk.tree)
    used(store, sdk, 7200)
    assert store.prune(90) == ()


def test_of_several_processes_that_change_one_lock_each_finds_what_the_others_wrote(tmp_path: Path) -> None:
    """Behind a link, too: there each spelling was one of its own."""
    (tmp_path / "linked").symlink_to(".")
    code = """
import sys
from pathlib import Path
from hubkernels.build.sdks import ProjectSdks
from hubkernels.model.sdk import LockedSdk, SdkName, Wheel
from hubkernels.model.version import Version
sdks = ProjectSdks(Path(sys.argv[1], "toolchain.lock"), Path(sys.argv[1], "sdk"), (), {}, print)
for number in range(20):
    name = SdkName("torch", Version((int(sys.argv[2]), number)), "x86_64-linux")
    file = f"torch-{name.version}.0-cp313-cp313-linux_x86_64.whl"
    wheel = Wheel(file, file, "0" * 64, 1, "0" * 64)
    sdks.write(lambda now: {**now, name: LockedSdk(name, (wheel,), "0" * 64)})
"""
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    folders = (tmp_path, tmp_path / "linked")
    commands = [(sys.executable, "-c", code, str(folders[number % 2]), str(number)) for number in range(4)]
    running = [subprocess.Popen(command, env=around) for command in commands]
    assert [one.wait() for one in running] == [0] * 4
    assert len(json.loads((tmp_path / "toolchain.lock").read_text())["sdks"]) == 80


def answer(store: SdkStore, name: str, sha256: str, age_s: float) -> None:
    store.answers.mkdir(exist_ok=True)
    (store.answers / name).write_text(json.dumps({"form": 1, "found": [{"sha256": sha256}]}))
    then = (store.answers / name).stat().st_mtime - age_s
    os.utime(store.answers / name, (then, then))


def test_kept_answers_go_that_no_lock_and_no_sdk_uses_and_those_that_are_old(
    store: SdkStore, sdk: LockedSdk, tmp_path: Path
) -> None:
    """They used to stay for ever."""
    lock = tmp_path / "toolchain.lock"
    other = dataclasses.replace(sdk, tree="0" * 64, wheels=(dataclasses.replace(sdk.wheels[0], sha256="1" * 64),))
    lock.write_text(lock_text([other]))
    store.note(lock)
    stored, locked, month_s = sdk.wheels[0].sha256, "1" * 64, 30 * 86400
    answer(store, "of an SDK.json", stored, month_s)
    answer(store, "of a lock.json", locked, month_s)
    answer(store, "of just now.json", "2" * 64, 60)
    answer(store, "of none.json", "2" * 64, 2 * 3600)
    answer(store, "of long ago.json", locked, 91 * 86400)
    (store.answers / "damaged.json").write_text("[1")
    os.utime(store.answers / "damaged.json", (1, 1))
    assert store.prune_answers(90) == 3
    kept = {"of an SDK.json", "of a lock.json", "of just now.json"}
    assert {path.name for path in store.answers.iterdir()} == kept
    assert store.prune_answers(1) == 2


def test_use_is_noted(store: SdkStore, sdk: LockedSdk) -> None:
    used(store, sdk, 100 * 86400)
    store.find(sdk.tree)
    assert store.prune(90) == ()


def test_what_a_killed_install_of_pip_left_is_swept_up_and_one_that_runs_is_not(store: SdkStore) -> None:
    running, killed = store.folder / ".pip-3.11.abc", store.folder / ".pip-3.12.def"
    for folder in (running, killed):
        (folder / "pip").mkdir(parents=True)
    os.utime(killed, (1, 1))
    store.prune(90)
    assert (running.exists(), killed.exists()) == (True, False)


def test_what_is_not_the_stores_is_left(store: SdkStore, sdk: LockedSdk) -> None:
    strange = store.folder / "trees" / "notes"
    strange.mkdir()
    (strange / "about.json").write_text("{}")
    assert [stored.sdk for stored in store.stored()] == [sdk]
    store.prune(0)
    assert strange.is_dir()


def test_a_full_disk_is_told_and_leaves_nothing(mount: Mount, told: Told, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    mount(disk, "size=200k")
    told.store = SdkStore(disk / "sdk")
    told.found["torch"] = (local(tmp_path, {**SMALL, "torch/include/large.h": os.urandom(400_000)}),)
    with pytest.raises(EnvironmentLacksError, match=r"cannot write .*: No space left on device[^$]*run again"):
        told.maker.lock(TORCH)
    assert told.renewals == 0, "another answer finds the same disk"
    assert [path for path in disk.rglob("*") if path.is_file() and path.suffix != ".lock"] == []
    told.found["torch"] = (local(tmp_path),)
    assert told.maker.lock(TORCH)


def test_a_download_to_a_full_disk_is_told_as_that(mount: Mount, told: Told, served: Served, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    mount(disk, "size=200k")
    told.store = SdkStore(disk / "sdk")
    content = torch_wheel({**SMALL, "torch/lib/large.so": os.urandom(400_000)})
    told.found["torch"] = (served.add(TORCH_FILE, content, "no ranges"),)
    with pytest.raises(EnvironmentLacksError, match="No space left on device"):
        told.maker.lock(TORCH)


def test_a_store_that_cannot_be_written_still_serves(mount: Mount, told: Told, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    mount(disk, "size=2m")
    told.store = SdkStore(disk / "sdk")
    told.found["torch"] = (local(tmp_path),)
    sdk = told.maker.lock(TORCH)
    used(told.store, sdk, 7200)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert tree_hash(scan(told.maker.fetch(sdk))) == sdk.tree
    (tmp_path / "toolchain.lock").touch()
    told.store.note(tmp_path / "toolchain.lock")
    with told.store.changing(tmp_path / "toolchain.lock"):
        pass
    beside = SdkStore(tmp_path / "mine", (told.store.folder,))
    assert beside.find(sdk.tree) == told.store.find(sdk.tree)
    with pytest.raises(EnvironmentLacksError, match="cannot write .*: Read-only file system"):
        told.maker.fetch(dataclasses.replace(sdk, tree="0" * 64))
