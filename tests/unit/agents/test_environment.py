"""The environment of a worker: what passes, what is refused, and where secrets may come from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agents.environment import Devices, EnvironmentBuilder, Execution, passable
from agents.errors import RefusedError, SettingsError
from agents.protocol import StageProcess
from agents.workdir import ProcessFolder
from tests.unit.agents.builders import stage

AGENT_ENV = {
    "PATH": "/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "BACE_TOKEN": "the agent's own",
    "AWS_SECRET_ACCESS_KEY": "the agent's own",
    "BACE_SECRET_HUB": "hub-secret",
    "LD_PRELOAD": "/x.so",
}


@pytest.fixture
def folder(tmp_path: Path) -> ProcessFolder:
    return ProcessFolder(tmp_path / "run" / "p")


@pytest.fixture
def builder(tmp_path: Path) -> EnvironmentBuilder:
    (tmp_path / "secrets").mkdir()
    return EnvironmentBuilder(AGENT_ENV, tmp_path / "secrets")


def built(
    builder: EnvironmentBuilder,
    folder: ProcessFolder,
    process: StageProcess,
    devices: Devices = Devices(slots=2),  # noqa: B008
) -> Execution:
    return builder.execution(process, devices, folder)


def test_of_the_agents_own_only_the_system_names_pass(
    builder: EnvironmentBuilder, folder: ProcessFolder
) -> None:
    env = built(builder, folder, stage()).env
    assert {name: env.get(name) for name in AGENT_ENV} == {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        **dict.fromkeys(["BACE_TOKEN", "AWS_SECRET_ACCESS_KEY", "BACE_SECRET_HUB", "LD_PRELOAD"]),
    }


def test_what_the_agent_was_told_to_pass_passes_under_the_users_own(
    tmp_path: Path, folder: ProcessFolder
) -> None:
    agent_env = {"AWS_CONFIG_FILE": "/etc/aws", "AWS_PROFILE": "node", "AWS_SECRET_ACCESS_KEY": "its own"}
    passed = passable(["AWS_CONFIG_FILE", "AWS_PROFILE"], agent_env)
    builder = EnvironmentBuilder(agent_env, tmp_path, passed)

    env = built(builder, folder, stage(env={"AWS_PROFILE": "job"})).env

    assert (env["AWS_CONFIG_FILE"], env["AWS_PROFILE"]) == ("/etc/aws", "job")
    assert "AWS_SECRET_ACCESS_KEY" not in env


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("BACE_TOKEN", "the agent's own"),
        ("BACE_SECRET_HUB", "the agent's own"),
        ("LD_PRELOAD", "changes how programs are loaded"),
        ("HOME", "is set by the agent"),
        ("AWS_*", "not a name"),
        ("AWS_REGION", "is set in the agent's environment"),
    ],
)
def test_what_workers_may_not_have_of_the_agent_is_refused(name: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as refused:
        passable([name], {**AGENT_ENV, "HOME": "/root", "AWS_*": "x"})
    assert f"--worker-env: {name!r}" in str(refused.value)


def test_the_place_of_the_process_and_the_users_variables_pass(
    builder: EnvironmentBuilder, folder: ProcessFolder
) -> None:
    given = {"RANK": "3", "BACE_STAGE": "1", "MY_learning_rate": "1e-3", "PYTHONUNBUFFERED": "1", "EMPTY": ""}
    env = built(builder, folder, stage(env=given)).env
    assert given.items() <= env.items()


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "IFS",
        "BACE_TOKEN", "BACE_URL", "BACE_REPORT", "BACE_DEVICE", "CUDA_VISIBLE_DEVICES", "HOME", "TMPDIR", "PATH",
        "NODE_OPTIONS", "ld_preload", "A=B", "A B", "", "1A", "A\nB", "Ä", "X" * 129,
    ],
)  # fmt: skip
def test_names_that_would_change_the_program_or_its_place_are_refused(
    name: str, builder: EnvironmentBuilder, folder: ProcessFolder
) -> None:
    for given in ({"env": {name: "x"}}, {"secrets": {name: "env:HUB"}}):
        process = stage().model_copy(update=given)
        with pytest.raises(RefusedError) as refused:
            built(builder, folder, process)
        assert refused.value.cause == "environment-refused"
        assert name[:64] in refused.value.detail or repr(name[:64]) in refused.value.detail


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_values_no_process_can_be_given_are_refused(
    value: str, builder: EnvironmentBuilder, folder: ProcessFolder
) -> None:
    for given in ({"env": {"A": value}}, {"argv": ["x", value]}):
        with pytest.raises(RefusedError, match="no process can be given"):
            built(builder, folder, stage().model_copy(update=given))


def test_the_interpreter_stands_in_for_its_name_in_the_first_place_only(
    builder: EnvironmentBuilder, folder: ProcessFolder
) -> None:
    argv = built(builder, folder, stage(argv=["{python}", "{python}", "$(reboot)"])).argv
    assert argv == (sys.executable, "{python}", "$(reboot)")


def test_cpu_slots_and_gpus_are_told_apart(builder: EnvironmentBuilder, folder: ProcessFolder) -> None:
    cpu = built(builder, folder, stage(gpu_indices=[0, 1], env={"OMP_NUM_THREADS": "64"})).env
    assert (cpu["BACE_DEVICE"], cpu["OMP_NUM_THREADS"], cpu["CUDA_VISIBLE_DEVICES"]) == ("cpu", "2", "")
    assert "GLOO_SOCKET_IFNAME" not in cpu
    gpus = Devices(uuids=("GPU-aa", "GPU-bb"), interface="eth7")
    cuda = built(builder, folder, stage(gpu_indices=[1]), gpus).env
    assert (cuda["BACE_DEVICE"], cuda["CUDA_VISIBLE_DEVICES"]) == ("cuda", "GPU-bb")
    assert "OMP_NUM_THREADS" not in cuda
    assert (cuda["GLOO_SOCKET_IFNAME"], cuda["NCCL_SOCKET_IFNAME"]) == ("eth7", "eth7")


def test_secrets_come_from_the_folder_and_from_variables_meant_for_it(
    builder: EnvironmentBuilder, folder: ProcessFolder, tmp_path: Path
) -> None:
    (tmp_path / "secrets" / "v1").mkdir()
    (tmp_path / "secrets" / "v1" / "key").write_text("file-secret\n")
    (tmp_path / "secrets" / "key").symlink_to("v1/key")
    execution = built(builder, folder, stage(secrets={"A": "file:key", "B": "env:HUB"}))
    assert (execution.env["A"], execution.env["B"]) == ("file-secret", "hub-secret")
    assert set(execution.secrets) == {"file-secret", "hub-secret"}


@pytest.mark.parametrize(
    "reference",
    ["file:../outside", "file:/etc/hostname", "file:link-out", "file:missing", "file:big", "file:", "file:a\0b",
     "env:TOKEN", "env:BACE_TOKEN", "env:", "vault:x", "hub-secret"],
)  # fmt: skip
def test_no_reference_leads_out_of_what_is_meant_for_secrets(
    reference: str, builder: EnvironmentBuilder, folder: ProcessFolder, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_text("not yours")
    (tmp_path / "secrets" / "link-out").symlink_to(tmp_path / "outside")
    (tmp_path / "secrets" / "big").write_text("x" * (64 * 1024 + 1))
    with pytest.raises(RefusedError) as refused:
        built(builder, folder, stage().model_copy(update={"secrets": {"S": reference}}))
    assert refused.value.cause in ("secret-missing", "secret-refused")
    assert "not yours" not in refused.value.detail
