"""Tests GPU support from the command line without a GPU, with the emulated device and a fake driver library with given
answers."""

import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import time
import unittest

from support import (BINARY, ENDLESS, FAILED, FAULT_SHIM, INTERRUPTED, LOAD, NO_FIT, SANITIZED, SMALL, USAGE, Case,
                     fewer_of, killed, main)

EMULATED = os.environ["BRIM_EMULATED"]
NVML = os.environ["BRIM_NVML"]
CUPTI = pathlib.Path(os.environ["BRIM_CUPTI"])  # missing if the toolkit has no headers of CUPTI
RUN = [word for word in SMALL if not word.startswith("backend.")] + ["training.steps=2"]
HUGE = 1 << 40  # with such a loss factor, gradients overflow in fp16
NO_PROCESS = 4999999  # larger than any process number of Linux


def uuid(device):
    return f"GPU-{device:02x}010203-0405-0607-0809-0a0b0c0d0e0f"


class CudaCase(Case):
    def environment(self, visible=None, devices=1, nvml=None, kind="now", cupti=None, **variables):
        """Returns the environment of some emulated devices. nvml: the reply of the driver's library; cupti: a folder of
        CUPTI; None: no such library."""
        folders = [f"{NVML}/{kind}"] if nvml is not None else []
        if cupti is not None:
            folders.append(f"{CUPTI}/{cupti}")
        none = self.folder / "none"  # files that are not libraries hide the libraries of this machine
        none.mkdir(exist_ok=True)
        for name in ("libnvidia-ml.so.1", "libcupti.so.12", "libcupti.so.13"):
            (none / name).touch()
        env = {"EMULATED_DEVICES": str(devices), "LD_LIBRARY_PATH": ":".join([*folders, str(none)]), **variables}
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        if nvml is not None:
            env["NVML_DEVICES"] = nvml
        return env

    def cuda(self, *argv, status=0, **how):
        """Runs brim in such an environment."""
        return self.brim("--plugin-path", EMULATED, *argv, status=status, env=self.environment(**how))

    def gpus(self, **how):
        found = self.cuda("devices", "--json", **how).json
        self.assertEqual(found["failures"], [])
        return [device for device in found["devices"] if device["backend"] == "cuda"]

    def setUp(self):
        super().setUp()
        for name in ("CUDA_VISIBLE_DEVICES", "NVML_INIT"):
            value = os.environ.pop(name, None)
            if value is not None:
                self.addCleanup(os.environ.__setitem__, name, value)


class Traces(CudaCase):
    RUN = [*RUN, "backend=cuda", "training.steps=5", "training.checkpoint_every_steps=5"]

    def trace(self, run="run", **how):
        """Trains with a trace of steps 3 and 4. Returns the result, the trace's events and how they were measured."""
        began = time.monotonic()
        result = self.cuda("train", f"run.dir={run}", *self.RUN, "observe.trace=3:5", **how)
        trace = json.loads(gzip.decompress((self.folder / run / "trace-3-4.json.gz").read_bytes()))
        by = trace["otherData"]["measured_by"]
        self.assertEqual(self.json(run, "operations.json")["measured_by"], by)
        if by.startswith("CUPTI"):
            first = min(e["ts"] for e in trace["traceEvents"] if e["name"] == "step 3")
            for e in self.work(trace["traceEvents"]):
                self.assertGreaterEqual(e["ts"] + e["dur"], first, "CUPTI's clock is converted to the host's")
                self.assertLess(e["ts"] + e["dur"], 1e6 * (time.monotonic() - began), "and so are later times")
        return result, trace["traceEvents"], by

    @staticmethod
    def work(events):
        """Returns the spans of operations and copies, in their order."""
        return sorted((e for e in events if e["ph"] == "X" and e.get("cat", "host") not in ("host", "data", "memory")),
                      key=lambda e: (e["tid"], e["ts"], e["dur"]))

    def assert_by_events(self, reason, **how):
        result, _, by = self.trace(**how)
        self.assertIn("CUDA events", by)
        self.assertIn(reason, by)
        self.assertRegex(result.err, f"CUDA events instead of CUPTI.*{re.escape(reason)}")

    def need_cupti(self):
        if not CUPTI.exists():
            self.skipTest("the emulated CUPTI is not built: the toolkit has no headers of CUPTI")

    def test_without_cupti_events_measure_operations(self):
        self.cuda("train", "run.dir=plain", *self.RUN)
        result, events, by = self.trace()
        self.assertRegex(by, r"^CUDA events .*no CUPTI: libcupti\.so\.\d+ is not installed")
        self.assertRegex(result.err, r"CUDA events instead of CUPTI.*libcupti\.so\.\d+ is not installed")
        work = self.work(events)
        self.assertLessEqual({"forward", "backward", "update"}, {e["cat"] for e in work})
        self.assertEqual(len([e for e in work if e["name"] == "copy in"]), 2, "a micro-batch a step")
        live = [e["args"]["bytes"] for e in events if e["ph"] == "C"]
        self.assertEqual(max(live), self.summary("run")["planned_peak_bytes"])
        self.assert_same_checkpoint("plain", "run", 5)

    def test_cupti_measures_kernels_and_copies(self):
        self.need_cupti()
        for order in fewer_of(("", "copies", "7"), 2):  # orders of work in streams
            variables = {"EMULATED_STREAMS": order} if order else {}
            _, expected, _ = self.trace(f"events{order}", **variables)
            result, events, by = self.trace(f"run{order}", cupti="now", **variables)
            self.assertRegex(by, "^CUPTI: ")
            self.assertNotIn("CUPTI", result.err)
            work = self.work(events)
            self.assertEqual([(e["tid"], e["name"]) for e in work],
                             [(e["tid"], e["name"]) for e in self.work(expected)], "each has its own kernels")
            for one, other in zip(work, work[1:]):
                if one["tid"] == other["tid"]:
                    self.assertLess(one["ts"] + one["dur"], other["ts"] + 0.01, "kernels of a stream do not overlap")
            self.assertGreater(len([e for e in work if e["dur"] > 0]), len(work) / 2)
            live = [e["args"]["bytes"] for e in events if e["ph"] == "C"]
            self.assertEqual(max(live), self.summary("run" + order)["planned_peak_bytes"])
            self.assert_same_checkpoint("events" + order, "run" + order, 5)

    def test_a_cupti_that_is_not_usable(self):
        self.need_cupti()
        self.assert_by_events("lacks cuptiActivityPopExternalCorrelationId", run="old", cupti="old")
        self.assert_by_events("recording CONCURRENT_KERNEL: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", run="refused",
                              cupti="now", EMULATED_CUPTI="refuse=35")
        self.assert_by_events("another profiler is attached", run="beside", cupti="now", CUDA_INJECTION64_PATH="x")
        self.assert_same_checkpoint("old", "refused", 5)

    def test_records_that_cupti_loses(self):
        self.need_cupti()
        self.cuda("train", "run.dir=plain", *self.RUN)
        for fault in ("lose=10", "untimed=10"):
            result, events, by = self.trace(fault[:4], cupti="now", EMULATED_CUPTI=fault)
            self.assertRegex(by, "^CUPTI: ")
            lost = re.search(r"warning: CUPTI has lost (\d+) records: the trace lacks (\d+) operations", result.err)
            self.assertTrue(lost, result)
            self.assertGreater(int(lost[2]), 0)
            self.assertGreater(len(self.work(events)), int(lost[2]))
            self.assert_same_checkpoint("plain", fault[:4], 5)

    def test_records_that_do_not_come(self):
        self.need_cupti()
        result, events, _ = self.trace(cupti="now", EMULATED_CUPTI="flush=999")
        self.assertRegex(result.err, r"the trace has no times of the device: .*returning records: CUPTI_ERROR_UNKNOWN")
        self.assertEqual(self.work(events), [])

    def test_several_traces_of_a_process(self):
        self.need_cupti()
        env = self.environment(cupti="now")
        process = self.start("--plugin-path", EMULATED, "train", "run.dir=run", *RUN, "backend=cuda", *ENDLESS, env=env)
        self.until(lambda: self.has_begun("run"), process)
        for _ in range(2):
            self.brim("trace", "run", "--steps", "2")
            table = self.json("run", "operations.json")
            self.assertRegex(table["measured_by"], "^CUPTI: ")
            self.assertEqual({row["runs"] for row in table["operations"] if row["phase"] == "update"}, {1})

    def test_cupti_is_loaded_for_a_trace_only(self):
        self.need_cupti()
        self.cuda("train", "run.dir=plain", *self.RUN, cupti="now", LD_DEBUG="files", LD_DEBUG_OUTPUT="plain.loads")
        self.trace(cupti="now", LD_DEBUG="files", LD_DEBUG_OUTPUT="run.loads")
        loads = {name: "".join(path.read_text(encoding="utf-8", errors="replace")
                               for path in self.folder.glob(f"{name}.loads*")) for name in ("plain", "run")}
        self.assertNotIn("libcupti", loads["plain"])
        self.assertIn("libcupti", loads["run"])


