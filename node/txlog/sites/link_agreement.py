"""Whether the two sites of a link list one another by their names, with the same kind of keys, by their reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from txlog.sites.link_errors import KeysDiffer, NamesDiffer, OtherLink
from txlog.sites.version_table import LinkIdentity

_SILENT: Final = "Silent"


def is_agreed(identity: LinkIdentity, reports: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the other site reports the link from this one. ``reports``: its answer to ``GET /txlog/sites``; False
    where that has none of such a link yet, or does not have the ids of both clusters. Raises :class:`NamesDiffer`,
    :class:`KeysDiffer` and :class:`OtherLink`."""
    matching = [each for each in reports if (each.get("site"), each.get("other")) == (identity.other, identity.site)]
    if not matching:
        for each in reports:
            if each.get("state") != _SILENT:
                raise NamesDiffer(
                    f"{identity.site} lists {identity.other}, and that site reports a link to {each.get('site')} from "
                    f"{each.get('other')}: each of the two lists the other by the name in its spec.site"
                )
        return False
    report = matching[0]
    if report.get("key", "") not in ("", identity.key):
        raise KeysDiffer(f"key is {identity.key} at {identity.site}, and {report['key']} at {identity.other}")
    known = report.get("cluster", ""), report.get("otherCluster", "")
    expected = identity.other_cluster, identity.cluster
    if any(here not in ("", there) for here, there in zip(known, expected, strict=True)):
        raise OtherLink(
            f"{identity.other} reports a link between the clusters {known[0]} and {known[1]}, and this link is between "
            f"{expected[0]} and {expected[1]}"
        )
    return bool(report.get("key")) and known == expected
