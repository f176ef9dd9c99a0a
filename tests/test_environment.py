"""Versions, threads and flushing: what is said about the machine is what is true of it."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import timeit

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info

from gradprop import environment
from gradprop.environment import (
    available_cores,
    describe,
    flushes_subnormals,
    library_version,
    single_threaded_blas,
    source_digest,
)


def blas_threads():
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


def test_describe_is_plain_and_names_no_place():
    text = json.dumps(describe())
    said = json.loads(text)
    assert said["packages"]["numpy"] == np.__version__
    assert said["python"] == platform.python_version()
    assert said["gradprop"] == library_version()
    assert said["flushes_subnormals"] is False
    assert all(copy["core"] and copy["threads"] >= 1 for copy in said["blas"])
    for place in (os.sep + "home", os.sep + "lib", str(environment.PACKAGE), platform.node()):
        assert place not in text


def test_cores_of_this_process():
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        assert available_cores() == len(os.sched_getaffinity(0))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets a register of x86-64")
def test_flushing_is_seen():
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    source = """
        declare void @llvm.x86.sse.ldmxcsr(ptr)
        define void @set(i32 %value) {
            %slot = alloca i32
            store i32 %value, ptr %slot
            call void @llvm.x86.sse.ldmxcsr(ptr %slot)
            ret void
        }"""
    target = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(source), target)
    engine.finalize_object()
    set_register = ctypes.CFUNCTYPE(None, ctypes.c_uint32)(engine.get_function_address("set"))
    default, flush_to_zero = 0x1F80, 0x8000
    try:
        set_register(default | flush_to_zero)
        assert flushes_subnormals()
    finally:
        set_register(default)
    assert not flushes_subnormals()


def test_blas_is_limited_inside_and_restored_after():
    before = blas_threads()
    with single_threaded_blas():
        assert set(blas_threads()) == {1}
        with single_threaded_blas():
            pass
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
    with pytest.raises(KeyError), single_threaded_blas():
        raise KeyError
    assert blas_threads() == before


def test_the_limit_lasts_until_the_last_thread_leaves():
    before = blas_threads()
    entered, leave = threading.Event(), threading.Event()

    def other():
        with single_threaded_blas():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with single_threaded_blas():
        thread.start()
        entered.wait()
    assert set(blas_threads()) == {1}
    leave.set()
    thread.join()
    assert blas_threads() == before


def test_the_limit_holds_whoever_set_threads_before():
    before = blas_threads()
    controller = ThreadpoolController()
    limiter = controller.limit(limits=max(before), user_api="blas")
    seen = []

    def other():
        with single_threaded_blas():
            seen.extend(blas_threads())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    limiter.restore_original_limits()
    assert set(seen) == {1}
    assert blas_threads() == before


def test_scipys_blas_is_limited_even_if_nobody_loaded_it():
    code = (
        "from gradprop.environment import single_threaded_blas\n"
        "from threadpoolctl import ThreadpoolController, threadpool_info\n"
        "with single_threaded_blas():\n"
        "    import numba, scipy.linalg\n"
        "    print([i['num_threads'] for i in threadpool_info() if i['user_api'] == 'blas'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) == {1}


def test_the_limit_costs_less_than_100_microseconds():
    def use():
        with single_threaded_blas():
            pass

    use()
    assert min(timeit.repeat(use, number=100, repeat=5)) / 100 < 100e-6
    with single_threaded_blas():
        assert min(timeit.repeat(use, number=100, repeat=5)) / 100 < 20e-6


def test_a_kernel_outdates_records_and_a_drawing_does_not(tmp_path, monkeypatch):
    copy = tmp_path / "gradprop"
    shutil.copytree(environment.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(environment, "PACKAGE", copy)
    digest = source_digest.__wrapped__
    before = digest()
    assert before == source_digest() or len(before) == 16
    (copy / "figures.py").write_text("changed")
    assert digest() == before
    (copy / "_kernels" / "jit.py").write_text("changed")
    assert digest() != before
