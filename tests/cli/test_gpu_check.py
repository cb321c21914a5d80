"""Tests scripts/gpu_check in a dry run: all its checks run in reduced sizes on the emulated device, so that the first
run on a GPU meets no wrong key, missing file or mistake in the scripts."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import types

from support import BINARY, DONE, HANG_SECONDS, NO_FIT, Case, main

EMULATED = pathlib.Path(os.environ["BRIM_EMULATED"])  # FOLDER/lib/brim/plugins
NVML = os.environ["BRIM_NVML"]
CUPTI = os.environ["BRIM_CUPTI"]
BUILD = pathlib.Path(BINARY).resolve().parents[1]
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/gpu_check"
sys.path.insert(0, str(SCRIPT))
import correct  # noqa: E402
import fast  # noqa: E402
import networks  # noqa: E402

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"  # the emulated device's
NCU = """echo '==PROF== Connected to process 1'
while [ "$1 $2" != "--kill yes" ]; do shift; done; shift 2
"$@" || exit 1
echo '"ID","Kernel Name","gpu__time_duration.sum"'
echo '"","","ns"'
echo '"0","void add_kernel<float>(float *, long)","4000"'
"""
SANITIZER = """[ "$1 $3 $5" = "--tool --error-exitcode --kernel-name" ] || exit 1
tool=$2; shift 6; "$@" || exit 97
case $tool in
racecheck) echo "========= Error: Potential RAW hazard detected at __shared__ 0x0 in block (0, 0, 0)"
  echo "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)"
  exit 97 ;;
