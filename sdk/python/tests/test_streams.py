"""Streams over wires that are cut, from servers that are killed, to listeners that go."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from both import client_of
from conftest import BRISK
from proxy import Proxy
from world import ROOT, World, eventually

from ash_sdk import (
    NO_RETRY,
    AshClient,
    AshStreamError,
    AsyncAshClient,
    Retry,
    Session,
    StreamEvent,
    Transcript,
    directory,
)
from ash_sdk.content import document, text
from ash_sdk.events import DoneEvent, RunRetryEvent, RunStartedEvent, TextDeltaEvent

Through = Callable[..., tuple[AshClient, Proxy]]

TALK = "Grüße.\n/think 世界 🦢 hm\n/say Let me see: äöü 🦢.\n/bash echo 1\n/say I have seen it."


def logged(client: AshClient, session: Session, run_id: str | None) -> list[tuple[str | None, str, object]]:
    """What the log says about a run, but for the prompt, which whoever sent it knows."""
    log = client.stream(session.id, until_idle=True)
    return [seen(event) for event in log if event.run_id == run_id and event.event != "prompt"]


def seen(event: StreamEvent) -> tuple[str | None, str, object]:
    return event.event_id, event.event, event.data


def of_the_log(events: list[StreamEvent]) -> list[tuple[str | None, str, object]]:
    return [seen(event) for event in events if event.event_id is not None]


def length_of_an_answer(client: AshClient, session: Session) -> int:
    """About how many bytes the answer to `TALK` takes on the wire."""
    events = list(client.send_message_stream(session.id, TALK))
    return 400 + sum(len(json.dumps(dict(event.data))) + 60 for event in events)


def test_a_wire_that_is_cut_after_any_number_of_bytes(through: Through, client: AshClient, session: Session) -> None:
    length = length_of_an_answer(client, session)
    cut = 0
    for at in [*range(1, 40, 13), *range(40, length, 173)]:
        cutting, proxy = through(lambda number, at=at: at if number == 0 else None)
        stream = cutting.send_message_stream(session.id, TALK)
        events = list(stream)
        cut += proxy.cuts
        assert of_the_log(events) == logged(client, session, stream.run_id), at
        names = [event.event for event in events]
        assert (names[0], names.count("session_start"), names[-1], names.count("done")) == (
            "session_start",
            1,
            "done",
            1,
        )
    assert cut > 10


@pytest.mark.parametrize("seed", range(3))
def test_a_wire_that_is_cut_again_and_again(through: Through, client: AshClient, session: Session, seed: int) -> None:
    chance = random.Random(seed)
    limits = [chance.randrange(1, 1500) for _ in range(1000)]
    cutting, proxy = through(lambda number: limits[number] if number % 4 else 900 + number)
    before = client.get_session(session.id).turns
    stream = cutting.send_message_stream(session.id, TALK)
    events = list(stream)
    assert of_the_log(events) == logged(client, session, stream.run_id)
    assert stream.transcript.text == Transcript(client.stream(session.id, until_idle=True)).text
    assert proxy.cuts > 3
    assert client.get_session(session.id).turns == before + 1


def test_a_log_that_is_followed_over_a_wire_that_is_cut(through: Through, client: AshClient, session: Session) -> None:
    client.send_message(session.id, TALK)
    whole = [seen(event) for event in client.stream(session.id, until_idle=True)]
    cutting, proxy = through(lambda number: 1100 if number % 3 else 700 + 50 * number)
    assert [seen(event) for event in cutting.stream(session.id, until_idle=True)] == whole
    assert proxy.cuts > 2
    following = client.stream(session.id, until_idle=True)
    assert Transcript(following).text
    assert following.transcript.turns == []  # A log may go on for ever, and nothing of it is kept.
    half = whole[len(whole) // 2]
    assert [seen(event) for event in cutting.stream(session.id, after=half[0], until_idle=True)] == whole[
        len(whole) // 2 + 1 :
    ]


def test_a_log_that_is_followed_ends_with_its_session(through: Through, client: AshClient, session: Session) -> None:
    following, proxy = through(lambda number: None, retry=NO_RETRY)
    told = []
    for event in following.stream(session.id):
        told.append(seen(event))
        if event.event == "session_active":
            client.end_session(session.id)
    assert told[-1][1] == "session_ended"
    assert [seen(event) for event in following.stream(session.id)] == told
    assert list(following.stream(session.id, after=told[-1][0])) == []
    assert sum(b"/stream" in request for request in proxy.requests) == 3


def test_a_log_that_is_followed_ends_when_its_agent_is_deleted(through: Through, client: AshClient, kind: str) -> None:
    agent = f"short-{kind}"
    client.create_agent(agent, system_prompt="You are short.")
    session = client.create_session(agent)
    following, _ = through(lambda number: None, retry=NO_RETRY)
    told = []
    for event in following.stream(session.id):
        told.append(event.event)
        if event.event == "session_active":
            client.delete_agent(agent)
    assert told[-1] == "session_ended"


def test_a_message_whose_answer_is_lost_is_carried_out_once(
    through: Through, client: AshClient, session: Session
) -> None:
    cutting, proxy = through(lambda number: 1 if number < 3 else None)
    assert cutting.send_message(session.id, "/say Once.").text == "Once."
    assert proxy.cuts == 3
    assert len(client.list_runs(session.id)) == 1


def test_a_creation_whose_answer_is_lost_happens_once(through: Through, client: AshClient) -> None:
    cutting, proxy = through(lambda number: 30 if number < 2 else None)
    made = cutting.create_session("notes", title=f"lost answers {proxy.url}")
    assert proxy.cuts == 2
    titles = [one.title for one in client.list_sessions(limit=1000)]
    assert titles.count(made.title) == 1
    client.end_session(made.id)


def test_a_file_that_is_cut_on_its_way_is_fetched_again(
    through: Through, client: AshClient, session: Session, tmp_path: Path
) -> None:
    content = random.Random(7).randbytes(300_000)
    client.write_session_files(session.id, {"large.bin": content})
    cutting, proxy = through(lambda number: 100_000 if number < 2 else None)
    assert cutting.save_session_file(session.id, "large.bin", tmp_path / "large.bin").read_bytes() == content
    assert proxy.cuts == 2
    assert [file.name for file in tmp_path.iterdir()] == ["large.bin"]


def test_a_wire_that_falls_silent_is_left(through: Through, client: AshClient, session: Session) -> None:
    # The bytes stop, and the connection stays open: only the time can tell.
    silent, proxy = through(lambda number: None, retry=Retry(silence=0.5, reconnects=20, first_pause=0.01))
    stream = silent.send_message_stream(session.id, "/wait 2s\n/say Late.")
    assert [event.event for event in stream][-1] == "done"
    assert stream.transcript.text == "Late."
    assert proxy.connections > 1


def test_a_stream_that_cannot_be_taken_up_says_how_far_it_came(
    through: Through, client: AshClient, session: Session
) -> None:
    cutting, _ = through(lambda number: 1200 if number == 0 else 0, retry=Retry(reconnects=2, first_pause=0.01))
    stream = cutting.send_message_stream(session.id, "/slow 20ms\n/repeat 60 word \n/say End.")
    with pytest.raises(AshStreamError) as broke:
        list(stream)
    assert broke.value.last_event_id is not None
    rest = list(client.stream(session.id, after=broke.value.last_event_id, until_idle=True))
    assert [event.event for event in rest][-1] == "done"


def test_a_log_with_a_large_document_is_followed_to_its_end(client: AshClient, session: Session) -> None:
    attached = document(bytes(13_000_000))  # 17 MB in base64, and the server takes 24.
    client.send_message(session.id, [attached, text("/say It is long.")])
    told = list(client.stream(session.id, until_idle=True))
    (prompt,) = [event for event in told if event.event == "prompt"]
    assert prompt.data["content"][0] == attached
    assert Transcript(told).text == "It is long."


def started(stream: object, until: str = "text_delta") -> Iterator[StreamEvent]:
    """The events until the run has begun to speak, or has been told something else."""
    for event in stream:  # type: ignore[attr-defined]
        yield event
        if event.event == until:
            return


def outcome(client: AshClient, session: Session) -> str:
    def ended() -> str | None:
        run = client.list_runs(session.id)[0]
        return run.status if run.ended_at else None

    return eventually(ended)


def left_by(error: BaseException, stream: Any, until: str = "text_delta") -> None:
    """Leaves the block of a stream whose run has begun, or has been told something else."""
    with stream:
        list(started(stream, until))
        raise error


def test_whoever_closes_a_stream_lets_its_run_go_on(client: AshClient, session: Session) -> None:
    with client.send_message_stream(session.id, "/slow 5ms\n/say One two three four five.") as stream:
        list(started(stream))
    assert outcome(client, session) == "completed"
    with pytest.raises(RuntimeError, match="ours"):
        left_by(RuntimeError("ours"), client.send_message_stream(session.id, "/slow 5ms\n/say One two three four."))
    assert outcome(client, session) == "completed"


def test_whoever_drops_a_stream_lets_its_run_go_on(client: AshClient, session: Session, kind: str) -> None:
    for event in client.send_message_stream(session.id, "/slow 5ms\n/say One two three four five."):
        if isinstance(event, TextDeltaEvent):
            break
    gc.collect()
    if kind == "async":
        client.health()  # The loop has to run for the task that closes it.
    assert outcome(client, session) == "completed"


def test_whoever_is_cancelled_beside_a_stream_ends_its_run(client: AshClient, session: Session) -> None:
    for leaves, ends in [("interrupt", "cancelled"), ("detach", "completed")]:
        said = "/slow 20ms\n/repeat 40 word "
        stream = client.send_message_stream(session.id, said, on_cancel=leaves)  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            left_by(KeyboardInterrupt(), stream)
        assert outcome(client, session) == ends, leaves
    with pytest.raises(ValueError, match="on_cancel"):
        client.send_message_stream(session.id, "x", on_cancel="never")  # type: ignore[arg-type]


def test_a_wire_that_is_cut_while_the_session_is_paused(through: Through, client: AshClient, session: Session) -> None:
    # One failure is the cut: a stream that ends because nothing happens would be one too many.
    cutting, proxy = through(lambda number: None, retry=Retry(reconnects=1, first_pause=0.01))
    said = " ".join(f"word{n}" for n in range(40))
    stream = cutting.send_message_stream(session.id, f"/slow 20ms\n/say {said}")
    events = list(started(stream))
    client.pause_session(session.id)
    before = proxy.connections
    proxy.cut()

    def resume() -> None:
        eventually(lambda: proxy.connections > before)
        with AshClient(client.base_url, client._settings.token) as other:
            other.resume_session(session.id)

    resuming = threading.Thread(target=resume)
    resuming.start()
    events += list(stream)
    resuming.join()
    assert stream.transcript.text == said
    log = [seen(event) for event in client.stream(session.id, until_idle=True) if event.event != "prompt"]
    heard = of_the_log(events)
    assert heard == log[log.index(heard[0]) :][: len(heard)]
    assert {"session_paused", "session_resumed"} <= {event.event for event in events}


def test_a_queued_message_that_is_closed_does_not_end_the_run_before_it(client: AshClient, session: Session) -> None:
    first = client.send_message_stream(session.id, "/slow 20ms\n/repeat 40 word ")
    list(started(first))
    with client.send_message_stream(session.id, "/say Second.") as second:
        assert next(iter(second)).event == "session_start"
    rest = list(first)
    assert isinstance(rest[-1], DoneEvent)
    assert rest[-1].stop_reason == "end_turn"


def test_a_queued_message_that_is_cancelled_is_withdrawn_and_nothing_else_ends(
    client: AshClient, session: Session
) -> None:
    first = client.send_message_detached(session.id, "/slow 20ms\n/endless")
    second = client.send_message_stream(session.id, "/say Never.")
    with pytest.raises(KeyboardInterrupt):
        left_by(KeyboardInterrupt(), second, until="run_queued")
    assert client.get_run(session.id, str(second.run_id)).status == "cancelled"
    assert client.get_run(session.id, first.run_id).status == "running"


def test_an_interrupt_ends_the_stream_with_done(client: AshClient, session: Session) -> None:
    stream = client.send_message_stream(session.id, "/slow 20ms\n/endless")
    list(started(stream))
    assert client.interrupt_session(session.id, run_id=stream.run_id).status == "cancelled"
    last = list(stream)[-1]
    assert isinstance(last, DoneEvent)
    assert last.stop_reason == "interrupted"


def test_whoever_presses_ctrl_c_ends_the_run(world: World) -> None:
    with AshClient(world.url, world.key, retry=BRISK) as client:
        session = client.create_session("notes")
        stream = client.send_message_stream(session.id, "/slow 20ms\n/endless")
        list(started(stream))
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            list(stream)
        assert client.list_runs(session.id)[0].status == "cancelled"
        client.end_session(session.id)


def test_a_task_that_is_cancelled_ends_its_run(world: World) -> None:
    async def story() -> str:
        async with AsyncAshClient(world.url, world.key, retry=BRISK) as client:
            session = await client.create_session("notes")
            begun = asyncio.Event()

            async def listen() -> None:
                async for event in client.send_message_stream(session.id, "/slow 20ms\n/endless"):
                    if isinstance(event, TextDeltaEvent):
                        begun.set()

            task = asyncio.create_task(listen())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            status = (await client.list_runs(session.id))[0].status
            await client.end_session(session.id)
            return status

    assert asyncio.run(story()) == "cancelled"


def press_ctrl_c(when: threading.Event) -> None:
    """Presses it as soon as something has happened."""

    def press() -> None:
        when.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()


def test_whoever_presses_ctrl_c_before_anything_was_answered_ends_the_run(
    through: Through, client: AshClient, session: Session
) -> None:
    waiting, proxy = through(holds=True)
    press_ctrl_c(proxy.held)
    with pytest.raises(KeyboardInterrupt):
        waiting.send_message(session.id, "/slow 20ms\n/endless")
    (run,) = client.list_runs(session.id)
    assert run.status == "cancelled"


def test_whoever_presses_ctrl_c_before_anything_was_answered_withdraws_what_waits(
    through: Through, client: AshClient, session: Session
) -> None:
    client.send_message_detached(session.id, "/slow 20ms\n/endless")
    waiting, proxy = through(holds=True)
    press_ctrl_c(proxy.held)
    with pytest.raises(KeyboardInterrupt):
        waiting.send_message(session.id, "/say Never.")
    assert [run.status for run in client.list_runs(session.id)] == ["cancelled", "running"]


def test_whoever_only_leaves_before_anything_was_answered_lets_the_run_go_on(
    through: Through, client: AshClient, session: Session
) -> None:
    waiting, proxy = through(holds=True)
    press_ctrl_c(proxy.held)
    with pytest.raises(KeyboardInterrupt):
        waiting.send_message(session.id, "/slow 5ms\n/say One two three.", on_cancel="detach")
    assert outcome(client, session) == "completed"


def test_a_task_that_is_cancelled_before_anything_was_answered_ends_its_run(world: World) -> None:
    proxy = Proxy(world.url, lambda number: None, holds=True)

    async def story(session: str) -> None:
        async with AsyncAshClient(proxy.url, world.key, retry=BRISK) as waiting:
            task = asyncio.create_task(waiting.send_message(session, "/slow 20ms\n/endless"))
            await asyncio.to_thread(proxy.held.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with AshClient(world.url, world.key) as client:
        session = client.create_session("notes")
        asyncio.run(story(session.id))
        assert [run.status for run in client.list_runs(session.id)] == ["cancelled"]
        client.end_session(session.id)
    proxy.close()


def test_the_other_client_has_streams_to_await_too(world: World) -> None:
    async def story() -> list[str]:
        with AshClient(world.url, token=world.key, retry=BRISK) as client:
            session = client.create_session("notes")
            said = [event.event async for event in client.asend_message_stream(session.id, "/say Hi.")]
            client.end_session(session.id)
            return said

    assert asyncio.run(story())[-1] == "done"


def test_many_streams_at_once(world: World) -> None:
    async def story() -> set[str]:
        async with AsyncAshClient(world.url, world.key, retry=BRISK) as client:
            sessions = await asyncio.gather(*[client.create_session("notes") for _ in range(8)])
            replies = await asyncio.gather(
                *[client.send_message(one.id, f"/slow 5ms\n/say I am {n} of eight.") for n, one in enumerate(sessions)]
            )
            await asyncio.gather(*[client.end_session(one.id) for one in sessions])
            return {reply.text for reply in replies}

    assert asyncio.run(story()) == {f"I am {n} of eight." for n in range(8)}


@pytest.mark.parametrize("kindly", [False, True], ids=["killed", "drained"])
def test_a_server_that_goes_in_the_middle_of_an_answer(kind: str, kindly: bool, tmp_path: Path) -> None:
    world = World(tmp_path)
    client = client_of(kind, world.url, world.key, retry=Retry(reconnects=60, first_pause=0.05, longest_pause=0.5))
    try:
        client.deploy_agent("notes", files=directory(ROOT / "examples" / "notes"))
        session = client.create_session("notes")
        said = " ".join(f"word{n}" for n in range(30))
        stream = client.send_message_stream(session.id, f"/slow 20ms\n/say {said}")
        events = list(started(stream))
        world.restart(kindly=kindly)
        events += list(stream)
        assert of_the_log(events) == logged(client, session, stream.run_id)
        assert [event.event for event in events].count("session_start") == 1
        assert any(isinstance(event, RunStartedEvent) for event in events)
        assert stream.transcript.text == said
        deltas = "".join(event.delta for event in events if isinstance(event, TextDeltaEvent))
        if not kindly:
            assert any(isinstance(event, RunRetryEvent) for event in events)
            assert len(deltas) > len(said)  # Something was taken back, and the transcript does not have it.
    finally:
        client.close()
        world.end()
