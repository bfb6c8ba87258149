"""How far a link is, as its process reports it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class LinkState(StrEnum):
    """``Online``: it imports. ``GoingOffline``: it was taken offline, and an entry that it has written may still take
    effect. ``Offline``: nothing is imported until it is online again. ``Unreachable``: a site does not answer; it tries
    again. ``ClockSkew``: the other site's clock is ahead, so it waits. ``NeedsState``: changes are missing, which only
    a copy of the data brings. ``Transferring``: one of the sites takes the state of the other one. ``OtherCluster``:
    one of the clusters was founded again. ``NamesDiffer``, ``KeysDiffer``: the manifests of the two sites do not agree.
    ``Refused``: what the log or the disk holds of the link cannot be read, or a site refuses what the link asks."""

    STARTING = "Starting"
    ONLINE = "Online"
    GOING_OFFLINE = "GoingOffline"
    OFFLINE = "Offline"
    UNREACHABLE = "Unreachable"
    CLOCK_SKEW = "ClockSkew"
    NEEDS_STATE = "NeedsState"
    TRANSFERRING = "Transferring"
    OTHER_CLUSTER = "OtherCluster"
    NAMES_DIFFER = "NamesDiffer"
    KEYS_DIFFER = "KeysDiffer"
    REFUSED = "Refused"


class LinkReport(msgspec.Struct, frozen=True, rename="camel"):
    """``state``: a :class:`LinkState`, or one of a newer version. ``cursor``: the entry of the other site up to which
    this one has imported. ``read``, ``own_read``: up to where both logs were read. ``keys_waiting``: changes after the
    cursor. ``corrections_waiting``: keys that wait for a correction. ``entries``: batches and corrections of the link
    in the log. ``conflicts``: keys of which one write lost. ``ignored``: entries of clients that wrote a record of the
    link. ``key``: what a key is. ``cluster``, ``other_cluster``: the ids of the clusters of ``site`` and ``other``,
    empty where not known yet. ``lag_entries``, ``lag_seconds``: a :class:`~txlog.sites.link_lag.LinkLag`.
    ``offline_by``: the site that has taken the link offline, empty: none. ``taken_at``: the entry with which this site
    has begun to take the state of the other one, 0 where it does not do so now. ``anchor``: the entry with which the
    book of this site begins, 0: the log's first. ``transferred``, ``transfer_keys``: keys that have the other site's
    value now, and all that differed when the copy was taken."""

    site: str
    other: str
    state: str
    cursor: int = 0
    read: int = 0
    own_read: int = 0
    keys_waiting: int = 0
    corrections_waiting: int = 0
    entries: int = 0
    conflicts: int = 0
    error: str = ""
    ignored: int = 0
    key: str = ""
    cluster: str = ""
    other_cluster: str = ""
    lag_entries: int = 0
    lag_seconds: float = 0.0
    offline_by: str = ""
    taken_at: int = 0
    anchor: int = 0
    transferred: int = 0
    transfer_keys: int = 0
