"""Safeguards that only the lives of long clusters, steady writers and broken peers try, one each taken out. Imports
nothing of ``txlog``."""

from __future__ import annotations

from txlog_simulation.mutant import Mutant
from txlog_simulation.source_patches import SourceEdit
from txlog_simulation.violation import PROCESS

_BOUNDS = "txlog/model/bounds.py"
_CHECKS = "txlog/wire/message_checks.py"
_CATCH_UP = "txlog/protocol/views/catch_up.py"
_KEYS = "txlog/protocol/log/idempotency_keys.py"
_MESSAGES = "txlog/wire/messages.py"
_POST_SENDER = "txlog/protocol/replication/post_sender.py"
_REGISTRY = "txlog/runtime/worker_registry.py"
_STORES = "txlog/runtime/store_judgement.py"

LIFE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a-key-expires-shortly-before-its-retention",
        "16",
        False,
        (SourceEdit(_KEYS, "if high - low > self._retention:", "if high - low > self._retention * 0.9998:"),),
        profile="old",
    ),
    Mutant(
        "a-trimmed-log-begins-without-its-keys",
        "16",
        False,
        (SourceEdit(_KEYS, "        self.final.load(log_start.key_table)\n", ""),),
        profile="old",
    ),
    Mutant(
        "a-post-says-of-every-incarnation-that-it-was-heard",
        "32",
        False,
        (SourceEdit(_POST_SENDER, "for slot in slots if slot < HEARD_SLOTS)", "for slot in slots)"),),
        profile="old",
        counts=(PROCESS,),
    ),
    Mutant(
        "a-joining-master-must-lack-nothing",
        "32",
        False,
        (
            SourceEdit(_CATCH_UP, "if self.lacking <= CAUGHT_UP_LAG_MAX:", "if not self.lacking:"),
            SourceEdit(_CATCH_UP, "        return done > before and", "        return False and"),
        ),
        profile="flow",
    ),
    Mutant(
        "a-malformed-message-ends-its-reader",
        "9",
        False,
        (
            SourceEdit(
                _MESSAGES,
                '    except DECODE_ERRORS as wrong:\n        raise PeerFault(peer, "Malformed"',
                '    except RecursionError as wrong:\n        raise PeerFault(peer, "Malformed"',
            ),
        ),
        profile="liar",
        counts=(PROCESS,),
    ),
    Mutant(
        "a-founding-on-any-base",
        "31",
        False,
        (SourceEdit(_CHECKS, "view.ancestors or view == _as_founded(view)", "True"),),
        test="node/tests/protocol/test_hostile_peers.py::test_a_founding_begins_an_empty_log[change0]",
    ),
    Mutant(
        "a-name-that-no-master-has",
        "32",
        False,
        (SourceEdit(_BOUNDS, 'Annotated[str, Meta(pattern=rf"^{NODE_LABEL}\\Z")]', "str"),),
        test="node/tests/protocol/test_hostile_peers.py::test_a_transaction_of_a_master_with_no_possible_name_is_refused",
    ),
    Mutant(
        "an-incarnation-below-zero",
        "32",
        False,
        (SourceEdit(_BOUNDS, "Birth = Annotated[int, Meta(ge=0)]", "Birth = int"),),
        test="node/tests/protocol/test_hostile_peers.py::test_an_incarnation_below_zero_is_refused_in_every_message",
    ),
    Mutant(
        "a-count-of-any-size",
        "32",
        False,
        (SourceEdit(_BOUNDS, "Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]", "Count = int"),),
        profile="liar",
        counts=(PROCESS,),
    ),
    Mutant(
        "a-joining-master-is-never-near-its-end",
        "32",
        False,
        (
            SourceEdit(
                _CATCH_UP,
                "return self.theirs.is_near_end and self.mine.is_near_end",
                "return not self.theirs.lacking and not self.mine.lacking",
            ),
        ),
        profile="flow",
    ),
    Mutant(
        "applied-all-by-the-worker-that-is-furthest",
        "16",
        False,
        (SourceEdit(_REGISTRY, "min([*local, *remote], default=0)", "max([*local, *remote], default=0)"),),
        profile="retries",
    ),
    Mutant(
        "applied-by-a-worker-on-another-branch",
        "16",
        False,
        (SourceEdit(_REGISTRY, " or worker.refusal is not None or self.is_off_chain(worker):", ":"),),
        test="node/tests/simulation/test_lives.py::test_what_was_wrong_once_in_a_life_is_right[427508]",
    ),
    Mutant(
        "a-worker-beyond-this-log-has-executed-it",
        "16",
        False,
        (
            SourceEdit(
                _REGISTRY,
                "if position.index <= stable or self.is_on_chain(position):",
                "if True:",
            ),
        ),
        test="node/tests/simulation/test_lives.py::test_what_was_wrong_once_in_a_life_is_right[414709]",
    ),
    Mutant(
        "all-that-a-worker-beyond-this-log-executed-is-proved",
        "16",
        False,
        (
            SourceEdit(
                _REGISTRY,
                "self._proved[name] = stable, position.fence",
                "self._proved[name] = position.index, position.fence",
            ),
        ),
        test="node/tests/simulation/test_lives.py::test_what_was_wrong_once_in_a_life_is_right[29865]",
    ),
    Mutant(
        "a-second-cluster-takes-the-stores-of-the-first",
        "30",
        False,
        (
            SourceEdit(
                _STORES,
                "if position is None or not cluster or position.cluster == cluster:",
                "if position is None or not cluster or position.cluster:",
            ),
        ),
        profile="lone",
    ),
)