class Devices(CudaCase):
    def test_a_gpu_has_capability_uuid_and_users(self):
        own = pathlib.Path("/proc/self/comm").read_text(encoding="utf-8").strip()
        gpu, = self.gpus(nvml=f"{uuid(0)}=700000000 {os.getpid()}:300000000 {NO_PROCESS}:?")
        self.assertEqual((gpu["capability"], gpu["uuid"], gpu["threads"]), ("9.0", uuid(0), 0))
        self.assertEqual((gpu["free_bytes"], gpu["total_bytes"]), (700000000, 1 << 30))
        self.assertEqual(gpu["users"], [{"pid": os.getpid(), "bytes": 300000000, "name": own},
                                        {"pid": NO_PROCESS, "bytes": None, "name": None}])

    def test_text_has_them_in_a_table_of_their_own(self):
        result = self.cuda("devices", nvml=f"{uuid(0)}=700000000 {os.getpid()}:314572800 {NO_PROCESS}:?")
        lines = result.out.splitlines()
        self.assertEqual(lines[0].split(), ["device", "free", "total", "threads", "capability", "uuid", "name"])
        gpu, = [line for line in lines[1:] if line.startswith("cuda:0") and uuid(0) in line]
        self.assertEqual(gpu.split(), "cuda:0 667.6 MiB 1.0 GiB - 9.0".split() + [uuid(0), "emulated", "device"])
        users = lines[lines.index("") + 1:]
        users, taken = users[:users.index("")], users[users.index("") + 1:]
        self.assertEqual(users[0].split(), ["used", "by", "memory", "process"])
        self.assertEqual(users[1].split()[:4], ["cuda:0", str(os.getpid()), "300.0", "MiB"])
        self.assertEqual(users[2].split(), ["cuda:0", str(NO_PROCESS), "-", "-"])
        self.assertEqual(len(users), 3, result)
        self.assertEqual(re.split("  +", taken[0]), ["a process takes", "context", "libraries", "a graph's node",
                                                     "ranks' connections", "headroom"])
        self.assertEqual(re.split("  +", taken[1].strip()), ["cuda:0", *["not measured yet"] * 4, "256.0 MiB"])

    def test_no_users_and_unknown_users_differ(self):
        self.assertEqual(self.gpus(nvml=f"{uuid(0)}=1")[0]["users"], [])
        self.assertIsNone(self.gpus()[0]["users"])
        self.assertNotIn("used", self.cuda("devices", nvml=f"{uuid(0)}=1").out)

    def test_nvml_is_queried_by_uuid_so_its_order_does_not_matter(self):
        nvml = ";".join(f"{uuid(i)}={1000 + i} {NO_PROCESS + i}:{i}" for i in (1, 3, 0, 2))
        for visible, expected in ((None, [0, 1, 2, 3]), ("2,0", [2, 0]), (f"{uuid(3)},{uuid(1)[:6]}", [3, 1]),
                                  ("1,9,0", [1])):
            with self.subTest(visible):
                gpus = self.gpus(devices=4, visible=visible, nvml=nvml)
                self.assertEqual([gpu["index"] for gpu in gpus], list(range(len(expected))))
                self.assertEqual([gpu["uuid"] for gpu in gpus], [uuid(i) for i in expected])
                self.assertEqual([gpu["free_bytes"] for gpu in gpus], [1000 + i for i in expected])
                self.assertEqual([gpu["users"] for gpu in gpus],
                                 [[{"pid": NO_PROCESS + i, "bytes": i, "name": None}] for i in expected])

    def test_older_drivers_list_processes_otherwise(self):
        gpu, = self.gpus(kind="old", nvml=f"{uuid(0)}=5 {NO_PROCESS}:7 {NO_PROCESS + 1}:?")
        self.assertEqual([(user["pid"], user["bytes"]) for user in gpu["users"]],
                         [(NO_PROCESS, 7), (NO_PROCESS + 1, None)])

    def test_a_part_of_a_gpu_has_the_name_that_nvml_gives_it(self):
        part = uuid(0).replace("GPU", "MIG")
        self.assertEqual(self.gpus(nvml=f"{part}=77")[0]["uuid"], part)
        self.assertEqual(self.gpus(nvml=f"{part}=77")[0]["free_bytes"], 77)

    def test_where_the_uuid_is_not_known_the_place_on_the_bus_is(self):
        gpus = self.gpus(devices=2, nvml=f"0000:02:00.0=22 {NO_PROCESS}:2;0000:01:00.0={1 << 50}")
        self.assertEqual([gpu["uuid"] for gpu in gpus], [uuid(0), uuid(1)])
        self.assertEqual([gpu["free_bytes"] for gpu in gpus], [1 << 30, 22])  # capped at the total memory
        self.assertEqual([len(gpu["users"]) for gpu in gpus], [0, 1])

    def test_without_nvml_the_runtime_gives_the_free_memory(self):
        gpu, = self.gpus()
        self.assertEqual(gpu["free_bytes"], gpu["total_bytes"])
        lines = [line for line in self.cuda("devices").out.splitlines() if "that use" in line]
        self.assertEqual(lines,
                         ["cannot list the processes that use cuda:0: the driver's library libnvidia-ml.so.1 cannot be "
                          "loaded"])

    def test_nvml_that_does_not_work_is_one_line(self):
        for how, text in (({"nvml": "", "NVML_INIT": "18"}, "does not start: Driver/library version mismatch"),
                          ({"nvml": f"{uuid(1)}=5"}, f"does not know {uuid(0)}: Not Found")):
            with self.subTest(text):
                lines = [line for line in self.cuda("devices", **how).out.splitlines() if "that use" in line]
                self.assertEqual(lines, [f"cannot list the processes that use cuda:0: libnvidia-ml.so.1 {text}"])

    def test_a_full_device_is_there(self):
        self.assertEqual(self.gpus(EMULATED_FULL="1")[0]["free_bytes"], 0)
        self.assertEqual(self.gpus(EMULATED_FULL="1", nvml=f"{uuid(0)}=99")[0]["free_bytes"], 99)

    def test_without_a_device_the_others_are_shown(self):
        result = self.cuda("devices", visible="")
        lines = [line for line in result.out.splitlines() if "cuda" in line]
        self.assertEqual(lines, ["backend 'cuda' cannot be used: there is no GPU to use: CUDA_VISIBLE_DEVICES is ''"])
        self.assertIn("\nreference:0 ", result.out)

    def test_a_file_that_hides_another_and_cannot_be_loaded_is_reported(self):
        (self.folder / "plugins/backend").mkdir(parents=True)
        (self.folder / "plugins/backend/cuda.so").write_bytes(b"not a library")
        broken_first = self.brim("--plugin-path", "plugins", "--plugin-path", EMULATED, "devices").out
        self.assertNotIn("cuda:0", broken_first)
        self.assertEqual(broken_first.count("backend 'cuda' cannot be used"), 1, broken_first)
        broken_last = self.cuda("--plugin-path", "plugins", "devices").out
        self.assertIn("cuda:0", broken_last)
        self.assertNotIn("cannot be used", broken_last)


