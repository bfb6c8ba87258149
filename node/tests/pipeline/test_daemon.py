"""Spark's Python daemon: what a child does between two tasks."""

from __future__ import annotations

import socket

from txlog.pipeline.pyspark_daemon import EXIT_RELEASED, exit_on_closed_connection


def test_a_child_works_while_it_is_given_tasks_and_goes_silently_when_it_is_let_go() -> None:
    tasks: list[tuple[bytes, bool]] = []

    def work(connection: socket.socket, authenticated: bool) -> int:
        tasks.append((connection.recv(5), authenticated))
        return 0

    spark, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    next_work = exit_on_closed_connection(work)
    with spark, child:
        spark.sendall(b"task1")
        assert next_work(child, False) == 0
        spark.sendall(b"task2")
        assert next_work(child, True) == 0
        spark.close()
        assert next_work(child, True) == EXIT_RELEASED
    assert tasks == [(b"task1", False), (b"task2", True)]
