------------------------------ MODULE Masters ------------------------------
(* How masters agree on one log: posts, views, splits, rejoins, lost disks and idempotency keys.

   Numbers in brackets, as in [rule 12], are rules of docs/design/protocol.md, section 9.
   README.md says what is left out, and how the names here correspond to the code.

   A message that was sent stays readable, so it may arrive at any later time, several times, or never.
   A post is read at the moment at which it is sent; a post that is late is one that was sent late.  *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  N,            \* number of masters; they are named 1 .. N
  Writers,      \* the masters that clients write to
  MaxWrites,    \* how many transactions clients write
  Proposals,    \* the sets of masters for which a view may be proposed
  Coordinators, \* the masters that may propose a view
  MaxProposals, \* how many views are proposed, those of the split at the beginning included
  MaxNumber,    \* highest number of a view
  Whole,        \* whether a post has its transactions with it: {TRUE}, or BOOLEAN where they may also come later
  Alone,        \* whether a master takes its peers for silent: a subset of BOOLEAN; {FALSE} under Majority
  MaxCrashes,   \* how many crashes happen
  MaxLost,      \* how many disks are lost
  IsSplit,      \* whether the cluster is already split at the beginning
  Majority,     \* splitMode: TRUE for Majority, FALSE for Continue
  Simple        \* splitRecovery in Continue: TRUE for Simple, FALSE for Smart

Masters == 1 .. N
NoView == 0
FirstView == 1
Numbers == FirstView .. MaxNumber
Coordinator(b) == (b % N) + 1
(* The number of a view contains its coordinator, so that two coordinators never use one number. *)

VARIABLES
  \* What clients wrote. Every transaction carries the same idempotency key: each is a retry of the first.
  txs,        \* sequence of [origin, birth]; a transaction is named by its place in it
  \* Durable at each master.
  birth,      \* incarnation
  log,        \* sequence of entries [n, s]: transaction n with stamp s
  queue,      \* set of entries that wait for their order
  unstamped,  \* own transactions that arrived while the view was stopped
  counter,    \* no new stamp is at or below it; journaled before a post, as its ceiling
  promised,   \* number of the highest proposal that was answered
  view,       \* the latest accepted view
  installed,  \* whether that view is known to be accepted by all its members
  stable,     \* how many entries of the log every member is known to have
  \* Lost in a crash.
  heard,      \* per peer the last claim received: counter, own transactions, transactions held, length of the log
  \* The worker of each master.
  worker,     \* what it executed: sequence of [n, counts]
  \* Messages of view changes: proposal, reports, plan (the accept), who accepted.
  views,
  \* What the checker remembers.
  settled,    \* per view the longest stable log that any of its members computed
  lost,       \* transactions of which the only copy was on a lost disk
  crashes, disks

vars == <<txs, birth, log, queue, unstamped, counter, promised, view, installed, stable, heard, worker, views,
          settled, lost, crashes, disks>>

------------------------------- (* Helpers *) -------------------------------

Max(S) == CHOOSE x \in S : \A y \in S : x >= y
Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Range(seq) == {seq[i] : i \in 1 .. Len(seq)}
Names(entries) == TLCEval({e.n : e \in entries})
Order(seq) == [i \in 1 .. Len(seq) |-> seq[i].n]
IsPrefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a
Comparable(a, b) == IsPrefix(a, b) \/ IsPrefix(b, a)

(* The key of the order: stamp, then node id, then the origin's own sequence. *)
Before(a, b) == \/ a.s < b.s
                \/ a.s = b.s /\ txs[a.n].origin < txs[b.n].origin
                \/ a.s = b.s /\ txs[a.n].origin = txs[b.n].origin /\ a.n < b.n

RECURSIVE Sorted(_)
Sorted(S) == IF S = {} THEN <<>>
             ELSE LET e == CHOOSE x \in S : \A y \in S \ {x} : Before(x, y) IN <<e>> \o Sorted(S \ {e})

Has(m) == Names(Range(log[m]) \cup queue[m])
Holds(m) == Has(m) \cup unstamped[m]
Own(m, names) == {n \in names : txs[n].origin = m /\ txs[n].birth = birth[m]}
Members(v) == views[v].members
NoClaim == [counter |-> 0, own |-> {}, held |-> {}, len |-> 0]
NothingHeard == [m \in Masters |-> NoClaim]
NoPlan == [base |-> <<>>, queue |-> {}, highest |-> 0, ancestors |-> {}, kept |-> {}, done |-> FALSE]
NotProposed == [members |-> {}, births |-> <<>>, reports |-> {}, plan |-> NoPlan, accepted |-> {}]
Proposed(b) == views[b].members /= {}

(* A master posts, merges, appends and stamps only in its latest view, and only while that is not stopped [rule 34]. *)
Working(m) == view[m] /= NoView /\ installed[m] /\ promised[m] = view[m]

Opened(S, ancestors) ==
  [members |-> S, births |-> [m \in Masters |-> 1], reports |-> {}, accepted |-> S,
   plan |-> [NoPlan EXCEPT !.ancestors = ancestors, !.kept = ancestors, !.done = TRUE]]

(* An empty cluster, in one view; if IsSplit, masters 1 and 2 and master 3 already continue in views of their own. *)
Init ==
  LET start(m) == IF ~ IsSplit THEN FirstView ELSE IF m = 3 THEN 2 ELSE 3 IN
  /\ txs = <<>>
  /\ birth = [m \in Masters |-> 1]
  /\ log = [m \in Masters |-> <<>>]
  /\ queue = [m \in Masters |-> {}]
  /\ unstamped = [m \in Masters |-> {}]
  /\ counter = [m \in Masters |-> 0]
  /\ promised = [m \in Masters |-> start(m)]
  /\ view = [m \in Masters |-> start(m)]
  /\ installed = [m \in Masters |-> TRUE]
  /\ stable = [m \in Masters |-> 0]
  /\ heard = [m \in Masters |-> NothingHeard]
  /\ worker = [m \in Masters |-> <<>>]
  /\ views = [b \in Numbers |-> IF b = FirstView THEN Opened(Masters, {})
                                ELSE IF IsSplit /\ b = 2 THEN Opened({3}, {FirstView})
                                ELSE IF IsSplit /\ b = 3 THEN Opened({1, 2}, {FirstView})
                                ELSE NotProposed]
  /\ settled = [b \in Numbers |-> <<>>]
  /\ lost = {}
  /\ crashes = 0
  /\ disks = 0

------------------------- (* Workers and keys *) ----------------------------

(* Of all entries with one key, the first of the log takes effect; the others are no-ops [rule 16]. *)
Counts(lg, i) == \A j \in 1 .. i - 1 : lg[j].n = lg[i].n

Replay(lg, from, to) == [i \in 1 .. to - from |-> [n |-> lg[from + i].n, counts |-> Counts(lg, from + i)]]

(* A worker executes the log up to the stable index [rule 33]. If what it executed is not the beginning of the log,
   it goes back, and replays. *)
Execute(w, lg, to) ==
  LET isOnLog == IsPrefix(Order(w), Order(lg))
  IN IF isOnLog /\ Len(w) >= to THEN w
     ELSE IF isOnLog THEN w \o Replay(lg, Len(w), to)
     ELSE Replay(lg, 0, to)

------------------------------ (* Rounds *) ---------------------------------

(* A client writes to master m. The transaction is durable there before the client is told [rules 3, 15].
   Its stamp is above everything that m saw or promised [rule 4]. In a stopped view it gets no stamp yet [rule 21]. *)
Write(m) ==
  /\ Len(txs) < MaxWrites
  /\ m \in Writers
  /\ view[m] /= NoView
  /\ txs' = Append(txs, [origin |-> m, birth |-> birth[m]])
  /\ LET n == Len(txs) + 1
         s == counter[m] + 1
     IN IF Working(m)
        THEN /\ queue' = [queue EXCEPT ![m] = @ \cup {[n |-> n, s |-> s]}]
             /\ counter' = [counter EXCEPT ![m] = s]
             /\ UNCHANGED unstamped
        ELSE /\ unstamped' = [unstamped EXCEPT ![m] = @ \cup {n}]
             /\ UNCHANGED <<queue, counter>>
  /\ UNCHANGED <<birth, log, promised, view, installed, stable, heard, worker, views, settled, lost, crashes,
                 disks>>

(* One snapshot of master m, which is durable before it leaves [rules 7, 8]. *)
Claim(m) == [counter |-> counter[m], own |-> Own(m, Has(m)), held |-> Has(m), len |-> Len(log[m])]

IsNewer(a, b) == a.counter >= b.counter /\ b.own \subseteq a.own /\ b.held \subseteq a.held /\ a.len >= b.len

(* A claim's counter counts only with what came with it: the transactions of its master, and its log [rule 10]. *)
Usable(claim, names, length) ==
  IF claim.own \subseteq names /\ claim.len <= length THEN claim.counter ELSE 0

RECURSIVE Ready(_, _, _, _)
(* The longest prefix of a sorted queue at or below the bound that all present members hold [rule 12]. *)
Ready(sorted, bound, present, claims) ==
  IF sorted = <<>> THEN <<>>
  ELSE IF Head(sorted).s <= bound /\ \A p \in present : Head(sorted).n \in claims[p].held
       THEN <<Head(sorted)>> \o Ready(Tail(sorted), bound, present, claims)
       ELSE <<>>

(* Every member of the view, present or silent, is known to hold the entry and all before it. *)
StableIndex(lg, from, peers, claims) ==
  Max({from} \cup {k \in from .. Len(lg) :
                     \A i \in from + 1 .. k : \A p \in peers : lg[i].n \in claims[p].held})

(* Master s posts to master r, which merges, appends what is in order, and moves its stable index.
   whole: the transactions come with the post; they may also be late.
   alone: whether r takes the other members for silent. Agreement does not depend on that guess [rule 14].
   Under Majority every member counts as present. The only member of a view appends by itself. *)
Post(s, r, whole, alone) ==
  LET names  == Has(r)
      new    == IF whole THEN {e \in queue[s] \cup Range(log[s]) : e.n \notin names} ELSE {}
      all    == names \cup Names(new)
      follow == IsPrefix(log[r], log[s]) /\ Names(Range(log[s])) \subseteq all
      lg1    == IF follow THEN log[s] ELSE log[r]
      rest   == LET there == Names(Range(lg1)) IN TLCEval({e \in queue[r] \cup new : e.n \notin there})
      peers  == Members(view[r]) \ {r}
      claims == TLCEval([t \in Masters |->
                           IF t = s THEN Claim(s)
                           ELSE IF t \in peers /\ IsNewer(heard[s][t], heard[r][t]) THEN heard[s][t]
                           ELSE heard[r][t]])
      count  == Max({counter[r], counter[s]})
      bound  == Min({count} \cup {Usable(claims[t], all, Len(lg1)) : t \in peers})
      ready  == Ready(Sorted(rest), bound, IF alone THEN {} ELSE peers, claims)
      lg2    == TLCEval(lg1 \o ready)
      end    == StableIndex(lg2, stable[r], peers, claims)
  IN /\ view[s] = view[r]
     /\ Working(s)
     /\ Working(r)
     /\ s /= r \/ Members(view[r]) = {r}
     /\ counter' = [counter EXCEPT ![r] = count]
     /\ heard' = [heard EXCEPT ![r] = claims]
     /\ log' = [log EXCEPT ![r] = lg2]
     /\ queue' = [queue EXCEPT ![r] = rest \ Range(ready)]
     /\ stable' = [stable EXCEPT ![r] = end]
     /\ worker' = [worker EXCEPT ![r] = Execute(@, lg2, end)]
     /\ settled' = [settled EXCEPT ![view[r]] = IF end > Len(@) THEN SubSeq(Order(lg2), 1, end) ELSE @]
     /\ UNCHANGED <<txs, birth, unstamped, promised, view, installed, views, lost, crashes, disks>>

--------------------------- (* The next view *) -----------------------------
(* Pure functions of the reports R of a proposal [rule 25]. A learner reports no view: it has no vote [rule 2]. *)

Voters(R) == {r \in R : r.view /= NoView}
Ancestors(v) == views[v].plan.ancestors
Nodes(R, v) == {r.node : r \in {x \in R : x.view = v}}
Longest(R, v) == (CHOOSE r \in R : r.view = v /\ \A x \in R : x.view = v => Len(x.log) <= Len(r.log)).log

(* A view is closed before the next one opens: its longest log, then all queues of its members [rule 21]. *)
Closed(R, v) ==
  LET longest == Longest(R, v)
      waiting == UNION {r.queue : r \in {x \in R : x.view = v}}
  IN longest \o Sorted({e \in waiting : e.n \notin Names(Range(longest))})

(* A view that another one has closed, or that its members never installed, is no branch [rules 24, 25]. *)
IsSuperseded(R, v, w) ==
  \/ v \in Ancestors(w)
  \/ /\ w > v
     /\ Ancestors(v) /= {}
     /\ Max(Ancestors(v)) \in Ancestors(w)
     /\ ~ \E r \in R : r.view = v /\ r.installed
     /\ Nodes(R, w) \cap Members(v) /= {}

Absent(R, v) ==
  {m \in Members(v) \ Nodes(R, v) : ~ \E r \in R : r.view > v /\ r.node = m /\ m \in Members(r.view)}

Branches(R) ==
  LET reported == {r.view : r \in R}
      leaves   == {v \in reported : ~ \E w \in reported : IsSuperseded(R, v, w)}
      extends(v, w) == /\ v /= w
                       /\ Len(Longest(R, w)) > Len(Longest(R, v)) \/ w > v
                       /\ IsPrefix(Longest(R, v), Longest(R, w))
  IN IF Majority THEN {Max(reported)}
     ELSE {v \in leaves : Absent(R, v) /= {} \/ ~ \E w \in leaves : extends(v, w)}

(* The branch with the most votes, then the longest, then the one with the first master. *)
Winner(R, S, branches) ==
  LET reported == {r.view : r \in R}
      late(v)  == {w \in reported \ branches :
                     IsSuperseded(R, w, v) /\ {x \in branches : IsSuperseded(R, w, x)} = {v}}
      absent(v) == {m \in Members(v) \ S : ~ \E w \in reported : w > v /\ m \in Members(w)}
      votes(v) == Cardinality(Nodes(R, v) \cup absent(v) \cup UNION {Nodes(R, w) : w \in late(v)})
      score(v) == votes(v) * 1000 + Len(Longest(R, v)) * 10 + (N - Min(Nodes(R, v)))
  IN CHOOSE v \in branches : \A w \in branches : score(v) >= score(w)

(* Each transaction once, at the least of its stamps. *)
Least(entries) == {e \in entries : \A f \in entries : f.n = e.n => e.s <= f.s}

(* Simple: what the branches share, then everything else in the order of its stamps. *)
MergedBase(R, branches) ==
  LET one    == Closed(R, Max(branches))
      shared == Max({k \in 0 .. Len(one) : \A v \in branches : IsPrefix(SubSeq(one, 1, k), Closed(R, v))})
      after  == UNION {Range(SubSeq(Closed(R, v), shared + 1, Len(Closed(R, v)))) : v \in branches}
  IN SubSeq(one, 1, shared) \o Sorted(Least(after))

(* The base, and what waits after it with new stamps, above every counter and stamp in the reports [rule 26].
   kept: the views whose stable entries do not move. A rejoin moves those of losing branches only. *)
Plan(R, S, b) ==
  LET branches == Branches(R)
      winner   == Winner(R, S, branches)
      isMerged == Simple /\ Cardinality(branches) > 1
      base     == IF isMerged THEN MergedBase(R, branches) ELSE Closed(R, winner)
      all      == UNION {r.queue \cup Range(r.log) : r \in R}
      outside  == Sorted(Least({e \in all : e.n \notin Names(Range(base))}))
      floor    == Max({r.counter : r \in R} \cup {e.s : e \in Range(base)})
      line(v)  == views[v].plan.kept \cup {v}
      reported == {r.view : r \in R}
      ends     == {v \in reported : ~ \E w \in reported : v \in Ancestors(w)}
  IN [base |-> base,
      queue |-> {[n |-> outside[i].n, s |-> floor + i] : i \in 1 .. Len(outside)},
      highest |-> floor + Len(outside),
      ancestors |-> Ancestors(winner) \cup {winner},
      kept |-> IF Majority THEN {v \in Numbers : v < b}
               ELSE IF Cardinality(ends) = 1 THEN UNION {line(v) : v \in ends}
               ELSE IF isMerged THEN {v \in Numbers : \A w \in branches : v \in line(w)}
               ELSE line(winner),
      done |-> TRUE]

IsMajority(S) == 2 * Cardinality(S) > N

--------------------------- (* View changes *) ------------------------------

Snapshot(m) == [node |-> m, view |-> view[m], installed |-> installed[m], log |-> log[m], queue |-> queue[m],
                counter |-> counter[m]]

(* Master c proposes a view of the masters S. It promises and reports in the same step.
   Its number is above everything that it promised, and durable before use [rule 34]. *)
Propose(c, S) ==
  /\ Cardinality({b \in Numbers : Proposed(b)}) <= MaxProposals
  /\ c \in Coordinators
  /\ c \in S
  /\ view[c] /= NoView
  /\ Majority => IsMajority(S)
  /\ \E b \in Numbers :
       /\ Coordinator(b) = c
       /\ b > promised[c]
       /\ ~ Proposed(b)
       /\ \A x \in Numbers : Coordinator(x) = c /\ x > promised[c] /\ ~ Proposed(x) => b <= x
       /\ views' = [views EXCEPT ![b] = [NotProposed EXCEPT !.members = S, !.births = birth,
                                                           !.reports = {Snapshot(c)}]]
       /\ promised' = [promised EXCEPT ![c] = b]
  /\ heard' = [heard EXCEPT ![c] = NothingHeard]
  /\ UNCHANGED <<txs, birth, log, queue, unstamped, counter, view, installed, stable, worker, settled, lost,
                 crashes, disks>>

(* Master m stops its view for good, and reports. The report is a durable promise [rules 21, 34]. *)
Report(m, b) ==
  /\ Proposed(b)
  /\ m \in Members(b)
  /\ birth[m] = views[b].births[m]
  /\ b > promised[m]
  /\ promised' = [promised EXCEPT ![m] = b]
  /\ views' = [views EXCEPT ![b].reports = @ \cup {Snapshot(m)}]
  /\ heard' = [heard EXCEPT ![m] = NothingHeard]
  /\ UNCHANGED <<txs, birth, log, queue, unstamped, counter, view, installed, stable, worker, settled, lost,
                 crashes, disks>>

(* Master m makes view b its latest, durably, with every transaction that the plan names.
   Own transactions that the plan does not have get their stamps now, above all others [rule 21].
   Nothing of the base is executed, posted or answered before the install. *)
Adopt(m, b, plan) ==
  LET named  == Names(Range(plan.base) \cup plan.queue)
      before == Holds(m) \ named
      own    == Own(m, before)
      floor  == Max({counter[m], plan.highest})
      stamped == {[n |-> n, s |-> floor + Cardinality({x \in own : x <= n})] : n \in own}
  IN /\ \A n \in named : \E x \in Masters : n \in Holds(x)
     /\ log' = [log EXCEPT ![m] = plan.base]
     /\ queue' = [queue EXCEPT ![m] = plan.queue \cup stamped]
     /\ unstamped' = [unstamped EXCEPT ![m] = {}]
     /\ counter' = [counter EXCEPT ![m] = floor + Cardinality(own)]
     /\ view' = [view EXCEPT ![m] = b]
     /\ installed' = [installed EXCEPT ![m] = FALSE]
     /\ stable' = [stable EXCEPT ![m] = 0]
     /\ heard' = [heard EXCEPT ![m] = NothingHeard]
     /\ UNCHANGED <<txs, birth, promised, worker, settled, lost, crashes, disks>>

(* All members have reported: the coordinator computes the view once, and is the first to accept it.
   Under Majority, those that know the log must be more than half [rules 2, 20]. *)
Close(b) ==
  LET c == Coordinator(b)
      R == Voters(views[b].reports)
      plan == Plan(R, Members(b), b)
  IN /\ Proposed(b)
     /\ ~ views[b].plan.done
     /\ promised[c] = b
     /\ {r.node : r \in views[b].reports} = Members(b)
     /\ R /= {}
     /\ Majority => IsMajority({r.node : r \in R})
     /\ views' = [views EXCEPT ![b].plan = plan, ![b].accepted = {c}, ![b].reports = {}]
     /\ Adopt(c, b, plan)

Accept(m, b) ==
  /\ views[b].plan.done
  /\ m \in Members(b) \ views[b].accepted
  /\ birth[m] = views[b].births[m]
  /\ promised[m] = b
  /\ views' = [views EXCEPT ![b].accepted = @ \cup {m}]
  /\ Adopt(m, b, views[b].plan)

(* All members have accepted: the base is stable. A higher promise prevents the install [rule 34]. *)
Install(m) ==
  LET b == view[m] IN
  /\ b /= NoView
  /\ ~ installed[m]
  /\ promised[m] = b
  /\ views[b].accepted = Members(b)
  /\ installed' = [installed EXCEPT ![m] = TRUE]
  /\ stable' = [stable EXCEPT ![m] = Len(log[m])]
  /\ worker' = [worker EXCEPT ![m] = Execute(@, log[m], Len(log[m]))]
  /\ settled' = [settled EXCEPT ![b] = IF Len(log[m]) > Len(@) THEN Order(log[m]) ELSE @]
  /\ UNCHANGED <<txs, birth, log, queue, unstamped, counter, promised, view, heard, views, lost, crashes,
                 disks>>

------------------------------ (* Faults *) ---------------------------------

(* The process ends and starts again. Its counter resumes at the ceiling [rule 5], its promises bind [rule 34], what it
   posted is on its disk [rule 8], and nothing that it heard counts any more [rule 10]. *)
Crash(m) ==
  /\ crashes < MaxCrashes
  /\ crashes' = crashes + 1
  /\ counter' = [counter EXCEPT ![m] = @]
  /\ promised' = [promised EXCEPT ![m] = @]
  /\ queue' = [queue EXCEPT ![m] = @]
  /\ heard' = [heard EXCEPT ![m] = NothingHeard]
  /\ UNCHANGED <<txs, birth, log, unstamped, view, installed, stable, worker, views, settled, lost, disks>>

(* The disk is lost: a new incarnation, which is a learner until it accepts a view [rules 1, 2]. *)
LoseDisk(m) ==
  /\ disks < MaxLost
  /\ disks' = disks + 1
  /\ birth' = [birth EXCEPT ![m] = @ + 1]
  /\ lost' = lost \cup {n \in Holds(m) : \A x \in Masters \ {m} : n \notin Holds(x)}
  /\ log' = [log EXCEPT ![m] = <<>>]
  /\ queue' = [queue EXCEPT ![m] = {}]
  /\ unstamped' = [unstamped EXCEPT ![m] = {}]
  /\ promised' = [promised EXCEPT ![m] = NoView]
  /\ view' = [view EXCEPT ![m] = NoView]
  /\ installed' = [installed EXCEPT ![m] = FALSE]
  /\ stable' = [stable EXCEPT ![m] = 0]
  /\ counter' = [counter EXCEPT ![m] = 0]
  /\ heard' = [heard EXCEPT ![m] = NothingHeard]
  /\ worker' = [worker EXCEPT ![m] = <<>>]
  /\ UNCHANGED <<txs, views, settled, crashes>>

Next ==
  \/ \E m \in Masters : Write(m) \/ Install(m) \/ Crash(m) \/ LoseDisk(m)
  \/ \E s, r \in Masters : \E whole \in Whole, alone \in Alone : Post(s, r, whole, alone)
  \/ \E c \in Masters : \E S \in Proposals : Propose(c, S)
  \/ \E b \in Numbers : Close(b) \/ \E m \in Masters : Report(m, b) \/ Accept(m, b)

Spec == Init /\ [][Next]_vars

---------------------------- (* Properties *) -------------------------------

(* No accepted transaction is lost, unless the only disk that had it is [rules 3, 26]. *)
AcceptedKept ==
  \A n \in 1 .. Len(txs) : n \notin lost =>
    /\ \E m \in Masters : n \in Holds(m)
    /\ birth[txs[n].origin] = txs[n].birth => n \in Holds(txs[n].origin)

(* What is stable in a view stays durable at each of its members [rules 8, 16]. *)
SyncedKept ==
  \A b \in Numbers : \A m \in Members(b) : birth[m] = views[b].births[m] =>
    \A i \in 1 .. Len(settled[b]) : settled[b][i] \in Holds(m)

(* No log has a transaction twice, nor one that still waits [rule 26]. *)
NoneTwice ==
  \A m \in Masters : Cardinality(Has(m)) = Len(log[m]) + Cardinality(queue[m])

(* In one view, of two logs one is a prefix of the other [rules 12, 14]. *)
OneOrder ==
  \A m, x \in Masters : view[m] = view[x] /\ installed[m] /\ installed[x] => Comparable(log[m], log[x])

(* Keys strictly grow in every log [rule 13]. *)
KeysGrow ==
  \A m \in Masters : \A i \in 1 .. Len(log[m]) - 1 : Before(log[m][i], log[m][i + 1])

(* Stable entries stay where they are in every view that continues theirs [rules 21, 25]. *)
SettledStays ==
  \A b \in Numbers : (Proposed(b) /\ views[b].plan.done /\ views[b].accepted = Members(b)) =>
    \A v \in views[b].plan.kept : IsPrefix(settled[v], Order(views[b].plan.base))

(* A counter that a peer may use: every own transaction at or below it came with it [rule 4]. *)
PromiseKept ==
  \A m, r \in Masters : view[m] = view[r] =>
    \A e \in Range(log[m]) \cup queue[m] :
      e.n \in Own(m, Has(m)) /\ e.s <= heard[r][m].counter => e.n \in heard[r][m].own

(* Promises survive a crash [rules 5, 34]. *)
PromisesGrow ==
  [][\A m \in Masters : birth'[m] = birth[m] =>
       promised'[m] >= promised[m] /\ counter'[m] >= counter[m]]_vars

(* Under Majority, at most one view has all its members at work [rule 20]. *)
OneViewAtWork ==
  LET atWork == {b \in Numbers : Proposed(b) /\ \A m \in Members(b) : view[m] = b /\ promised[m] = b}
  IN Majority => Cardinality(atWork) <= 1

(* Each worker executed the beginning of the log of its master's view, each transaction once [rules 25, 33]. *)
WorkerFollows ==
  \A m \in Masters : installed[m] => Order(worker[m]) = SubSeq(Order(log[m]), 1, stable[m])

(* The key takes effect exactly once in each store, and for the same transaction in each [rule 16]. *)
KeyOnce ==
  \A m \in Masters : installed[m] /\ worker[m] /= <<>> =>
    {i \in 1 .. Len(worker[m]) : worker[m][i].counts} = {1}
=============================================================================
