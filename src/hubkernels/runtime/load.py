"""A kernel of the Hub, loaded with the standard library and torch alone."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from hubkernels.errors import HubkernelsError

if TYPE_CHECKING:
    from hubkernels.runtime.loading import Load


def get_kernel(  # noqa: PLR0913 - those of the client
    repo_id: str,
    *,
    revision: str | None = None,
    version: int | None = None,
    trust_remote_code: bool | list[str] = False,
    backend: str | None = None,
    check_arch: bool = True,
) -> ModuleType:
    """A kernel, as the stock client's ``kernels.get_kernel`` gives it; by the other spelling of a name that is none.

    Exactly one of revision and version. A revision of 40 hex digits is always the same kernel, and that is proved, by
    git: the commit has this id, its trees and files have the ids that it names, large files the SHA-256
    of their pointers, and so again at every load from the cache. It takes 1 request for the publisher, 1 for the commit
    with its small files, and 1 or 2 for each large one; from the cache, none. A Hub without git is refused
    then, unless HUBKERNELS_ALLOW_UNPROVED says to believe what it lists. A version or a branch takes one more; a Hub
    without git is asked by its API, 1 request for 1000 files of the listing and 1 or 2 a file.

    trust_remote_code: True, or a list with this kernel, for publishers whom the Hub does not vouch for. backend: "cpu",
    or that of torch. check_arch: whether a build that does not name the current device is refused.

    Raises HubkernelsError: for a publisher without trust, for what the Hub refuses, where no variant fits, for a file
    that is not what it should be. LOCAL_KERNELS, HF_HUB_OFFLINE and the other variables are those of the client. A
    kernel that depends on other kernels is handed to the client, which has to be installed then.
    """
    from hubkernels.runtime.asked import Asked  # noqa: PLC0415 - who imports this room may load no kernel
    from hubkernels.runtime.loading import Load  # noqa: PLC0415
    from hubkernels.runtime.local import load_local  # noqa: PLC0415
    from hubkernels.runtime.settings import read_settings  # noqa: PLC0415
    from hubkernels.runtime.system import this_system  # noqa: PLC0415

    wanted = Asked(repo_id, revision, version, trust_remote_code, backend, check_arch)
    wanted.refuse_strange()
    settings, names = read_settings(), wanted.spellings()
    local = next((settings.local[name] for name in names if name in settings.local), None)
    if local is not None:
        return load_local(wanted, local)
    system = this_system(backend)
    loads = [Load(wanted, settings, name, system) for name in names]
    loads.sort(key=lambda load: not (wanted.pinned and load.cache.has(wanted.ref)))
    return _first(loads)


def _first(loads: list[Load]) -> ModuleType:
    """By the name as it is written, and by the other spelling where that is no kernel; two may be two kernels.

    A commit is the same by either, so that the cache that has it is asked first. A kernel that is not there is named as
    it was asked for.
    """
    one, *others = loads
    try:
        return one.module()
    except HubkernelsError as error:
        if not others or not one.is_elsewhere(error):
            raise
        others[0].vouched = one.vouched
        try:
            return _first(others)
        except HubkernelsError as second:
            if others[0].is_elsewhere(second) and one.name == one.wanted.name:
                raise error from None
            raise
