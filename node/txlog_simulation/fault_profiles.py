"""Mixes of faults: each profile leaves some faults out and makes others frequent."""

from __future__ import annotations

PROFILES: dict[str, tuple[int, dict[str, int]]] = {
    # name: (share of seeds, fault kind -> how often relative to the others)
    "calm": (1, {"crash": 1, "cut": 1, "pause": 1}),
    "hearsay": (4, {"hearsay": 2, "crash": 1, "pause": 1}),
    "links": (3, {"cut": 4, "cut-one-way": 4, "partition": 2, "slow": 2, "pause": 1, "crash": 1}),
    "chain": (5, {"cut": 1, "cut-one-way": 1, "pause": 1, "crash": 1}),
    "crashes": (6, {"crash": 2, "crash-at-step": 5, "restart-all": 1, "cut": 1, "pause": 1, "clock": 1}),
    "clocks": (3, {"clock": 5, "crash": 3, "cut": 2, "cut-one-way": 2, "isolate": 2}),
    "forgetful": (17, {"amnesia": 3, "relapse": 4, "deaf": 1, "crash": 1, "clock": 1}),
    "isolated": (4, {"isolate": 5, "cut-one-way": 2, "crash": 1, "clock": 1, "pause": 1}),
    "founding": (1, {"crash-at-step": 4, "crash": 2, "cut": 2, "restart-all": 1}),
    "disks": (6, {"crash": 2, "crash-at-step": 1, "full": 2, "disk-error": 7, "stop": 1}),
    "damage": (3, {"crash": 2, "wipe": 2, "old-image": 2, "cut": 1, "pause": 1}),
    "wipes": (4, {"wipe": 4, "cut": 1, "pause": 1, "slow": 1, "cut-one-way": 1, "clock": 1}),
    "flips": (8, {"crash": 1, "flip": 5}),
    "forged": (9, {"crash": 1, "forge": 5, "cut": 1}),
    "views": (
        12,
        {
            "stop": 4,
            "crash": 2,
            "crash-ahead": 4,
            "crash-at-step": 2,
            "crash-at-change": 3,
            "slow-at-change": 1,
            "stop-all": 1,
            "cut": 1,
            "isolate": 1,
            "pause": 1,
        },
    ),
    "stops": (4, {"stop-all": 4, "stop": 3, "crash-ahead": 2, "crash": 1, "isolate": 1, "crash-at-change": 1}),
    "duels": (
        10,
        {"crash-at-change": 5, "cut-at-change": 5, "slow-at-change": 3, "stop": 1, "isolate": 1, "partition": 1},
    ),
    "majority": (
        8,
        {
            "crash-at-change": 2,
            "cut-at-change": 2,
            "isolate": 4,
            "partition": 3,
            "cut": 2,
            "crash": 2,
            "crash-at-step": 2,
            "stop": 1,
            "pause": 1,
        },
    ),
    "splits": (
        12,
        {
            "partition": 5,
            "isolate": 3,
            "crash-at-change": 2,
            "cut": 2,
            "crash": 2,
            "crash-at-step": 2,
            "stop": 1,
            "pause": 1,
        },
    ),
    "outbids": (3, {"outbid": 1}),
    "successions": (3, {"succession": 4, "crash": 1}),
    "flaps": (3, {"flap": 4, "crash": 1, "pause": 1}),
    "everything": (
        3,
        {
            "cut": 2,
            "cut-one-way": 2,
            "partition": 1,
            "isolate": 1,
            "slow": 1,
            "crash": 2,
            "crash-at-step": 2,
            "pause": 2,
            "clock": 2,
            "stop": 1,
            "full": 1,
            "restart-all": 1,
        },
    ),
}
MEMBERS_PROFILE = "members"
MEMBERS_SHARE = 0.08
"""Of all seeds, by a draw of its own: all the others stay what they were."""
MEMBERS_MIX = {
    "add": 4,
    "remove": 3,
    "mute": 2,
    "weight": 4,
    "mode": 5,
    "crash": 2,
    "crash-at-step": 2,
    "crash-at-change": 2,
    "cut": 1,
    "isolate": 2,
    "partition": 2,
    "stop": 1,
    "pause": 1,
}
"""Masters come, go, are muted and weighed anew, while much else goes wrong."""
DEAF_PROFILE = "deaf"
DEAF_FROM, DEAF_SHARE = "forgetful", 0.35
"""So many of the seeds of a profile that has plenty, by a draw of its own: all the others stay what they were."""
DEAF_MIX = {"crash": 2, "crash-at-step": 2, "crash-at-change": 2, "cut": 2, "cut-one-way": 2, "isolate": 1, "pause": 1}
"""One master hears nobody any more, and all hear it; the others go on without it, whatever else happens."""
ORDERS_PROFILE, FOUNDINGS_PROFILE = "orders", "foundings"
ORDERS_SHARES = {ORDERS_PROFILE: 0.06, FOUNDINGS_PROFILE: 0.04}
"""Of the seeds that are not of ``members``, by a draw of their own: all the others stay what they were."""
ORDERS_MIX = {
    "order": 5,
    "order-cut": 6,
    "order-heard": 2,
    "crash": 1,
    "crash-at-step": 1,
    "crash-at-change": 1,
    "cut": 1,
    "isolate": 1,
    "pause": 1,
    "stop": 1,
}
"""Members are let go by order, rightly and wrongly (``txlog force-view``), while other things go wrong."""
FOUNDINGS_MIX = {"found": 6, "come": 3, "crash-at-step": 4, "crash": 2, "cut": 2, "isolate": 2}
"""A cluster begins by order, since not all can answer (``txlog found``)."""
MIXES: dict[str, dict[str, int]] = {
    MEMBERS_PROFILE: MEMBERS_MIX,
    DEAF_PROFILE: DEAF_MIX,
    ORDERS_PROFILE: ORDERS_MIX,
    FOUNDINGS_PROFILE: FOUNDINGS_MIX,
}
"""Profiles that are drawn apart from the others."""
DIRECTED_PROFILES = ("outbids", "successions", "flaps")
"""One schedule of several masters each (``directed.py``), and little else."""
PARTITION_PROFILES = ("splits", "flaps", "successions", "duels", "majority")
"""Profiles with splits, or views that are cut off, which may end with a split that lasts (``parting.py``)."""
DIFFERING_PROFILES = ("splits", "flaps", "successions", "views", "stops", "duels", "links", "everything")
DIFFERING_SHARE = 0.25
"""Profiles in which masters prefer different strategies, in so many of their seeds; some change it while they run."""
PARTED_LAG_MS = 1000
"""Not where a silent one is waited for longer, under ``Continue``: each would cost as much as many other seeds."""
TERMINATING_FAULTS = ("wipe", "old-image", "forge")
"""Faults after which a master may end by name; at most one of them in a seed."""