class NoDevice(CudaCase):
    def test_a_run_is_refused_in_one_line(self):
        result = self.cuda("train", *RUN, "backend=cuda", "run.dir=run", visible="", status=NO_FIT)
        errors = [line for line in result.err.splitlines() if "hidden" not in line]
        self.assertEqual(errors, ["error: backend 'cuda' cannot be used: there is no GPU to use: "
                                  "CUDA_VISIBLE_DEVICES is ''"])
        self.assertFalse((self.folder / "run").exists())

    def test_a_missing_device_is_refused(self):
        for device in ("cuda:1", "cuda:-1", "cuda:x", "cpu"):
            with self.subTest(device):
                result = self.cuda("train", *RUN, "backend=cuda", f"device={device}", status=NO_FIT)
                self.assert_error(result, f"no device '{device}': backend 'cuda' has 1 (cuda:0)")


class NoRoom(CudaCase):
    def test_lack_of_memory_besides_the_arena_shows_before_the_first_step(self):
        result = self.cuda("train", *RUN, "backend=cuda", "run.dir=run", EMULATED_LATE="1", status=NO_FIT)
        self.assert_error(result, "out of device memory", "during the first run of the programs")


class Auto(CudaCase):
    def backend(self, *words, **how):
        text = self.cuda("config", *RUN, *words, **how).out
        return text.split("\nbackend:\n  id: ")[1].split("\n")[0]

    def test_the_gpu_is_chosen_if_there_is_one(self):
        self.assertEqual(self.backend(), "cuda")
        self.assertNotEqual(self.backend(visible=""), "cuda")

    def test_it_follows_the_device(self):
        self.assertEqual(self.backend("device=reference"), "reference")
        self.assertEqual(self.backend("device=cuda:1", devices=2), "cuda")
        self.assertEqual(self.backend("device=cuda:0", visible=""), "cuda")
        (self.folder / "mine.yaml").write_text("defaults: [config, _self_]\ndevice: reference\n")
        named = ["--config-path", ".", "--config-name", "mine"]
        self.assertEqual(self.backend(*named), "reference")
        self.assertEqual(self.backend(*named, "device=cuda"), "cuda")

    def test_a_requested_device_is_not_replaced(self):
        result = self.cuda("train", *RUN, "device=cuda:0", visible="", status=NO_FIT)
        self.assert_error(result, "backend 'cuda' cannot be used: there is no GPU to use")

    def lines(self, *words, **how):
        return [line for line in self.cuda(*words, **how).err.splitlines() if "backend=auto" in line]

    def test_without_a_gpu_one_line_names_the_backend_that_auto_uses(self):
        lines = self.lines("--verbose", "train", *RUN, "run.dir=run", visible="")
        used = self.read("run/config.yaml").split("\nbackend:\n  id: ")[1].split("\n")[0]
        line = f"backend=auto uses '{used}', as cuda cannot be used: there is no GPU to use: CUDA_VISIBLE_DEVICES is "
        self.assertEqual(lines, ["debug: " + line + "''"])
        self.assertEqual(self.summary("run")["steps"], 2)
        self.assertEqual(self.lines("train", *RUN, "run.dir=named", visible="7"), [line + "'7'"])
        on_the_bus = [device for device in pathlib.Path("/sys/bus/pci/devices").glob("*")
                      if (device / "vendor").read_text() == "0x10de\n" and (device / "class").read_text()[:4] == "0x03"]
        self.assertEqual(len(self.lines("train", *RUN, "run.dir=quiet", visible="")), bool(on_the_bus))

    def test_without_a_choice_nothing_is_printed(self):
        result = self.cuda("train", *RUN, "backend=reference", "run.dir=run", visible="")
        self.assertNotIn("backend=auto", result.err)
        again = self.cuda("train", "--from", "run", "run.dir=again", visible="")
        self.assertNotIn("backend=auto", again.err)

    def test_a_run_on_the_device_keeps_its_backend(self):
        result = self.cuda("train", *RUN, "run.dir=run")
        self.assertNotIn("backend=auto", result.err)
        self.assertIn("\nbackend:\n  id: cuda\n", self.read("run/config.yaml"))
        self.assertEqual(self.summary("run")["steps"], 2)


