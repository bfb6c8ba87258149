"""The rules without one of their parts: how each is seen to break."""

from __future__ import annotations

from typing import Final, NamedTuple

from e2e.model.certification.values import LeftOut


class CertificationMutant(NamedTuple):
    """``history``: the one made by hand that breaks; empty: random runs break, ``seed`` is one of them, and one of the
    first ``within`` runs must."""

    left_out: LeftOut
    rule: str
    history: str = ""
    within: int = 0
    seed: int = 0


MUTANTS: Final = (
    CertificationMutant(LeftOut.MARKER_LATE, "C1", "read-before-marker"),
    CertificationMutant(LeftOut.ONE_MARKER, "C1", "between-the-markers"),
    CertificationMutant(LeftOut.INDEX_ONLY, "C2", "winner-wrote"),
    CertificationMutant(LeftOut.HASH_ONLY, "C2", "untouched"),
    CertificationMutant(LeftOut.MISSING_OK, "C2", "absent"),
    CertificationMutant(LeftOut.COVERED_OK, "C2", "reordered"),
    CertificationMutant(LeftOut.TEXT_COVERED, "C2", "text-moved"),
    CertificationMutant(LeftOut.FALLEN_OK, "C2", "fallen"),
    CertificationMutant(LeftOut.RISEN_OK, "C2", "risen"),
    CertificationMutant(LeftOut.ORDER_OK, "C2", "reordered"),
    CertificationMutant(LeftOut.KEY_BEHIND, "C2", "risen-by-key"),
    CertificationMutant(LeftOut.FROM_UNSEEN, "C2", "reordered"),
    CertificationMutant(LeftOut.FROM_FIRST, "C2", within=50, seed=0),
    CertificationMutant(LeftOut.ACTUAL_OFF, "C2", "none-rises-by-a-fall"),
    CertificationMutant(LeftOut.DECLARED, "C2", "refused-between"),
    CertificationMutant(LeftOut.LEXICAL, "C4", "unseen-form"),
    CertificationMutant(LeftOut.READ_PART, "C4", "unseen"),
    CertificationMutant(LeftOut.NO_TEXT, "C5", "unseen-text"),
    CertificationMutant(LeftOut.KEY_FIRST, "C6", within=50, seed=0),
    CertificationMutant(LeftOut.KEY_TRY, "C6", within=50, seed=0),
    CertificationMutant(LeftOut.TRIM_SHORT, "C7", within=50, seed=1),
    CertificationMutant(LeftOut.TRIM_MOVED, "C7", within=50, seed=8),
    CertificationMutant(LeftOut.FOOT_BARE, "C7", within=50, seed=1),
    CertificationMutant(LeftOut.NO_EXTEND, "C11", within=50, seed=0),
)
