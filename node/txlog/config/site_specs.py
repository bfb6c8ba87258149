"""``spec.site`` and ``spec.sites`` of a manifest: the other cluster whose changes this data centre imports."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from txlog.config.manifest_model import ManifestModel, expected_error, list_map
from txlog.config.previews import PREVIEWS_VARIABLE, SITES_PREVIEW, is_preview_on
from txlog.config.resource_specs import SecretRef
from txlog.config.units import Duration, duration_within
from txlog.model.site_switch import SITE_NAME

SITES_ARE_A_PREVIEW: Final = (
    f"none: links between sites are a preview, and may lose changes; {PREVIEWS_VARIABLE}={SITES_PREVIEW} switches it on"
)
SITES_NEED_NAME: Final = "the name of this site, since sites are listed; each lists the other by that name"
SITES_NEED_CHANGE_SETS: Final = "true, since sites are listed: a link reads the change sets of both sites"
SITE_IS_ANOTHER: Final = "the name of another site than this one"
SITES_HAVE_NO_QUORUM: Final = "no rule with a quorum, since sites are listed: an import cannot wait for one"


class SiteSpec(ManifestModel):
    """Another cluster, which lists this one too. Both take writes."""

    name: str = Field(pattern=SITE_NAME, description="What the other site calls itself in `spec.site`.")
    urls: list[Annotated[str, Field(pattern=r"^https?://[^\s/?#]{1,253}$")]] = Field(
        min_length=1, max_length=64, description="URLs of its masters, of a data centre that makes change sets."
    )
    token_secret_ref: SecretRef | None = Field(
        default=None, description="A Secret with `token`: that of an administrator there. Without it, none is shown."
    )
    mode: Literal["active"] = Field(default="active", description="Both sites take writes.")
    key: Literal["property", "subject", "quad"] = Field(
        default="property",
        description="What a conflict is decided on: the quads with one graph, subject and predicate; those with one "
        "graph and subject; or each quad alone. The same at both sites. It cannot be changed once linked.",
    )
    lag: Annotated[Duration, AfterValidator(duration_within("0s", "1h"))] = Field(
        default=1000, description="Least time between two imports."
    )
    offline: bool = Field(
        default=False,
        description="Neither of the two sites imports from the other one. It counts when it changes; "
        "`txlog site offline` and `txlog site online` count until then.",
    )


class LinkedSites(ManifestModel):
    """The fields of a cluster about its links."""

    site: str | None = Field(
        default=None,
        pattern=SITE_NAME,
        description="Name of this cluster among the sites that are linked with it. It cannot be changed once linked.",
    )
    sites: list[SiteSpec] = Field(
        default=[],
        max_length=1,
        description="The other site whose changes this data centre imports, without waiting for it. List it in one "
        "data centre. A preview, which the environment variable `TXLOG_PREVIEWS=sites` switches on; it does not act on "
        "Kubernetes yet.",
        json_schema_extra=list_map("name"),
    )


def check_sites(linked: LinkedSites, has_change_sets: bool, has_quorums: bool) -> None:
    """Raises what is wrong with the links of a data centre. ``has_quorums``: graphs of it have a rule with a quorum."""
    if not linked.sites:
        return
    if not is_preview_on(SITES_PREVIEW):
        raise expected_error(SITES_ARE_A_PREVIEW, "sites")
    if linked.site is None:
        raise expected_error(SITES_NEED_NAME, "site")
    if any(each.name == linked.site for each in linked.sites):
        raise expected_error(SITE_IS_ANOTHER, "sites", 0, "name")
    if not has_change_sets:
        raise expected_error(SITES_NEED_CHANGE_SETS, "changeSets", "enabled")
    if has_quorums:
        raise expected_error(SITES_HAVE_NO_QUORUM, "durability", "graphs")