class Libraries(CudaCase):
    """brim shows which operations a library computes, and why others use slower kernels."""

    ATTENTION = ["model=gpt2", "model.context=32", "model.layers=2", "model.heads=2", "model.width=32",
                 "dataset=text", "dataset.path=text.txt", "dataset.context=16", "training.batch_size=2",
                 "training.steps=1", "training.eval_every_steps=1000", "backend=cuda"]
    CONVOLUTION = ["model=cnn", "model.width=2", "dataset=synthetic", "dataset.shape=[1,12,12]",
                   "dataset.train_count=16", "dataset.test_count=0", "training.batch_size=8", "training.steps=1",
                   "backend=cuda"]

    def kernels(self, run, *words, **variables):
        result = self.cuda("train", f"run.dir={run}", *words, **variables)
        return result, self.summary(run)["kernels"]

    def test_operations_are_counted_by_library(self):
        result, kernels = self.kernels("run", *self.CONVOLUTION)
        self.assertEqual(kernels["refused"], [])
        self.assertNotIn("slower", result.err)
        for library in ("cuDNN", "cuBLASLt", "own"):
            self.assertGreater(kernels[library], 0)
        operations = sum(p["operations"] for p in json.loads(self.read("run/plan.json"))["programs"])
        self.assertEqual(sum(kernels[library] for library in ("cuDNN", "cuBLASLt", "own")), operations)

    def test_a_refusal_is_a_warning_and_in_the_summary(self):
        result, kernels = self.kernels("run", *self.CONVOLUTION, EMULATED_REFUSES="convolutions")
        self.assertNotIn("cuDNN", kernels)
        for row in kernels["refused"]:
            self.assertEqual(row["reason"], "cuDNN has no engine for it")
            self.assertIn(f"{row['operations']} x '{row['operation']}' with the backend's own, slower kernel "
                          "(about 30 times the time): cuDNN has no engine for it\n", result.err)
        self.assertIn("conv2d_grad_weight", [row["operation"] for row in kernels["refused"]])

    def test_attention_without_tensor_cores_warns_of_its_cost(self):
        (self.folder / "text.txt").write_text("to be or not to be that is the question " * 20)
        for words, reason in ((["precision=bf16", "model.dropout=0"], None),
                              (["precision=fp32", "model.dropout=0"],
                               "cuDNN's attention needs precision=bf16 or fp16"),
                              (["precision=bf16", "model.dropout=0.1"], None),
                              (["precision=bf16", "backend.attention=own"], None),
                              (["precision=bf16", "backend.attention=own_fp32"],
                               "backend.attention is not library"),
                              (["precision=bf16", "model.dropout=0.1", "model.heads=8"],
                               "heads are not of a multiple of 8 numbers, at most 128, and cuDNN does not compute it "
                               "either")):
            with self.subTest(words):
                _, kernels = self.kernels("-".join(words), *self.ATTENTION, *words)
                found = {row["reason"] for row in kernels["refused"] if row["operation"].startswith("attention")}
                self.assertEqual(found, {reason} if reason else set())


class UpdatesInBackward(CudaCase):
    """The host sees the loss only after it has started the backward pass, so the device checks the loss itself."""

    FUSED = "optimizer.update=fused_backward"

    def test_they_leave_the_same_bits(self):
        for optimizer in fewer_of(("adamw", "adafactor", "adamw8bit", "lion", "yogi", "adagrad"), 2):
            words = [*RUN, "model.hidden=[80]", "backend=cuda", f"optimizer={optimizer}", "training.batch_size=48"]
            self.cuda("train", f"run.dir={optimizer}", *words)
            self.cuda("train", f"run.dir={optimizer}-fused", *words, self.FUSED)
            self.assert_same_checkpoint(optimizer, f"{optimizer}-fused", 2)
            peaks = [self.summary(run)["device_peak_bytes"] for run in (optimizer, f"{optimizer}-fused")]
            self.assertLess(peaks[1], peaks[0])

    def test_a_loss_that_is_not_finite_changes_nothing(self):
        words = [*RUN, "backend=cuda", "optimizer=sgd", "optimizer.lr=1e30", "training.steps=4", "schedule=constant",
                 "schedule.warmup_fraction=0", "training.checkpoint_every_steps=1", "training.eval_every_steps=4"]
        for classes in (10, 4100):  # with many classes, one operation computes the loss and its gradient
            errors = []
            for run, more in (("step", []), ("fused", [self.FUSED])):
                result = self.cuda("train", f"run.dir={run}{classes}", *words, f"dataset.classes={classes}", *more,
                                   status=FAILED)
                errors.append(result.err[result.err.index("error: "):])
            self.assertEqual(*errors)
            step, fused = f"step{classes}", f"fused{classes}"
            self.assertEqual(self.steps(fused), self.steps(step))
            self.assert_same_checkpoint(step, fused, self.steps(step)[-1])


