"""The append-only files of a master: what it promised, what it holds, the order it agreed to.

Format version 1. Numbers are little-endian; nothing here may change without a new version.

**Folder**::

    lock                      flock: one process
    segment-0000000001        made with its full size, zero-filled, fsynced before it gets this name
    segment-0000000002        ...
    index-0000000001          what that segment tells, made when another follows; never needed (:mod:`.sealed`)
    spare-0000000003          zeros (perhaps with a header): the next segment, or the reserve of a full disk
    making-0000000004         a spare or an index that is not finished, or a payload that is on the disk before its
                              record: the rest of the segment that this file becomes then; removed at the next start

**Segment**: two copies of the header, records end to end, zeros::

    +-----------+-----------+----------+----------+-----+-----------+
    | header    | header    | record   | record   | ... | 0 0 0 ... |
    +-----------+-----------+----------+----------+-----+-----------+
    0           h           2h         8-byte aligned               size

**Segment header** (h bytes, a multiple of 512; one good copy is enough; on disk before the segment has its name)::

    0   magic "TXLOGSEG"
    8   u32 crc32 of bytes 12..h
    12  u32 format version         where this and the magic stand never changes
    16  u32 h
    20  u32 zero
    24  u64 size of the file
    32  u64 segment number         the one in the name
    40  u64 number of its first record
    48  u64 birth of the journal
    56  16 bytes chain hash before its first record
    72  u16 length of the vitals, u16 length of the views, u32 zero
    80  vitals before its first record, views (MessagePack: [accepted, installed])

A header promises that every record before its first one was synced.

**Record**::

    0   mark f1 54 78 52           "next record here" when looking for one behind a damaged place
    4   u32 head crc               crc32 of bytes 8..front end; begins with crc32(birth, segment number)
    8   u32 length                 of the whole, a multiple of 8
    12  u8 kind, u8 flags, u16 length of the vitals
    16  u64 number                 1, 2, 3, ... over all segments
    24  u64 synced                 every record up to this number was fsynced before a byte of this one was written
    32  16 bytes chain hash        blake2b(chain hash of the previous record + front)
    48  u32 tail crc               crc32 of the tail and the zeros behind it
    52  u32 length of the front
    56  u64 a, u32 b               what they mean depends on the kind
    68  u32 length of the tail
    72  vitals                     what this record found
    ..  front                      kind's body
    ..  tail                       payloads (Held only)
    ..  zeros to a multiple of 8

The chain hash covers the front, and the front of a Held record has the content hashes of what is in its tail.

**Vitals**, so that a damaged record never takes a promise with it: the state *before* the record that carries them (the
record itself is the other half; when it cannot be read, the next one tells what it did)::

    u64 start, ceiling, stable index, log end index, 16 bytes log end hash
    u64 changes: accepted views that changed the log, the stable index or stamps
    u64 epoch, ballot of the accepted view, u64 epoch, ballot of the installed one
    u8 length + coordinator of the accepted view, u8 length + coordinator of the installed one
    promised: u8 0 (it is the accepted view), or u8 1, u64 epoch, ballot, u8 length + coordinator
    left:     u8 0 (none), or the same
    u16 origins, each: u8 length + node, u64 birth, u64 last seq held; the journal's own one first
    orders: nothing where there are none, or u8 1, u8 who begin, u8 without whom, each of the former: u8 length + node,
            each of the latter: u8 length + node, u64 birth, u64 start
    zeros to a multiple of 8

**Kinds**::

    1 Started        a = start
    2 Held           a = first seq, b = items; flag 1: one has a key; flag 2: written by a repair
                     front: u8 length + node, u64 birth, zeros to 8 | u64 stamps | u32 payload lengths |
                            16-byte content hashes | u8 kinds | with flag 1: u16 key lengths, keys
                     tail:  payloads end to end
    3 Added          a = first index, b = entries; flag 2 as above
                     front: MessagePack [[[node, birth, first seq, count], ...], hashes, stable]
    4 Stable         a = index
    5 Ceiling        a = stamp
    6 ViewAccepted   a = cut, b = the number of what it changes (changes + 1; 0: it changes nothing but the view);
                     flag 2: a copy that a repair or a start made, which is no event
                     front: MessagePack [view, [[node, birth, first seq, count], ...], hashes,
                                         [[node, birth, first seq, u64 stamps], ...]]
                     written twice in a row: nobody else has it. Of those with one number the first that can be read
                     counts, where the first was written
    7 ViewInstalled  a = index of the base; front: MessagePack [epoch, ballot, coordinator]
    8 Seal           nothing: its ``synced`` tells a torn tail from a damaged last record. Two in a row, the first with
                     zeros in its tail, so that the second stands in a sector of its own. One alone in front of a Held
                     record fills the room that was left before a payload that was on the disk first
    9 Repaired       front: MessagePack [first, last, segment]: records first..last (and that segment's header) were
                     damaged; what they held stands again before this record, and before that, where a stamp of it is
                     not certain, a Promised that stops the view
    10 Promised      front: MessagePack [epoch, ballot, coordinator]
    11 Left          front: the same
    12 Trimmed       a = the first segment that is needed still, b = its number among the changes; flag 2 as with a view
                     front: MessagePack of ``txlog.model.records.LogStart``; written twice in a row, as a view that
                     changes something. Segments below ``a`` may be gone: what is left begins with a header that found
                     what they told
    13 Orders        front: MessagePack [[node, ...], [[node, birth, start], ...]]: all of the operator's orders that
                     nothing has come of yet. A journal in which none was ever taken has no record of this kind, and is
                     byte for byte what it was before there was one
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
