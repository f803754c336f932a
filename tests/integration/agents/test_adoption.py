"""An agent that is killed or restarted: its workers go on, and nothing is told twice or left out."""

from __future__ import annotations

import signal

from tests.integration.agents.harness import STEPPING, AgentProcess, FakeServer, alive, stage, wait_until


def test_steps_are_told_once_across_kill_9_of_the_agent_and_the_worker_is_adopted(
    server: FakeServer, agent_process: AgentProcess
) -> None:
    agent = agent_process
    server.want(stage(STEPPING))
    agent.start()
    wait_until(lambda: len(server.steps("alloc-1/0")) > 5, "the first steps")
    worker = agent.running()[0]["worker_pid"]
    server.lose_replies = True  # what the server stored just now the agent does not know
    seen = len(server.steps("alloc-1/0"))
    wait_until(lambda: len(server.steps("alloc-1/0")) > seen, "steps whose replies are lost")
    agent.signal(signal.SIGKILL)
    assert alive(worker), "the worker went with the agent"
    server.lose_replies = False
    at_restart = len(server.steps("alloc-1/0"))

    agent.start()
    wait_until(lambda: len(server.steps("alloc-1/0")) > at_restart + 5, "steps after the restart")
    assert [document["worker_pid"] for document in agent.running()] == [worker]
    server.desired.clear()
    wait_until(lambda: server.state("alloc-1/0") == "stopped", "the stop")
    steps = server.steps("alloc-1/0")
    assert steps == list(range(1, len(steps) + 1))
    assert server.repeated, "the lost replies were to make the agent send again"
    checkpoints = [report.step for report in server.reports.values() if report.kind == "checkpoint"]
    assert checkpoints == [len(steps)]
    assert server.processes["alloc-1/0"].last_lines[-1] == "bye"
    assert server.lines("alloc-1/0") == [f"step {n}" for n in steps] + ["bye"]


def test_sigterm_leaves_the_workers_to_the_next_agent_unless_it_is_to_take_them_along(
    server: FakeServer, agent_process: AgentProcess
) -> None:
    server.want(stage(STEPPING))
    agent_process.start()
    wait_until(lambda: server.state("alloc-1/0") == "ready", "the worker")
    worker = agent_process.running()[0]["worker_pid"]
    assert agent_process.signal(signal.SIGTERM) == 0
    assert alive(worker)

    agent_process.start("--stop-workers-on-exit")
    wait_until(lambda: len(server.joins) == 2, "the next agent")
    wait_until(lambda: "adopted a worker" in agent_process.log.read_text(), "the adoption")
    assert agent_process.signal(signal.SIGTERM) == 0
    assert not alive(worker)
    assert server.state("alloc-1/0") == "stopped"
    assert server.processes["alloc-1/0"].cause == "agent-stopped"
    steps = server.steps("alloc-1/0")
    assert steps == list(range(1, len(steps) + 1))