class Offload(CudaCase):
    """The device copies states alongside its computation, while the host continues."""

    HOST = "memory.offload=optimizer"
    # Six parameters of 80 * 80 values, only a few of which are in the arena at a time.
    WIDE = [*RUN, "model.hidden=[80,80,80,80,80,80,80]", "backend=cuda"]

    def test_it_leaves_the_same_bits(self):
        ways = (("averages", ["training.ema_decay=0.9", "training.clip_norm=0.5"]),
                ("fused", ["optimizer.update=fused_backward"]), ("step", []))
        for number, optimizer in enumerate(("adamw", "adafactor", "adamw8bit")):
            words = [*self.WIDE, f"optimizer={optimizer}", "training.steps=3"]
            for run, more in fewer_of(ways, 3, number):
                name = f"{optimizer}-{run}"
                self.cuda("train", f"run.dir={name}", *words, *more)
                self.cuda("train", f"run.dir={name}-host", *words, *more, self.HOST)
                for step in self.steps(name):
                    self.assert_same_checkpoint(name, f"{name}-host", step, context=" ".join(more))
                self.assert_same_records(name, f"{name}-host")

    def test_the_arena_is_as_planned_and_less(self):
        plans = [self.cuda("plan", "--json", *self.WIDE, *more).json for more in ([], [self.HOST])]
        self.assertLess(plans[1]["peak_bytes"], plans[0]["peak_bytes"])
        self.assertEqual(plans[0]["persistent_bytes"] - plans[1]["persistent_bytes"], plans[1]["host_state_bytes"])
        self.assertEqual(plans[1]["host"]["state_bytes"], plans[1]["host_state_bytes"])
        self.cuda("train", "run.dir=run", *self.WIDE, self.HOST)
        self.assertEqual(self.summary("run")["device_peak_bytes"], plans[1]["peak_bytes"])

    def test_refused_updates_change_no_state(self):
        words = [*self.WIDE, "precision=fp16", f"loss_scale.init_scale={1 << 28}", "training.steps=10",
                 "training.checkpoint_every_steps=5", "optimizer=adamw"]
        self.cuda("train", "run.dir=device", *words)
        self.cuda("train", "run.dir=host", *words, self.HOST)
        self.assertIn(self.json("device", "checkpoints", "last", "state.json")["skipped_steps"], range(1, 10))
        for step in self.steps("device"):
            self.assert_same_checkpoint("device", "host", step)

    def test_no_order_that_events_allow_changes_a_bit(self):
        """Streams run their work as late as possible, run copies as early as possible, or use an order in between."""
        words = [*self.WIDE, "training.steps=6", "training.checkpoint_every_steps=3", "training.batch_size=32",
                 "training.eval_every_steps=2"]
        for number, (name, more) in enumerate((("step", ["training.gradient_accumulation_steps=2"]),
                                               ("fused", ["optimizer.update=fused_backward"]))):
            self.cuda("train", f"run.dir={name}", *words, *more)
            for order in fewer_of(("", "copies", "1", "2", "3"), 2, number):
                with self.subTest(f"{name} {order}"):
                    env = {"EMULATED_STREAMS": order} if order else {}
                    self.cuda("train", f"run.dir={name}-{order}", *words, *more, self.HOST, **env)
                    for step in self.steps(name):
                        self.assert_same_checkpoint(name, f"{name}-{order}", step)
                    self.assert_same_records(name, f"{name}-{order}")

    def test_no_order_of_blocks_and_threads_changes_a_bit(self):
        words = [*self.WIDE, "training.steps=3", "training.batch_size=32", "precision=bf16"]
        self.cuda("train", "run.dir=ascending", *words)
        for seed in ("1", "2"):
            with self.subTest(EMULATED_ORDER=seed):
                self.cuda("train", f"run.dir=order{seed}", *words, EMULATED_ORDER=seed)
                self.assert_same_checkpoint("ascending", f"order{seed}", 3)
                self.assert_same_records("ascending", f"order{seed}")

    def test_at_most_three_groups_of_states_are_in_the_arena(self):
        largest = 2 * 4 * 80 * 80
        plan = self.cuda("plan", "--json", *self.WIDE, self.HOST).json
        update = next(p for p in plan["programs"] if p["kind"] == "update")
        self.assertGreater(update["transient_bytes"], largest)
        self.assertLessEqual(update["transient_bytes"], 3 * largest)
        self.assertEqual(plan["peak_bytes"],
                         plan["persistent_bytes"] + max(p["transient_bytes"] for p in plan["programs"]))

    def test_launches_one_by_one_do_the_same(self):
        self.cuda("train", "run.dir=ahead", *self.WIDE, self.HOST)
        self.cuda("train", "run.dir=waited", *self.WIDE, self.HOST, "--debug-launches")
        self.assert_same_checkpoint("ahead", "waited", 2)

    def test_it_resumes(self):
        words = [*self.WIDE, self.HOST, "training.steps=4", "training.checkpoint_every_steps=2"]
        self.cuda("train", "run.dir=whole", *words)
        self.cuda("train", "run.dir=parts", *words)
        (self.folder / "parts/summary.json").unlink()
        shutil.rmtree(self.checkpoint("parts", 4))
        self.cuda("train", "--resume", "parts")
        self.assert_same_checkpoint("whole", "parts", 4)


