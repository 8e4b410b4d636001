"""Listing the GPUs: against a driver that lists what it is told, and where there is none."""

from pathlib import Path

import pytest

from narrowdown.engines.workers.gpus import Gpu, group_alike, list_gpus

from . import driver

H200, T4 = ("NVIDIA H200", 9), ("Tesla T4", 7)
needs_a_compiler = pytest.mark.skipif(
    driver.compiler() is None, reason="makes its driver with a C compiler"
)


@needs_a_compiler
def test_every_gpu_is_listed_by_an_id_that_holds_in_any_order(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver.build(tmp_path, (H200, T4, H200))))
    first, second, third = list_gpus()
    assert first == Gpu(driver.gpu_id(0), "NVIDIA H200", "9.0")
    assert second == Gpu(driver.gpu_id(1), "Tesla T4", "7.0")
    assert group_alike((first, second, third)) == ((first, third), (second,))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{driver.gpu_id(2)}")
    assert list_gpus() == (third,), "what its owner has hidden is not used"


@needs_a_compiler
def test_a_mig_slice_is_called_as_cuda_calls_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv(
        "LD_LIBRARY_PATH", str(driver.build(tmp_path, [("NVIDIA H200 MIG 1g.18gb", 9)]))
    )
    assert list_gpus()[0].id == driver.gpu_id(0).replace("GPU-", "MIG-")


@needs_a_compiler
def test_a_driver_that_cannot_begin_lists_none(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver.build(tmp_path, (H200,), broken=100)))
    assert list_gpus() == ()


def test_no_driver_lists_none(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert list_gpus() == ()
    assert group_alike(()) == ((), ())
