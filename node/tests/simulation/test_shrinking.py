"""A failing plan is made small: what is left is what it takes."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

from txlog_simulation.run_plan import RunPlan, draw_plan
from txlog_simulation.shrink import shrink
from txlog_simulation.simulation import run


def of_five_masters() -> RunPlan:
    return next(plan for plan in map(draw_plan, range(1000)) if plan.masters == 5 and len(plan.faults) > 5)


def test_only_what_it_takes_is_left() -> None:
    plan = of_five_masters()
    crash, work = plan.faults[3]._replace(a=1, b=0), plan.work[-1]._replace(a=1, many=9, keyed=True)
    plan = replace(plan, faults=(*plan.faults[:3], crash, *plan.faults[4:]), work=(*plan.work[:-1], work))
    small = shrink(plan, lambda p: crash in p.faults and any(w.at_ms == work.at_ms and w.many for w in p.work))
    assert small.faults == (crash,)
    assert small.work == (work._replace(many=1, keyed=False, repeat=False, skip=False),)
    assert (small.masters, len(small.centres), len(small.clock_rates)) == (2, 2, 2)
    assert (small.loss, small.repeat, small.jitter_ms, small.disk_ms, small.links) == (0.0, 0.0, 0, 0, ())


def test_work_that_an_earlier_step_took_out_is_passed_over() -> None:
    plan = of_five_masters()
    far, near = plan.work[-1]._replace(a=4, at_ms=400), plan.work[-1]._replace(a=0, at_ms=401)
    plan = replace(plan, work=(near, far))

    def fails(tried: RunPlan) -> bool:
        times = {work.at_ms for work in tried.work}
        return near.at_ms in times and (tried.masters < 3 or far.at_ms in times)

    assert [work.at_ms for work in shrink(plan, fails).work] == [near.at_ms]


def test_a_master_that_comes_late_may_go() -> None:
    plan = next(plan for plan in map(draw_plan, range(1000)) if plan.late_master > 1)
    assert shrink(plan, lambda p: not run(p).violations, runs_max=20).late_master == -1
    plan = next(plan for plan in map(draw_plan, range(1000)) if plan.masters > 3)
    assert shrink(replace(plan, late_master=1), lambda p: p.late_master == 1).late_master == 1


def test_a_plan_of_which_all_is_needed_stays() -> None:
    plan = of_five_masters()
    assert shrink(plan, lambda p: p == plan) == plan


def test_runs_are_bounded() -> None:
    tried: list[RunPlan] = []

    def fails(plan: RunPlan) -> bool:
        tried.append(plan)
        return False

    shrink(of_five_masters(), fails, runs_max=7)
    assert len(tried) == 7


def test_a_mutant_fails_with_a_plan_that_a_person_can_read() -> None:
    command = [sys.executable, "-m", "txlog_simulation", "--mutant", "present-members-holds-ignored", "--seeds", "20"]
    done = subprocess.run(
        [*command, "--stop-at-first", "--jobs", "1", "--quiet", "--shrink"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    head, *plan = done.stdout[done.stdout.index("the smallest plan") :].splitlines()
    found = re.search(r"\((\d+) events of (\d+)\)", head)
    assert found is not None, head
    assert int(found[1]) <= 4 < int(found[2])
    assert sum(" ms  " in line for line in plan if "(rule" not in line) == int(found[1])
    assert any(line.startswith("  log (rule 12)") for line in plan)
