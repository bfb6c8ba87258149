"""The append-only files of a master: its promises, the transactions that it holds, and the order of the log.

Format versions 1 and 2. Numbers are little-endian; nothing here may change without a new version.

**Folder**::

    lock                      flock: one process
    segment-0000000001        created with its full size, zero-filled, fsynced before it gets this name
    segment-0000000002        ...
    index-0000000001          what a start needs of that segment, written when another follows; never needed
                              (:mod:`.segment_index`)
    spare-0000000003          zeros (perhaps with a header): the next segment, or the reserve of a full disk
    making-0000000004         an unfinished spare or index, or a payload that is on the disk before its record: with
                              the rest of that record this file becomes a segment; removed at the next start

**Segment**: two copies of the header, records end to end, zeros::

    +-----------+-----------+----------+----------+-----+-----------+
    | header    | header    | record   | record   | ... | 0 0 0 ... |
    +-----------+-----------+----------+----------+-----+-----------+
    0           h           2h         8-byte aligned               size

**Segment header** (h bytes, a multiple of 512; one good copy is enough; on disk before the segment has its name)::

    0   magic "TXLOGSEG"
    8   u32 crc32 of bytes 12..h
    12  u32 format version         the offset of this and of the magic never changes; 2 where the views are longer
                                   than 65,535 bytes, else 1
    16  u32 h
    20  u32 zero
    24  u64 size of the file
    32  u64 segment number         the one in the name
    40  u64 number of its first record
    48  u64 birth of the journal
    56  16 bytes chain hash before its first record
    72  u16 length of the vitals; version 1: u16 length of the views, u32 zero; version 2: u16 zero, u32 that length
    80  vitals before its first record, views (MessagePack: [accepted, installed])

A header promises that every record before its first one was synced.

**Record**::

    0   mark f1 54 78 52           "next record here", to find one after a damaged range
    4   u32 head crc               crc32 of bytes 8..front end; begins with crc32(birth, segment number)
    8   u32 length                 of the whole, a multiple of 8
    12  u8 kind, u8 flags, u16 length of the vitals
    16  u64 number                 1, 2, 3, ... over all segments
    24  u64 synced                 every record up to this number was fsynced before a byte of this one was written
    32  16 bytes chain hash        blake2b(chain hash of the previous record + front)
    48  u32 tail crc               crc32 of the tail and the zeros after it
    52  u32 length of the front
    56  u64 a, u32 b               their meaning depends on the kind
    68  u32 length of the tail
    72  vitals                     the state before this record (:class:`.state_header.StateHeader`)
    ..  front                      kind's body
    ..  tail                       payloads (Held only)
    ..  zeros to a multiple of 8

The chain hash covers the front, and the front of a Held record contains the content hashes of the payloads in its tail.

**Vitals**, so that a damaged record never destroys a promise: the state *before* the record that carries them. The
record itself is the other half; when it cannot be read, the vitals of the next one contain its effect::

    u64 start, ceiling, stable index, log end index, 16 bytes log end hash
    u64 changes: accepted views that changed the log, the stable index or stamps
    u64 epoch, ballot of the accepted view, u64 epoch, ballot of the installed one
    u8 length + coordinator of the accepted view, u8 length + coordinator of the installed one
    promised: u8 0 (it is the accepted view), or u8 1, u64 epoch, ballot, u8 length + coordinator
    left:     u8 0 (none), or the same
    u16 origins, each: u8 length + node, u64 birth, u64 last seq held; the journal's own one first
    orders: the operator's overrides. Empty if there are none, else u8 1, u8 members of a bootstrap, u8 excluded
            members; each of the former: u8 length + node, each of the latter: u8 length + node, u64 birth, u64 start
    zeros to a multiple of 8

**Kinds**::

    1 Started        a = start
    2 Held           a = first seq, b = items; flag 1: one has a key; flag 2: written by a repair; flag 4, only with
                     flag 1: the first stamps
                     front: u8 length + node, u64 birth, zeros to 8 | u64 stamps | u32 payload lengths |
                            16-byte content hashes | u8 kinds | with flag 1: u16 key lengths, keys |
                            with flag 4: u64 first stamps
                     tail:  payloads end to end
    3 Added          a = first index, b = entries; flag 2 as above
                     front: MessagePack [[[node, birth, first seq, count], ...], hashes, stable]
    4 Stable         a = index
    5 Ceiling        a = stamp
    6 ViewAccepted   a = cut, b = the number of the change (changes + 1; 0: it changes nothing but the view);
                     flag 2: a copy that a repair or a start wrote, which is no event
                     front: MessagePack [view, [[node, birth, first seq, count], ...], hashes,
                                         [[node, birth, first seq, u64 stamps], ...]]
                     written twice in a row: no other master has it. Of the copies with one number the first
                     readable one counts, at the position of the first one written
    7 ViewInstalled  a = index of the base; front: MessagePack [epoch, ballot, coordinator]
    8 Seal           empty: its ``synced`` distinguishes a torn tail from a damaged last record. Two in a row, the first
                     with zeros in its tail, so that the second has a sector of its own. One before a Held record
                     fills the space that was left before a payload that was on the disk first
    9 Repaired       front: MessagePack [first, last, segment]: records first..last (and that segment's header) were
                     damaged. Their content is written again before this record. If a stamp in it is not certain, a
                     Promised that stops the view precedes it
    10 Promised      front: MessagePack [epoch, ballot, coordinator]
    11 Left          front: the same
    12 Trimmed       a = the first segment that is still needed, b = its number among the changes; flag 2 as with a view
                     front: MessagePack of ``txlog.model.records.LogStart``; written twice in a row, as a view that
                     changes something. Segments below ``a`` may be gone: the header of the first remaining one
                     contains their final state
    13 Orders        front: MessagePack [[node, ...], [[node, birth, start], ...]]: all of the operator's overrides
                     that have not taken effect yet. A journal without any override has no record of this kind, so its
                     bytes are the same as before this kind existed
    14 KeyRows       a = number of the part, from 0 on; b = lower half of the number of the first record of the row of
                     parts; front: MessagePack of ``txlog.model.records.KeyTablePart``. Each part is written twice in a
                     row. A Trimmed with ``key_parts`` above 0 follows all its parts, and keeps their segments
"""

from txlog.journal.group_commit import GroupCommit, SparePreallocation
from txlog.journal.inspection import JournalReport, check_journal, dump_journal
from txlog.journal.journal import Journal
from txlog.journal.memory_vfs import MemoryVfs, SimulatedCrash
from txlog.journal.scrubber import ScrubTask
from txlog.journal.vfs import OsVfs, Vfs, VfsFile

__all__ = [
    "GroupCommit",
    "Journal",
    "JournalReport",
    "MemoryVfs",
    "OsVfs",
    "ScrubTask",
    "SimulatedCrash",
    "SparePreallocation",
    "Vfs",
    "VfsFile",
    "check_journal",
    "dump_journal",
]
