"""`update-build`: older editions in their own words become edition 5, and nothing else of the text changes."""

from __future__ import annotations

import itertools
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from hubkernels.config import load_project
from hubkernels.config.explain import toml_value as inline
from hubkernels.config.migrate import migrate
from hubkernels.config.positions import basic_string
from hubkernels.errors import InputError
from hubkernels.model.backend import BACKENDS, CPU, CUDA, ROCM
from hubkernels.model.project import TorchNoarch
from hubkernels.model.version import Version
from tests.conftest import Cli
from tests.golden.update_build import OLD, golden, migrated
from tests.unit.test_crosschecks import FILES

NEXT_EDITION = {old.stem: int(old.stem.split("-")[1]) for old in OLD}
HEAD = '[general]\nname = "ab"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "build.toml"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("old", OLD, ids=lambda path: path.stem)
def test_an_older_file_becomes_its_golden_one(old: Path) -> None:
    assert migrated(old) == (NEXT_EDITION[old.stem], golden(old).read_bytes())


def test_there_is_a_golden_file_of_every_older_edition() -> None:
    assert set(NEXT_EDITION.values()) == {1, 2, 3, 4}


@pytest.mark.parametrize("old", OLD, ids=lambda path: path.stem)
def test_every_comment_survives(old: Path) -> None:
    def comments(path: Path) -> set[str]:
        return set(re.findall(r"#[^\r\n]*", path.read_bytes().decode()))

    assert comments(old) == comments(golden(old)) != set()


@pytest.mark.parametrize("old", OLD, ids=lambda path: path.stem)
def test_a_migrated_file_is_of_edition_5_and_stays_as_it_is(old: Path, tmp_path: Path) -> None:
    shutil.copy(golden(old), tmp_path / "build.toml")
    assert len(load_project(tmp_path).packages) == 1
    again = migrate(tmp_path / "build.toml")
    assert (again.edition, again.text) == (5, golden(old).read_bytes().decode())


def test_old_words_mean_the_same_in_new_ones(tmp_path: Path) -> None:
    shutil.copy(golden(next(old for old in OLD if old.stem == "edition-1")), tmp_path / "build.toml")
    (package,) = load_project(tmp_path).packages
    assert [(s.name, s.backend.name, s.archs) for s in package.sections] == [
        ("activation", "cuda", ("8.0", "9.0")),
        ("activation_rocm", "rocm", ("gfx90a", "gfx942")),
        ("fast", "cuda", ()),
        ("apple", "metal", ()),
    ]
    shutil.copy(golden(next(old for old in OLD if old.stem == "edition-2")), tmp_path / "build.toml")
    (package,) = load_project(tmp_path).packages
    assert package.backends == (CPU, CUDA)
    assert (package.requirements["cuda"].minver, package.requirements["cuda"].maxver) == (
        Version((12, 6)),
        Version((12, 9)),
    )
    shutil.copy(golden(next(old for old in OLD if old.stem == "edition-2-universal")), tmp_path / "build.toml")
    (package,) = load_project(tmp_path).packages
    assert isinstance(package.framework, TorchNoarch)
    assert {backend.name for backend in package.backends} == set(BACKENDS) - {"tpu"}
    assert ROCM in package.backends


@pytest.mark.parametrize("old", [old for old in OLD if "edition-4" not in old.stem], ids=lambda path: path.stem)
def test_every_other_verb_names_the_verb_that_migrates(old: Path, tmp_path: Path, cli: Cli) -> None:
    shutil.copy(old, tmp_path / "build.toml")
    for verb in ("build", "plan", "explain", "list-variants"):
        ran = cli(verb, "-C", tmp_path)
        assert ran.code == 2
        assert ran.err.startswith(f"error: build.toml is of edition {NEXT_EDITION[old.stem]}, which is read no more")
        assert "`kernel-builder update-build`" in ran.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD, "missing table [torch]"),
        (HEAD + "[torch]\nsrc = []\n", "no kernel section tells the backends"),
        (HEAD + "[torch]\nuniversal = true\nsrc = ['a.cpp']\n", "src of a universal package has no place"),
        (HEAD + "universal = true\n[kernel.a]\nbackend = 'cpu'\nsrc = []\n", "a universal package is of Python alone"),
        (HEAD + "[torch]\n[kernel.a]\nlanguage = 'sycl'\nsrc = []\n", "unknown language sycl"),
        (HEAD + "[torch]\n[kernel]\na = { language = 'cuda-hipify' }\n", "a section for CUDA and ROCm must be a table"),
        (
            HEAD + "[torch]\n[kernel.a]\nlanguage = 'cuda-hipify'\n[kernel.a_rocm]\nsrc = []\n",
            "a_rocm is the name that the ROCm half of a gets",
        ),
        ("[general]\nversion = 1\n", "missing key name"),
        ("general = 3\n", "general must be a table"),
        (
            HEAD + "version = 1\nlicense = 'MIT'\nbackends = ['cpu']\nsauce = 1\n[torch]\n",
            "{path} stays as it is: in edition 5 it would have these faults\n"
            "unknown key sauce\n  --> {path}:6: general.sauce",
        ),
        ("[workspace]\nschema = 1\n", "a workspace cannot be a member of another"),
    ],
)
def test_what_cannot_be_migrated_is_refused_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        migrate(path, "MIT")
    assert str(caught.value).startswith(problem.format(path=path))
    assert path.read_text() == text


