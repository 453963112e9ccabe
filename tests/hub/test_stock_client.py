"""What the stock `kernels` client does with the Hub, it does with this one: in fresh processes, as its users do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hub.conftest import CI, OTHER, OWNER, READER, Client, Serve, Served, run

pytest.importorskip("kernels", reason="the stock client is not installed")
pytest.importorskip("torch", reason="the client loads kernels into torch")
pytestmark = pytest.mark.torch

METADATA = {
    "name": "my-kernel",
    "id": "_my_kernel_cpu_{version}",
    "version": 1,
    "license": "Apache-2.0",
    "python-depends": [],
    "backend": {"type": "cpu"},
}

PUBLISH = """
import sys
from huggingface_hub import HfApi
api = HfApi()
api.create_repo("org/my-kernel", repo_type="kernel", exist_ok=True)
for version in ("1", "2"):
    api.create_branch("org/my-kernel", branch=f"v{version}", repo_type="kernel")
    where = {"repo_id": "org/my-kernel", "repo_type": "kernel", "revision": f"v{version}"}
    api.upload_folder(folder_path=f"{sys.argv[1]}/{version}", **where)
    print(api.repo_info("org/my-kernel", repo_type="kernel", revision=f"v{version}").sha)
"""


@pytest.fixture(params=["never", "always"])
def published(request: pytest.FixtureRequest, serve: Serve, client: Client, tmp_path: Path) -> tuple[Served, list[str]]:
    """A Hub with two versions of a kernel of Python alone, and their commits."""
    for version in (1, 2):
        folder = tmp_path / f"{version}/build/torch-cpu"
        folder.mkdir(parents=True)
        metadata = {**METADATA, "id": f"_my_kernel_cpu_{version}", "version": version}
        (folder / "metadata.json").write_text(json.dumps(metadata))
        (folder / "__init__.py").write_text(
            "from pathlib import Path\n"
            f"def answer(x):\n    return x + {version}\n"
            "DATA = (Path(__file__).parent / 'data/table.bin').read_bytes()\n"
        )
        (folder / "data").mkdir()
        (folder / "data/table.bin").write_bytes(bytes(range(256)) * 100)
    hub = serve(lfs=request.param)
    variables = {} if request.param == "never" else {"HF_HUB_DISABLE_XET": "1"}
    return hub, client(hub, PUBLISH, tmp_path, token=CI, **variables).split()


def test_a_kernel_is_loaded_by_version_and_by_commit(published: tuple[Served, list[str]], client: Client) -> None:
    hub, commits = published
    program = """
import sys, torch, kernels
for how in ({"version": 1}, {"version": 2}, {"revision": sys.argv[1]}, {"revision": "v2"}):
    for name in ("org/my-kernel", "org/my_kernel"):
        kernel = kernels.get_kernel(name, backend="cpu", **how)
        assert kernel.DATA == bytes(range(256)) * 100
        print(int(kernel.answer(torch.zeros(()))), kernels.has_kernel(name, backend="cpu", **how))
"""
    found = client(hub, program, commits[0], token="").splitlines()
    assert found == [f"{answer} True" for answer in (1, 2, 1, 2) for _ in range(2)]


def test_only_a_trusted_publisher_s_kernel_is_loaded_unasked(client: Client, serve: Serve) -> None:
    hub = serve(trust="another-org")
    program = "import kernels; kernels.get_kernel('org/my-kernel', version=1)"
    with pytest.raises(AssertionError, match="is not from a trusted publisher"):
        client(hub, program)


def test_kernels_are_locked_and_downloaded(published: tuple[Served, list[str]], client: Client, tmp_path: Path) -> None:
    """The verbs of the stock client, and a load from what they left."""
    hub, commits = published
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"org/my-kernel" = 2\n')
    main = "import sys; from kernels.cli import main; sys.argv[0] = 'kernels'; main()"
    client(hub, main, "lock", project)
    (locked,) = json.loads((project / "kernels.lock").read_text())
    assert locked["lock"]["commit"] == commits[1]
    client(hub, main, "download", project)
    assert "Version 2" in client(hub, main, "versions", "org/my-kernel")
    assert commits[1] in run("git", "-C", hub.git(), "rev-parse", "v2").stdout


def test_a_private_kernel_is_loaded_with_a_token(published: tuple[Served, list[str]], client: Client) -> None:
    hub, _ = published
    assert hub.ask("PUT", "/api/kernels/org/my-kernel/settings", {"private": True}, OWNER).status == 200
    program = "import kernels; print(kernels.get_kernel('org/my-kernel', version=1, backend='cpu').answer(1))"
    assert client(hub, program, token=READER).split()[-1] == "2"
    with pytest.raises(AssertionError, match="RepositoryNotFoundError"):
        client(hub, program, token=OTHER)
