"""A stand-in for NVIDIA's driver: a shared library that lists GPUs as libcuda.so.1 does, with this
machine's own memory."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_SOURCE = r"""
#include <stdlib.h>
#include <string.h>
static const char *names[] = {%s};
static int majors[] = {%s};
static int shown[64], count = -1;
static void look(void) {
    const char *allowed = getenv("CUDA_VISIBLE_DEVICES");
    count = 0;
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        char id[64];
        strcpy(id, "GPU-00000000-0000-0000-0000-00000000000x");
        id[39] = "0123456789abcdef"[i];
        if (!allowed || strstr(allowed, id)) shown[count++] = i;
    }
}
int cuInit(unsigned flags) { look(); return %d; }
int cuDeviceGetCount(int *n) { *n = count; return 0; }
int cuDeviceGet(int *device, int n) { *device = shown[n]; return 0; }
int cuDeviceGetName(char *text, int size, int device) { strncpy(text, names[device], size); return 0; }
int cuDeviceGetUuid_v2(char *id, int device) { memset(id, 0, 16); id[15] = device; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = names; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(void **place, size_t size) { *place = malloc(size); return *place ? 0 : 2; }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t size) { memcpy(to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t size) { memcpy(to, from, size); return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) { *value = which == 75 ? majors[device] : 0; return 0; }
"""


def gpu_id(number: int) -> str:
    """What the stand-in calls its GPU of this number, from 0."""
    return f"GPU-00000000-0000-0000-0000-00000000000{number:x}"


def compiler() -> str | None:
    return shutil.which("cc")


def build(folder: Path, gpus: Sequence[tuple[str, int]], broken: int = 0) -> Path:
    """Make libcuda.so.1 in the folder; the folder, for LD_LIBRARY_PATH. ``gpus``: (name, major
    compute capability), at most 16; ``broken``: what cuInit answers. Needs a C compiler."""
    names = ", ".join(f'"{name}"' for name, _ in gpus) or '""'
    majors = ", ".join(str(major) for _, major in gpus) or "0"
    source = folder / "driver.c"
    source.write_text(_SOURCE % (names, majors, broken))
    subprocess.run(
        [str(compiler()), "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)],
        check=True,
    )
    return folder