def test_the_license_is_asked_for_where_the_file_has_none(tmp_path: Path, cli: Cli) -> None:
    write(tmp_path, HEAD + 'backends = ["cpu"]\n')
    ran = cli("update-build", tmp_path)
    assert (ran.code, "edition 5 demands a license" in ran.err, "--license Apache-2.0" in ran.err) == (2, True, True)
    assert cli("update-build", tmp_path, "--license", "MIT").code == 0
    assert load_project(tmp_path).packages[0].license == "MIT"


def test_the_verb_writes_once_and_says_what_it_did(tmp_path: Path, cli: Cli) -> None:
    old = HEAD + 'version = 1\nlicense = "MIT"\nbackends = ["cpu"]\n[torch-noarch] # Python\n'
    path = write(tmp_path, old)
    ran = cli("update-build", tmp_path, "--check", "--diff")
    assert (ran.code, path.read_text()) == (1, old)
    assert "\n+edition = 5\n" in ran.out
    assert f"error: {path} is of edition 4\n  hint: `kernel-builder update-build {tmp_path}`" in ran.err
    assert (cli("update-build", tmp_path, "--diff").code, path.read_text()) == (0, old)
    assert cli("update-build", tmp_path).out == f"{path}: edition 4 is now edition 5\n"
    assert path.read_text() == old.replace("version = 1\n", "version = 1\nedition = 5\n")
    assert cli("update-build", tmp_path, "--check").out == f"{path} is of edition 5\n"


OLD_MEMBER = HEAD + 'version = 1\nlicense = "MIT"\nbackends = ["cpu"]\n[torch-noarch]\n'


@pytest.mark.parametrize("workspace", [None, '[workspace]\nschema = 1\nmembers = ["*"]\nexclude = ["c"]\n'])
def test_the_members_of_a_workspace_and_of_a_folder_of_projects_are_migrated(
    tmp_path: Path, cli: Cli, workspace: str | None
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, OLD_MEMBER)
    write(tmp_path / "b", OLD_MEMBER.replace("version = 1\n", "version = 1\nedition = 5\n"))
    if workspace:
        write(tmp_path, workspace)
    ran = cli("update-build", tmp_path, "--check")
    asked = ["a"] if workspace else ["a", "c"]
    assert ran.code == 1
    assert ran.err.count("is of edition 4") == len(asked)
    assert cli("update-build", tmp_path).code == 0
    for name in asked:
        assert "edition = 5\n" in (tmp_path / name / "build.toml").read_text()
    assert workspace is None or (tmp_path / "c/build.toml").read_text() == OLD_MEMBER


def test_nothing_is_written_when_one_of_several_files_cannot_be_migrated(tmp_path: Path, cli: Cli) -> None:
    for name, text in {"a": OLD_MEMBER, "b": HEAD, "c": "general = 3\n"}.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name, text)
    ran = cli("update-build", tmp_path)
    assert (ran.code, ran.err.count("error: ")) == (2, 5)
    assert (tmp_path / "a/build.toml").read_text() == OLD_MEMBER


GENERAL = 'version = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cuda", "rocm"]\n'
ONE = '[kernel.one]\nlanguage = "cuda-hipify"\ndepends = []\nsrc = ["a.cu"]\nrocm-archs = ["gfx90a"]'
CUDA_ONE = '[kernel.one]\nbackend = "cuda"\ndepends = []\nsrc = ["a.cu"]\n'
ROCM_ONE = '[kernel.one_rocm]\nbackend = "rocm"\ndepends = []\nsrc = ["a.cu"]\nrocm-archs = ["gfx90a"]'


