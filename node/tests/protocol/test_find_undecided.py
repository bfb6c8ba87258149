"""One undecided transaction is found as in the list of all."""

from __future__ import annotations

from test_synchronous_masters import cluster

from txlog.protocol.views.undecided import find_undecided, list_undecided


def test_it_is_the_one_of_the_list() -> None:
    masters = cluster("abc")
    decided = masters.take("a", "one")
    masters.run(2000)
    masters.split("a")
    waiting = [masters.take("a", "two"), masters.take("a", "three")]
    for at in range(8):
        masters.run(100)
        if at == 3:
            masters.join()
        for node in "abc":
            log = masters.core(node).log_state
            assert log is not None
            listed = {one.txid: one for one in list_undecided(log)}
            for txid in (decided, *waiting):
                assert find_undecided(log, txid) == listed.get(txid), (node, txid)
            if node == "a" and at == 0:
                assert set(listed) == set(waiting)