synccheck) echo "========= Internal Sanitizer Error: The Sanitizer failed to handle a hardware exception."; exit 97 ;;
*) echo "========= ERROR SUMMARY: 0 errors" ;;
esac
"""
# Checks that must fail here: each process of the emulated device has its own memory, the fake NVML always gives the
# same answer, few operations are compared, and the fake sanitizer above fails in one of its tools.
WRONG = ["planned against NVML, gpt2 124M in bf16", "planned against NVML, resnet50 in bf16",
         "planned against NVML, cnn in fp32", "a run that does not fit beside it is refused",
         "every operation has been compared", "racecheck of own kernels, shard 1 of 1"]
GIVEN_UP = "synccheck of own kernels, shard 1 of 1"


class GpuCheck(Case):
    def gpu_check(self, *words, **variables):
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        for name, text in (("ncu", NCU), ("compute-sanitizer", SANITIZER)):
            (tools / name).write_text(f"#!/bin/sh\n{text}")
            (tools / name).chmod(0o755)
        env = {**os.environ, "BRIM_PLUGIN_PATH": str(EMULATED), "EMULATED_DEVICES": "1", "NVML_DEVICES": f"{UUID}=999",
               "LD_LIBRARY_PATH": f"{NVML}/now:{CUPTI}/now:{EMULATED.parents[1]}",
               "PATH": f"{tools}:{os.environ['PATH']}",
               "TMPDIR": str(self.folder), **variables}
        argv = [sys.executable, SCRIPT, *map(str, words), "--build", BUILD, "--reduced", "--jobs", "2"]
        return subprocess.Popen(argv, cwd=self.folder, env=env, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def found(self, *words, status, **variables):
        """Runs a command that must end with a given status. Returns the verdicts by check, and the output."""
        process = self.gpu_check(*words, **variables)
        said, _ = process.communicate(timeout=HANG_SECONDS)
        details = self.folder / "out/details.txt"
        self.assertEqual(process.returncode, status, said + (details.read_text() if details.exists() else ""))
        lines = self.records("out", "results.jsonl")
        return {line["check"]: line for line in lines if "check" in line}, said

    def test_correct(self):
        self.pack()
        where = ["correct", "--out", "out", "--golden", "gpu/gpu_check/golden.json"]
        checks, said = self.found(*where, status=1)
        self.assertEqual(checks[GIVEN_UP]["verdict"], "skipped", said)
        self.assertIn("reported no error in the 8 tests before", checks[GIVEN_UP]["why"])
        without = () if os.path.exists(CUPTI) else ("a trace by CUPTI",)  # the toolkit lacks CUPTI's headers
        wrong = {name: line for name, line in checks.items()
                 if line["verdict"] != "ok" and name != GIVEN_UP and not name.startswith(without)}
        self.assertEqual(sorted(wrong), sorted(WRONG), said)
        self.assertEqual({line["verdict"] for line in wrong.values()}, {"failed"}, said)
        self.assertGreater(len(checks), 25)
        self.assertEqual(checks["racecheck of own kernels, shard 1 of 1"]["errors"], "2")
        self.assertIn("Potential RAW hazard", self.read("out/details.txt"))
        self.assertIn("| curve of gpt2 in bf16 | ok |", self.read("out/results.md"))

    def pack(self):
        """Makes a pack of this build, which contains the curves to compare with."""
        process = self.gpu_check("pack", "--out", "gpu")
        said, _ = process.communicate(timeout=HANG_SECONDS)
        self.assertEqual(process.returncode, 0, said)
        for name in ("bin/brim", "tests/test_conformance", "gpu_check/torch_speed.py", "gpu_check/__main__.py"):
            self.assertTrue((self.folder / "gpu" / name).exists(), name)

    def test_whole_sizes_can_be_planned(self):
        """The full-size runs have other options than the dry run; training with them would take hours here."""
        nothing = types.SimpleNamespace(gpu={"total_bytes": 85 * 10**9})
        checks, timed = correct.Correct(nothing, {}, False), fast.Fast(nothing, False)
        runs = {**{name: [*networks.COMMON, *words] for name, words in checks.networks.items()},
                **checks.memory_cases(), "ranks": checks.rank_words(),
                **{case: timed.words(case) for case in timed.cases},
                **{f"{case} under 24 GB": timed.limited(case, 24, 37) for case in timed.with_caps}}
        self.assertEqual(timed.caps, [10, 24, 40, 80])
        for name, words in runs.items():
            with self.subTest(name):
                result = self.brim("--plugin-path", EMULATED, "plan", "--no-timing", *words, status=None)
                self.assertIn(result.status, (DONE, NO_FIT), result)

    def test_fast_continues_where_an_earlier_command_was_killed(self):
        process = self.gpu_check("fast", "--out", "out")
        results = self.folder / "out/results.jsonl"
        self.until(lambda: results.exists() and "brim, gpt2-124M" in results.read_text(), process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        (self.folder / "brought.jsonl").write_text(results.read_text() + '{"check": "cut o')
        checks, said = self.found("fast", "--out", "out", "--carried", "brought.jsonl", status=0)
        self.assertNotIn("brim, gpt2-124M (", said)
        self.assertLess({"brim, gpt2-124M", "brim, cnn"}, set(checks))
        for name, line in checks.items():
            self.assertIn(line["verdict"], ("ok", "skipped") if "torch" in name else ("ok",), said)
        self.assertIn("add_kernel<float>", checks["kernels of gpt2-124M"]["table"])
        self.assertIn("0.004 ms", checks["kernels of gpt2-124M"]["table"])
        self.assertGreater(checks["plan under 0.002 GB, gpt2-124M"]["batch"], 0)

    def test_checks_without_time_left_are_unfinished(self):
        checks, said = self.found("fast", "--out", "out", "--seconds", "0", status=3)
        self.assertEqual({line["verdict"] for line in checks.values()}, {"unfinished"}, said)
        self.assertIn("kernels of gpt2-124M", checks)

    def test_without_a_gpu_it_says_so(self):
        process = self.gpu_check("correct", "--out", "out", CUDA_VISIBLE_DEVICES="", EMULATED_DEVICES="0")
        said, _ = process.communicate(timeout=HANG_SECONDS)
        self.assertEqual(process.returncode, 2, said)
        self.assertRegex(said, "^gpu_check: (there is no NVIDIA driver on this machine|the driver is there, but)")

    def test_a_page_of_results(self):
        lines = [{"began": "2026-11-24 07:00:00", "command": "fast", "device": "a GPU", "build": "1"},
                 {"check": "brim, cnn", "verdict": "unfinished", "seconds": 9.0, "why": "its time was up"},
                 {"check": "brim, cnn", "verdict": "ok", "seconds": 3.0, "samples/s": "1|2"}]
        (self.folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        process = self.gpu_check("page", self.folder / "results.jsonl")
        said, _ = process.communicate(timeout=HANG_SECONDS)
        self.assertIn("## fast: a GPU, build 1\n\n1 ok.\n", said)
        self.assertIn("| brim, cnn | ok | 3.0 | samples/s 1\\|2 |", said)
        self.assertNotIn("unfinished", said)


if __name__ == "__main__":
    main()
