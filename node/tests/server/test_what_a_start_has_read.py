"""What a start has read is let go of once the master works: with a long queue it is as large as the queue itself."""

import asyncio
import gc
import io
import time
from pathlib import Path

from e2e.lib.ports import free_ports
from txlog.client import MasterClient, MasterUnreachable
from txlog.config.process_config import NodeConfig, PeerConfig
from txlog.model.errors import TxLogError
from txlog.model.records import RecoveredState
from txlog.server.master_process import serve
from txlog.telemetry.event_log import EventLog

DEADLINE_S = 60.0


def is_ready(url: str) -> bool:
    try:
        with MasterClient(url, 2.0) as master:
            return master.health("ready")
    except (MasterUnreachable, TxLogError):
        return False


async def test_a_master_that_works_keeps_nothing_of_what_its_start_has_read(tmp_path: Path) -> None:
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("0" * 64 + "\n")
    config = NodeConfig(
        node="uk-1",
        data_center="uk",
        repository="r",
        port=port,
        journal_folder=tmp_path / "journal",
        peer_token_file=token,
        peers=[PeerConfig(node="uk-1", data_center="uk", url=url)],
    )
    gc.collect()
    before = {
        id(each): each for each in gc.get_objects() if type(each) is RecoveredState
    }  # other tests' in this process
    ended: list[BaseException] = []
    master = asyncio.ensure_future(serve(config, EventLog("uk-1", io.StringIO()), ended.append))
    try:
        until = time.monotonic() + DEADLINE_S
        while not await asyncio.to_thread(is_ready, url):
            assert not master.done(), master.exception()
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
        gc.collect()
        kept = [each for each in gc.get_objects() if type(each) is RecoveredState and id(each) not in before]
        assert not kept
    finally:
        master.cancel()
        await asyncio.wait([master], timeout=DEADLINE_S)
    assert not ended
