"""Makes the folder from which gpu_check runs on a machine without compiler and libraries."""

import json
import re
import shutil
import subprocess
import tempfile

import networks
from machine import HERE, Machine

BYTES_MAX = 50 << 20  # such machines accept 64 MiB, including the checked-out files
CARRIED = r"lib(yaml|jansson|cmocka|z)[-.]"  # libraries that a bare machine lacks
NEEDED = ["bin/brim", "tests/test_conformance", "lib/brim/plugins/backend/cuda.so",
          "lib/brim/plugins/backend/reference.so"]
PEERS = ["torch_cnn.py", "torch_speed.py"]  # files of scripts/bench


def copy_build(build, to):
    for name in NEEDED:
        if not (build / name).exists():
            raise SystemExit(f"gpu_check: no {name} in {build}: build it, with the CUDA toolkit and tests")
    shutil.rmtree(to, ignore_errors=True)
    plugins = "lib/brim/plugins"
    kept = [*NEEDED, *(f"{plugins}/{kind}" for kind in ("model", "dataset", "backend/cuda", "policy")),
            f"{plugins}/comm/nccl.so", *(str(f.relative_to(build)) for f in (build / "lib").glob("libbrim.so*"))]
    for name in kept:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        if (build / name).is_dir():
            shutil.copytree(build / name, to / name)
        elif (build / name).exists():
            shutil.copy2(build / name, to / name, follow_symlinks=False)
    shutil.copytree(HERE.parents[1] / "configs", to / "share/brim/configs")
    shutil.copytree(HERE, to / "gpu_check", ignore=shutil.ignore_patterns("__pycache__"))
    for name in PEERS:
        shutil.copy2(HERE.parent / "bench" / name, to / "gpu_check" / name)


def programs(folder):
    return [f for f in folder.rglob("*") if f.is_file() and not f.is_symlink() and f.read_bytes()[:4] == b"\x7fELF"]


def copy_libraries(to):
    found = subprocess.run(["ldd", *programs(to)], capture_output=True, text=True, check=False).stdout
    for path in {line.split()[2] for line in found.splitlines() if re.match(rf"\s*{CARRIED}", line) and "=> /" in line}:
        shutil.copy2(path, to / "lib")


def pack(build, to, scratch, reduced):
    build = build.resolve()
    golden = to.with_name(to.name + ".golden.json")  # curves that a pack of the same CPU programs reuses
    on = Machine(build, tempfile.mkdtemp(dir=scratch))
    kept = json.loads(golden.read_text()) if golden.exists() else {}
    programs_of_cpu = on.hash(without=["cuda", "cuda.so", "nccl.so", "test_conformance"])
    curves = networks.golden(on, reduced, kept["curves"] if kept.get("build") == programs_of_cpu else {})
    golden.parent.mkdir(parents=True, exist_ok=True)
    golden.write_text(json.dumps({"build": programs_of_cpu, "curves": curves}))
    copy_build(build, to)
    copy_libraries(to)
    subprocess.run(["strip", "--strip-unneeded", *programs(to)], check=True)
    (to / "gpu_check/golden.json").write_text(json.dumps({n: c["losses"] for n, c in curves.items()}) + "\n")
    size = sum(f.stat().st_size for f in to.rglob("*") if f.is_file() and not f.is_symlink())
    print(f"{size / 2**20:.1f} MiB in {to}")
    if size > BYTES_MAX:
        print(f"gpu_check: that is more than {BYTES_MAX >> 20} MiB, which such a machine may not accept: build for the "
              "capability of its GPU alone, as with -DCMAKE_CUDA_ARCHITECTURES=90-real")
        return 1
    return 0