class Memory(CudaCase):
    """brim measures and stores the device memory that a process takes beside its plan, and leaves room for it in the
    next plan."""

    TAKES = {"EMULATED_TAKES": "context=50 library=30 node=1"}
    MIB = 1 << 20

    def setUp(self):
        super().setUp()
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        self.how = {**self.TAKES, **cache, "nvml": f"{uuid(0)}={1 << 30}"}
        self.large = ["dataset.shape=[1,512,512]", "dataset.train_count=4096", "training.batch_size=4096"]

    def plan(self, *words, **how):
        return self.cuda("plan", "--json", "--no-timing", *RUN, "backend=cuda", *words,
                         **{**self.how, **how}).json

    def test_measured_memory_is_unknown_before_a_run(self):
        before = self.plan()["device_memory"]
        self.assertEqual(before["context_bytes"], 50 * self.MIB)
        self.assertEqual([before[key] for key in ("libraries_bytes", "programs_bytes", "node_bytes")], [None] * 3)
        self.assertEqual(before["headroom_bytes"], 256 * self.MIB)
        self.assertIn("not measured yet", self.cuda("devices", **self.how).out)
        self.cuda("train", *RUN, "backend=cuda", "run.dir=run", **self.how)
        plan = self.plan()
        after, nodes = plan["device_memory"], sum(p["operations"] for p in plan["programs"])
        self.assertAlmostEqual(after["libraries_bytes"], 30 * self.MIB, delta=self.MIB)  # includes the control block
        self.assertAlmostEqual(after["programs_bytes"], after["node_bytes"] * nodes, delta=nodes)
        taken = self.summary("run")["device_reserved_bytes"]
        self.assertAlmostEqual(after["total_bytes"], taken, delta=0.03 * taken)
        found, = self.gpus(**self.how)
        self.assertEqual(found["memory"]["libraries_bytes"], after["libraries_bytes"])
        self.assertEqual(found["memory"]["node_bytes"], after["node_bytes"])
        self.assertEqual(self.cuda("devices", **self.how).out.count("not measured yet"), 1)  # one rank

    def test_memory_that_another_process_takes_meanwhile_is_not_counted(self):
        how = {"EMULATED_TAKES": "context=50 library=30 node=1 neighbour=100"}
        listed = {**how, "nvml": f"{uuid(0)}={1 << 30} 1:{1 << 28} self:{50 << 20}"}
        for known, context in ((how, 150), (listed, 50), ({**self.TAKES, "nvml": listed["nvml"]}, 50)):
            self.assertEqual(self.plan(**known)["device_memory"]["context_bytes"], context * self.MIB)
        words = ["backend=cuda", "memory.limit_mb=380", "dataset.train_count=64"]
        self.cuda("train", *RUN, *words, "run.dir=refused", **{**self.how, **how}, status=NO_FIT)
        self.cuda("train", *RUN, *words, "run.dir=run", **{**self.how, **listed})

    def test_text_has_a_line_a_class(self):
        self.cuda("train", *RUN, "backend=cuda", "run.dir=run", **self.how)
        out = self.cuda("plan", "--no-timing", *RUN, "backend=cuda", **self.how).out
        lines = out[out.index("the process takes "):].split("\n\n")[0].splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:]],
                         ["context", "libraries", "graphs", "arena", "headroom"])
        self.assertEqual(lines[1].split()[1:3], ["50.0", "MiB"])

    def test_a_plan_that_leaves_no_headroom_is_refused_before_it_is_placed(self):
        peak = self.plan()["peak_bytes"]
        room = (1 << 30) - peak - 52 * self.MIB  # the control block counts with the libraries
        words = [*RUN, "backend=cuda", "run.dir=run"]
        refused = self.cuda("train", *words, f"memory.headroom_mb={(room >> 20) + 3}", **self.how, status=NO_FIT)
        self.assert_error(refused, f"of which memory.headroom_mb={(room >> 20) + 3} reserves", "would make it fit")
        self.assertFalse((self.folder / "run").exists())
        self.cuda("train", *words, f"memory.headroom_mb={(room >> 20) - 1}", **self.how)
        limited = self.cuda("train", *RUN, "backend=cuda", "run.dir=limited", "memory.limit_mb=200", **self.how,
                            status=NO_FIT)
        self.assert_error(limited, "memory.limit_mb allows 200.0 MiB", "memory.headroom_mb=auto reserves")

    def test_memory_measured_to_grow_is_reserved(self):
        how = {**self.how, "EMULATED_TAKES": "context=10 library=400 node=0"}
        self.cuda("train", *RUN, "backend=cuda", "run.dir=run", **how)
        found, = self.gpus(**how)
        self.assertEqual(found["memory"]["headroom_bytes"], 400 * self.MIB)
        refused = self.cuda("train", *RUN, "backend=cuda", "run.dir=other", "memory.limit_mb=405", **how, status=NO_FIT)
        self.assert_error(refused, "reserves 400.0 MiB for later use by the driver and the libraries")


class BadHosts(CudaCase):
    """brim reports one error with the numbers and a remedy before it places anything."""

    def refused(self, *words, status=NO_FIT, **how):
        result = self.cuda("train", *RUN, "backend=cuda", "run.dir=run", *words, status=status, **how)
        self.assertFalse((self.folder / "run").exists())
        return result

    def test_a_driver_that_is_too_old(self):
        how = {"nvml": f"{uuid(0)}=1", "NVML_DRIVER": "470.82.01", "EMULATED_DRIVER": "11.4"}
        self.assert_error(self.refused(**how), "the NVIDIA driver 470.82.01 (CUDA 11.4) is too old", "needs driver ",
                          "update the driver")
        line, = [line for line in self.cuda("devices", **how).out.splitlines() if "'cuda'" in line]
        self.assertIn("the NVIDIA driver 470.82.01 (CUDA 11.4) is too old", line)

    def test_devices_names_the_required_driver(self):
        out = self.cuda("devices", nvml=f"{uuid(0)}=1", NVML_DRIVER="580.65.06").out
        line, = [line for line in out.splitlines() if line.startswith("cuda: driver")]
        self.assertRegex(line, r"^cuda: driver 580\.65\.06 \(CUDA [0-9.]+\); needed: driver [0-9.]+ or later, "
                               r"compute capability 8\.0 or later$")

    def test_a_gpu_that_is_too_old(self):
        self.assert_error(self.refused(EMULATED_CAPABILITY="7.5"), "has compute capability 7.5", "needs 8.0",
                          "CUDA_VISIBLE_DEVICES")

    def test_a_profile_of_another_gpu(self):
        (self.folder / "other.tsv").write_text("NVIDIA A100\tcuDNN 9.1.0\tconvolution\tengine 1\n")
        self.assert_error(self.refused("backend.profile=other.tsv", status=USAGE),
                          "has 1 choices for NVIDIA A100, and none for emulated device", "backend.tune=true")
        (self.folder / "times.jsonl").write_text(
            '{"brim_profile": 1, "backend": "cuda", "device": "NVIDIA A100", "threads": 0}\n')
        self.assert_error(self.refused("memory.profile=times.jsonl", status=USAGE),
                          "times.jsonl is for cuda on NVIDIA A100", "not for cuda on emulated device")


