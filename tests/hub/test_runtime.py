"""`hubkernels.runtime.get_kernel`, in fresh processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.hub.conftest import Serve
from tests.hub.test_pins import Site, answering, offline

pytest.importorskip("kernels", reason="the stock client is not installed")
pytest.importorskip("torch", reason="the client loads kernels into torch")
pytestmark = pytest.mark.torch

LOAD = """
import sys
import hubkernels.runtime
print(hubkernels.runtime.get_kernel(sys.argv[1], backend="cpu", {how}).answer())
"""


def only_dashes(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
    """A Hub that knows one spelling alone, as the public one."""

    async def strict(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        if "my_kernel" in scope.get("path", ""):
            headers = [(b"x-error-code", b"RepoNotFound"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 404, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    return strict


@pytest.fixture
def site(serve: Serve, tmp_path: Path) -> Site:
    (tmp_path / "project").mkdir()
    return Site(serve(wrap=only_dashes), tmp_path / "project")


@pytest.mark.parametrize("name", ["org/my-kernel", "org/my_kernel"])
def test_either_spelling_of_a_name_loads_with_and_without_a_network(site: Site, name: str) -> None:
    commit = site.publish("org/my-kernel", answering(40))
    pins = (f"revision={commit!r}", "version=1")
    online = {"HF_ENDPOINT": site.hub.url, "HF_HUB_OFFLINE": "0"}
    for how in pins:
        ran = offline(site, LOAD.format(how=how), name, **online)
        assert ran.out == "40\n", ran.err
    assert site.cli("prefetch", "org/my-kernel@1").code == 0
    for how in pins:
        ran = offline(site, LOAD.format(how=how), name)
        assert ran.out == "40\n", ran.err


def test_a_kernel_that_is_not_there_is_named_as_it_was_asked_for(site: Site) -> None:
    site.publish("org/my-kernel", answering(40))
    ran = offline(site, LOAD.format(how="version=1"), "org/no-kernel", HF_ENDPOINT=site.hub.url, HF_HUB_OFFLINE="0")
    assert ran.code == 1
    assert "org/no-kernel" in ran.err
    assert "org/no_kernel" not in ran.err


def test_neither_version_nor_revision_is_refused_as_by_the_client(site: Site) -> None:
    ran = offline(site, LOAD.format(how=""), "org/my-kernel")
    assert "A kernel version or revision must be specified" in ran.err