@pytest.mark.parametrize(
    ("text", "migrated_text"),
    [
        (f"{HEAD}\n[torch]\n{ONE}\n", f"{HEAD}{GENERAL}\n[torch]\n{CUDA_ONE}\n{ROCM_ONE}\n"),
        (f"{HEAD}\n[torch]\n{ONE} # c", f"{HEAD}{GENERAL}\n[torch]\n{CUDA_ONE}# c\n\n{ROCM_ONE} # c\n"),
        (f"{HEAD}\n{ONE}\n[torch]\n", f"{HEAD}{GENERAL}\n{CUDA_ONE}\n{ROCM_ONE}\n\n[torch]\n"),
        (f"{HEAD}\n{ONE}\n\n# c\n[torch]\n", f"{HEAD}{GENERAL}\n{CUDA_ONE}\n{ROCM_ONE}\n\n# c\n[torch]\n"),
        (
            f'{HEAD}version = 1\nlicense = "MIT"\nbackends = ["cpu"]\n\n\n',
            f'{HEAD}version = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n\n[torch-noarch]\n',
        ),
    ],
)
def test_a_table_that_is_added_stands_between_blank_lines(tmp_path: Path, text: str, migrated_text: str) -> None:
    assert migrate(write(tmp_path, text), "MIT").text == migrated_text


def test_a_link_stays_a_link(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "real").mkdir()
    real = write(tmp_path / "real", HEAD + 'version = 1\nlicense = "MIT"\nbackends = ["cpu"]\n[torch-noarch]\n')
    (tmp_path / "build.toml").symlink_to(real)
    assert cli("update-build", tmp_path).code == 0
    assert (tmp_path / "build.toml").is_symlink()
    assert tomli.loads(real.read_text())["general"]["edition"] == 5


def spelled(table: Mapping[str, object], *, headers: bool) -> str:
    """The tables of a file, with headers or as values on one line."""
    if not headers:
        return "".join(f"{key} = {inline(value)} # {key}\n" for key, value in table.items())
    lines = []
    for name, value in table.items():
        sections = value.items() if name == "kernel" and isinstance(value, dict) else ()
        for header, keys in ((name, value), *((f"kernel.{basic_string(str(key))}", keys) for key, keys in sections)):
            own = keys.items() if isinstance(keys, dict) and (header, keys) != ("kernel", value) else ()
            lines += [f"[{header}] # c", *(f"  {basic_string(key)} = {inline(item)} # c" for key, item in own), ""]
    return "\r\n".join(lines)


@given(FILES, st.booleans())
@settings(derandomize=True, database=None, deadline=None, max_examples=150)
def test_whatever_a_file_holds_it_is_migrated_or_refused(table: dict[str, object], headers: bool) -> None:  # noqa: FBT001
    text = spelled(table, headers=headers)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), text)
        try:
            made = migrate(path, "MIT")
        except InputError:
            return
        path.write_text(made.text, encoding="utf-8", newline="")
        assert migrate(path).text == made.text


def test_most_of_what_edition_1_can_say_is_migrated(tmp_path: Path) -> None:
    """Sections in every order of keys, with and without comments, inline or not."""
    said = {
        "language": '"cuda-hipify"',
        "src": "[]",
        "depends": "[]",
        "cuda-capabilities": '["9.0"]',
        "rocm-archs": "[]",
    }
    for order in itertools.permutations(said):
        keys = "\n".join(f"  {key} = {said[key]} # {key}" for key in order)
        text = f"{HEAD}[torch]\nsrc = []\n[kernel.a] # a\n{keys}"
        made = migrate(write(tmp_path, text), "MIT")
        kernel = tomli.loads(made.text)["kernel"]
        common: dict[str, object] = {"src": [], "depends": []}
        assert kernel == {
            "a": common | {"backend": "cuda", "cuda-capabilities": ["9.0"]},
            "a_rocm": common | {"backend": "rocm", "rocm-archs": []},
        }
        inline_keys = ", ".join(f"{key} = {said[key]}" for key in order if key != "language")
        made = migrate(write(tmp_path, f"{HEAD}[torch]\nsrc = []\n[kernel]\na = {{ {inline_keys} }} # a\n"), "MIT")
        assert tomli.loads(made.text)["kernel"]["a"]["backend"] == "cuda"


def test_a_new_key_stands_as_its_neighbours_do(tmp_path: Path) -> None:
    text = "\n".join(f"\t{line}" for line in OLD_MEMBER.splitlines())
    made = migrate(write(tmp_path, text)).text
    assert made == text.replace("\tversion = 1\n", "\tversion = 1\n\tedition = 5\n")


def test_the_mode_of_a_file_stays(tmp_path: Path, cli: Cli) -> None:
    path = write(tmp_path, HEAD + 'version = 1\nlicense = "MIT"\nbackends = ["cpu"]\n[torch-noarch]\n')
    path.chmod(0o600)
    assert cli("update-build", tmp_path).code == 0
    assert path.stat().st_mode & 0o777 == 0o600
