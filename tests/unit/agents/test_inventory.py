"""What a node offers: what NVML says, what the operator says, and a clear word where there is neither."""

from __future__ import annotations

from types import ModuleType

import psutil
import pytest

from agents.errors import SettingsError
from agents.inventory import (
    Gpu,
    gpu_type_name,
    inspect,
    interface_of,
    own_address,
    read_gpus,
    visible_gpus,
)
from agents.settings import NodeOptions, NodeSettings, complete_nodes

URL = "http://127.0.0.1:8642"


class FakeNvml(ModuleType):
    """NVML as its Python binding shows it, with two GPUs; or without a driver."""

    class NVMLError(Exception):
        pass

    def __init__(self, driver: bool = True) -> None:
        super().__init__("pynvml")
        self.driver = driver
        self.open = False

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:  # noqa: N802
        return 700_000 - handle * 100_000

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        return 70_000 + handle * 1000

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> object:  # noqa: N802
        return type("Memory", (), {"total": 85_899_345_920 - handle})()


def node(**options: object) -> NodeSettings:
    (only,) = complete_nodes(NodeOptions(region="eu"), [NodeOptions.model_validate({"name": "a", **options})])
    return only


def test_gpus_are_read_and_nvml_is_let_go() -> None:
    nvml = FakeNvml()
    gpus = read_gpus(nvml)
    assert gpus[0] == Gpu("GPU-0", "h100-80gb-hbm3", 85_899_345_920.0, 700.0, 70.0)
    assert not nvml.open
    assert read_gpus(FakeNvml(driver=False)) == ()


def test_a_node_offers_the_least_of_its_gpus() -> None:
    found = inspect(node(), read_gpus(FakeNvml()), URL)
    assert (found.gpu_type, found.memory_bytes, found.power_w, found.idle_w) == (
        "h100-80gb-hbm3",
        85_899_345_919.0,
        600.0,
        71.0,
    )
    assert found.devices.uuids == ("GPU-0", "GPU-1")
    assert found.devices.slot_memory_bytes is None


def test_a_node_may_have_some_of_the_gpus_and_other_figures() -> None:
    options = node(devices=[1], gpu_type="my-gpu", power_w=500, idle_w=50, memory="80GB", address="10.1.1.1")
    found = inspect(options, read_gpus(FakeNvml()), URL)
    assert found.devices.uuids == ("GPU-1",)
    assert (found.gpu_type, found.memory_bytes, found.power_w, found.idle_w, found.address) == (
        "my-gpu",
        80e9,
        500,
        50,
        "10.1.1.1",
    )


def test_the_idle_draw_never_exceeds_the_busy_one() -> None:
    assert inspect(node(power_w=20), read_gpus(FakeNvml()), URL).idle_w == 20
    assert inspect(node(cpu_slots=1, power_w=1), (), URL).idle_w == 1


def test_cpu_slots_share_the_memory() -> None:
    found = inspect(node(cpu_slots=4), (), URL)
    assert found.gpu_type == "cpu-slot"
    assert found.memory_bytes == psutil.virtual_memory().total / 4
    assert found.devices.slot_memory_bytes == found.memory_bytes
    assert (found.devices.count, found.address) == (4, "127.0.0.1")
    assert found.devices.interface == interface_of("127.0.0.1") is not None


@pytest.mark.parametrize(
    ("options", "gpus", "expected"),
    [
        ({}, (), "no NVIDIA GPU is to be found here"),
        ({"devices": [2]}, read_gpus(FakeNvml()), "indices below 2"),
        ({"devices": []}, read_gpus(FakeNvml()), "indices below 2"),
        (
            {},
            (Gpu("1", "a100", 1, 1, 1), Gpu("2", "t4", 1, 1, 1)),
            "GPUs of one type a node, not a100, t4",
        ),
    ],
)
def test_what_cannot_be_offered_is_said_with_what_would_be_right(
    options: dict[str, object], gpus: tuple[Gpu, ...], expected: str
) -> None:
    with pytest.raises(SettingsError, match=expected):
        inspect(node(**options), gpus, URL)


def test_the_agents_own_cuda_visible_devices_is_honoured() -> None:
    gpus = read_gpus(FakeNvml())
    assert visible_gpus(gpus, None) == gpus
    assert visible_gpus(gpus, "1") == (gpus[1],)
    assert visible_gpus(gpus, "GPU-1, GPU-0") == (gpus[1], gpus[0])
    assert visible_gpus(gpus, "") == ()
    assert visible_gpus(gpus, "-1") == ()


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("Tesla T4", "tesla-t4"),
        ("NVIDIA", "gpu"),
        ("x" * 99, "x" * 63),
    ],
)
def test_product_names_become_identifiers(product: str, name: str) -> None:
    assert gpu_type_name(product) == name


def test_the_own_address_is_the_one_towards_the_server() -> None:
    assert own_address("http://127.0.0.1:1") == "127.0.0.1"
    assert interface_of("203.0.113.9") is None
