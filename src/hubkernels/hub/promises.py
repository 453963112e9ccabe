"""What a version branch has promised by variants that stay on it as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hubkernels.errors import CheckFailedError, Problem
from hubkernels.hub.changes import RemoteFile, folder_of
from hubkernels.hub.offer import BUILD, Offered
from hubkernels.hub.public_api import PublicApi, read_api
from hubkernels.hub.remote import Remote

_INIT = "__init__.py"
_LIBRARY = ".abi3.so"


def refuse_broken_promises(
    offered: Iterable[Offered], remote: Remote, head: str, there: Mapping[str, RemoteFile]
) -> None:
    """Raises CheckFailedError where variants that stay have other functions or ops than those that are offered.

    Whoever loads the branch would get one or the other, by the machine.
    """
    now = {each.tag: _api_of(each) for each in offered}
    staying = {path for path in there if path.startswith(f"{BUILD}/")}
    places = {folder_of(path) for path in staying} - {f"{BUILD}/{tag}" for tag in now}
    found = list(
        dict.fromkeys(
            f"{place} stays as it is, and {difference}"
            for place in sorted(places)
            if (promised := _api_there(place, remote, head, staying)) is not None
            for api in now.values()
            for difference in api.differences(promised)
        )
    )
    if found:
        hint = "raise general.version: the kernel gets a new branch; or build and publish every variant"
        raise CheckFailedError(*(Problem(what, f"{remote.url}/tree/{head}", hint) for what in found))


def _api_of(offered: Offered) -> PublicApi:
    libraries = [name for name in offered.metadata["digest"]["files"] if name.endswith(_LIBRARY)]
    library = offered.read(libraries[0]) if libraries else None
    return read_api(offered.read(_INIT), library)


def _api_there(place: str, remote: Remote, head: str, paths: Iterable[str]) -> PublicApi | None:
    own = [path for path in paths if path.startswith(f"{place}/")]
    if f"{place}/{_INIT}" not in own:  # nothing that the client loads
        return None
    libraries = [path for path in own if path.endswith(_LIBRARY)]
    library = remote.read(head, libraries[0]) if libraries else None
    return read_api(remote.read(head, f"{place}/{_INIT}"), library)