class Messages(CudaCase):
    def test_keys_of_other_backends_are_answered_with_its_own(self):
        result = self.cuda("train", *RUN, "backend=cuda", "backend.threads=2", status=USAGE)
        self.assert_error(result, "unknown key 'backend.threads'", "backend 'cuda' has: ", "debug_launches", "tf32")

    def test_a_build_without_it_says_so(self):
        if (pathlib.Path(BINARY).parent.parent / "lib/brim/plugins/backend/cuda.so").exists():
            self.skipTest("this build has the backend")
        for words in (["backend=cuda"], ["device=cuda"], ["device=cuda:0"]):
            with self.subTest(words):
                result = self.brim("train", *RUN, *words, status=USAGE)
                self.assert_error(result, "no option 'cuda' in group 'backend'", "brim was built without it")

    def test_precision_is_of_backends_that_have_it(self):
        for precision in ("bf16", "fp16"):
            result = self.cuda("train", *RUN, "backend=reference", f"precision={precision}", status=USAGE)
            self.assert_error(result, "backend 'reference' keeps activations in double precision only",
                              f"set precision=fp32, or use a backend that supports {precision}")

    def test_too_large_a_run_is_refused_with_a_size_that_fits(self):
        result = self.cuda("train", *RUN, "backend=cuda", "dataset.shape=[1,512,512]", "dataset.train_count=1024",
                           "training.batch_size=1024", "run.dir=run", status=NO_FIT)
        self.assert_error(result, "MiB free", "training.batch_size=", "would fit")
        self.assertFalse((self.folder / "run").exists())

    def test_a_full_device_lists_its_other_users(self):
        result = self.cuda("train", *RUN, "backend=cuda", "run.dir=run", EMULATED_FULL="1", status=NO_FIT)
        self.assert_error(result, "out of device memory", "`brim devices` lists the processes on it")

    def test_a_missing_profile(self):
        result = self.cuda("train", *RUN, "backend=cuda", "backend.profile=none.tsv", status=LOAD)
        self.assert_error(result, "opening the device profile none.tsv: No such file", "backend.tune=true makes one")


class Training(CudaCase):
    EVERYTHING = ["backend=cuda", "training.batch_size=16", "training.gradient_accumulation_steps=2",
                  "training.clip_norm=0.5",
                  "training.ema_decay=0.9", "observe.log_every_steps=1", "training.eval_every_steps=23",
                  "training.checkpoint_every_steps=1000", "training.steps=120"]

    def interrupt_after(self, run, records, *words):
        """Sends SIGINT once the run has written `count` records."""
        process = self.start("--plugin-path", EMULATED, "train", *RUN, *words, f"run.dir={run}",
                             env={"EMULATED_DEVICES": "1"})
        file = self.folder / run / "metrics.jsonl"
        self.until(lambda: file.exists() and file.read_bytes().count(b"\n") >= records, process)
        process.send_signal(signal.SIGINT)
        return self.finish(process, status=INTERRUPTED)

    def test_a_step_started_ahead_leaves_no_trace_when_interrupted(self):
        for number, precision in enumerate(("fp32", "bf16", "fp16")):
            words = [*self.EVERYTHING, f"precision={precision}"]
            self.cuda("train", *RUN, *words, f"run.dir=whole-{precision}")
            for records in fewer_of((1, 30, 70), 3, number):
                with self.subTest(precision=precision, records=records):
                    part = f"part-{precision}-{records}"
                    self.interrupt_after(part, records, *words)
                    self.cuda("train", "--resume", part)
                    self.assert_same_checkpoint(f"whole-{precision}", part, 120)
                    self.assert_same_records(f"whole-{precision}", part)

    def test_a_nan_loss_names_step_and_operation_and_keeps_checkpoints(self):
        result = self.cuda("train", *RUN, "backend=cuda", "optimizer=sgd", "optimizer.lr=1e6", "schedule=constant",
                           "training.batch_size=32", "training.steps=40", "training.checkpoint_every_steps=1",
                           "training.keep_checkpoints=100", "run.dir=run", status=FAILED)
        self.assert_error(result, "the loss of step ", "first produced by ", "the step was not committed")
        step = int(result.err.split("the loss of step ")[1].split()[0])
        names = sorted(path.name for path in (self.folder / "run/checkpoints").glob("step-*"))
        self.assertEqual(names, [f"step-{i:08d}" for i in range(1, step)])

    def test_losses_are_those_of_the_reference(self):
        words = [*RUN, "training.batch_size=32", "training.steps=20", "observe.log_every_steps=1"]
        self.cuda("train", *words, "backend=reference", "run.dir=reference")
        for precision, most in (("fp32", 1e-5), ("bf16", 2e-2), ("fp16", 4e-3)):
            self.cuda("train", *words, "backend=cuda", f"precision={precision}", f"run.dir={precision}")
            pairs = list(zip(self.records("reference"), self.records(precision)))
            self.assertGreaterEqual(len(pairs), 21)
            for expected, got in pairs:
                self.assertAlmostEqual(got["loss"], expected["loss"], delta=most * expected["loss"])

    def test_steps_that_overflow_are_skipped_on_the_device_without_a_trace(self):
        """The device rejects the update while the host is one step ahead; the host starts that step again."""
        words = [*self.EVERYTHING, "precision=fp16", f"loss_scale.init_scale={HUGE}", "loss_scale.growth_interval=8",
                 "training.steps=60", "training.keep_checkpoints=100"]
        self.cuda("train", *RUN, *words, "training.checkpoint_every_steps=1", "run.dir=run")
        skipped = {e["step"] for e in self.records("run", "events.jsonl") if e["event"] == "skipped_step"}
        self.assertTrue({1, 2, 3} < skipped, skipped)
        self.assertGreater(max(skipped), min(set(range(1, 61)) - skipped) + 6, skipped)  # later steps overflowed again
        for step in range(2, 61):
            for name in ("model.safetensors", "optimizer.safetensors"):
                before, now = (self.checkpoint("run", s).joinpath(name).read_bytes() for s in (step - 1, step))
                self.assertEqual(before == now, step in skipped, f"{name} of step {step}")
        for other in (["--debug-launches"], []):
            run = f"other{len(other)}"
            self.cuda("train", *RUN, *words, *other, f"run.dir={run}")
            self.assert_same_checkpoint("run", run, 60)

    def test_a_model_trained_in_bf16_is_evaluated_in_either_precision(self):
        self.cuda("train", *RUN, "backend=cuda", "precision=bf16", "run.dir=run")
        small = self.cuda("eval", "run", "--json").json["loss"]
        self.assertAlmostEqual(small, self.summary("run")["test_loss"], places=6)
        wide = self.cuda("eval", "run", "precision=fp32", "--json").json["loss"]
        host = self.cuda("eval", "run", "backend=reference", "precision=fp32", "--json").json["loss"]
        self.assertAlmostEqual(wide, host, places=5)
        self.assertAlmostEqual(small, host, delta=2e-2 * host)
        self.assert_error(self.cuda("eval", "run", "backend=reference", status=USAGE), "set precision=fp32")


class Faults(CudaCase):
    """Calls that fail while the device is computing steps (docs/faults.md)."""

    def test_a_program_that_is_not_started_is_started_again(self):
        run = [*RUN, "backend=cuda", "training.steps=4", "training.checkpoint_every_steps=2"]
        self.cuda("train", *run, "run.dir=whole")
        # the first program of a step accumulates gradients, the second one updates
        for i, fault in enumerate(("step:1:lib:program:2", "step:2:lib:program", "step:3:lib:program:2", "step:4",
                                   "step:4:lib:kernel:2")):
            with self.subTest(fault):
                result = self.cuda("train", *run, f"run.dir=run{i}", BRIM_FAULT=fault)
                self.assertIn("out of device memory" if "lib" in fault else "injected by BRIM_FAULT", result.err)
                self.assert_same_checkpoint("whole", f"run{i}", 4)

    def test_a_robust_run_leaves_a_gpu_without_room_for_the_processors(self):
        for run, words, reason in (
                ("first", ["min_gpu_memory_mb=9000000"],
                 "no device has the 8.6 TiB free that min_gpu_memory_mb requires"),
                ("later", ["memory.limit=1e-6"], "are still needed, and cuda:0 has room for ")):
            result = self.cuda("train", *RUN, "policy=robust", *words, f"run.dir={run}", status=None)
            self.assertIn("policy.robust: the host's processors: ", result.err)
            self.assertIn(reason, result.err)
        self.assertRegex(self.read("first", "config.yaml"), r"(?m)^device: cpu$")
        self.assertRegex(self.read("first", "config.yaml"), r"(?m)^  id: cpu$")

    @unittest.skipIf(SANITIZED or not FAULT_SHIM, "the shim and a sanitizer cannot both be preloaded")
    def test_a_run_killed_while_it_moves_to_the_host_can_be_resumed(self):
        run = [*RUN, "backend=cuda", "training.steps=4", "training.checkpoint_every_steps=2", "policy=robust",
               "max_retries=1", "memory.recompute=none"]
        full = "step:3:lib:program:1+,step:3:lib:kernel:1+"
        report = self.folder / "changes"

        def train(name, **shim):
            return self.cuda("train", *run, f"run.dir={name}", status=None, BRIM_FAULT=full, LD_PRELOAD=FAULT_SHIM,
                             BRIM_FILES_FOLDER=f"/{name}/", **shim)
        self.assertEqual(train("moved", BRIM_FILES_REPORT=str(report)).status, 0)
        self.assertIn("  id: cpu\n", self.read("moved", "config.yaml"))
        changes = int(report.read_text())
        for at in fewer_of(range(changes // 4, changes, max(changes // 16, 1)), 3):
            name = f"run{at}"
            result = train(name, BRIM_FILES_KILL_AT=str(at))
            self.assertTrue(killed(result), result)
            self.assertEqual(self.cuda("train", "--resume", name).status, 0)
            self.assertEqual(self.summary(name)["steps"], 4)

    def test_a_device_that_stays_full_ends_the_run_with_its_last_commit(self):
        run = [*RUN, "backend=cuda", "training.steps=4", "training.checkpoint_every_steps=4"]
        self.cuda("train", *run, "run.dir=whole")
        self.cuda("train", *run, "run.dir=run", status=NO_FIT, BRIM_FAULT="step:3:lib:program:1+")
        self.assertEqual(self.steps("run"), [self.summary("run")["steps"]])
        self.cuda("train", "--resume", "run")
        self.assert_same_checkpoint("whole", "run", 4)


class DebugLaunches(CudaCase):
    def test_it_is_the_parameter(self):
        self.cuda("train", *RUN, "--debug-launches", "run.dir=run", "backend=cuda")
        self.assertIn("\n  debug_launches: true\n", self.read("run/config.yaml"))

    def test_a_sweep_hands_it_on(self):
        self.cuda("train", "-m", "seed=1,2", "--debug-launches", *RUN, "run.dir=runs")
        for job in "01":
            self.assertIn("\n  debug_launches: true\n", self.read("runs", job, "config.yaml"))

    def test_a_backend_without_it_is_an_error(self):
        for words in (["--debug-launches"], ["-m", "--debug-launches", "seed=1,2"]):
            with self.subTest(words):
                result = self.cuda("train", "backend=reference", *words, *RUN, status=USAGE)
                self.assert_error(result, "unknown key 'backend.debug_launches'",
                                  f"argument {1 + len(words[:words.index('--debug-launches')]) + 1}: "
                                  f"backend.debug_launches=true")

    def test_a_later_word_wins(self):
        self.cuda("train", "--debug-launches", "backend.debug_launches=false", "backend=cuda", *RUN, "run.dir=run")
        self.assertIn("\n  debug_launches: false\n", self.read("run/config.yaml"))

    def test_a_run_resumes_under_it(self):
        self.cuda("train", *RUN, "training.checkpoint_every_steps=1", "run.dir=run", "backend=cuda")
        (self.folder / "run/summary.json").unlink()  # as if the run had been stopped
        result = self.cuda("train", "--resume", "run", "--debug-launches")
        self.assertNotIn("was edited", result.err)
        self.assertEqual(self.summary("run")["steps"], 2)

    def test_help_has_it(self):
        self.assertIn("--debug-launches", self.brim("train", "--help").out)


if __name__ == "__main__":
    main()
