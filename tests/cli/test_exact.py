"""Predicted memory equals the memory that a run takes: to the byte on its device, within 5 % or 8 MiB on the host."""

import os
import shutil
import signal
import subprocess
import sys
import unittest

from configurations import configurations
from support import BINARY, FASHION, FULL, INTERRUPTED, SANITIZED, SMALL_CNN, Case, main

DEVICES = ["backend=cpu", "backend.devices=2", "backend.memory_mb=2048"]
# Runs until it is interrupted, with an evaluation after every step.
UNTIL_STOPPED = ["training.steps=1000000", "training.eval_every_steps=1", "training.checkpoint_every_steps=1000000"]
MIB = 1 << 20
# `brim plan` and `brim train` each measure their own process while planning; the two differ by up to this much.
PROCESS_SPREAD = MIB


class Exact(Case):
    def plan(self, *words):
        return self.brim("plan", "--json", *DEVICES, *words).json

    def look(self):
        """Reads the ledger: each process's memory on the devices."""
        devices = self.brim("devices", "--json", *DEVICES).json["devices"]
        return [(user["pid"], user["bytes"]) for device in devices if device["backend"] == "cpu"
                for user in device["users"]]

    def has_evaluated(self, run):
        path = self.folder / run / "metrics.jsonl"
        return path.exists() and any(f'"split":"{part}"' in path.read_text().replace(" ", "")
                                     for part in ("test", "validation"))

    def train_and_look(self, run, *words):
        """Trains until an evaluation is done; returns the process number, the ledger's entries meanwhile, and the
        summary."""
        process = self.start("--quiet", "train", f"run.dir={run}", *DEVICES, *words, *UNTIL_STOPPED)
        self.until(lambda: self.has_evaluated(run), process)
        users = self.look()
        process.send_signal(signal.SIGINT)
        self.finish(process, INTERRUPTED)
        return process.pid, users, self.summary(run)

    def check(self, run, words):
        plan = self.plan(*words)
        pid, users, summary = self.train_and_look(run, *words)
        self.assertEqual(users, [(pid, plan["peak_bytes"])])
        self.assertEqual(summary["planned_peak_bytes"], plan["peak_bytes"])
        self.assertEqual(summary["device_peak_bytes"], plan["peak_bytes"])
        self.check_host(plan["host"], summary)

    def check_host(self, host, summary):
        stays = ("process_bytes", "arena_bytes", "state_bytes", "kernel_bytes", "compressing_bytes", "updates_bytes",
                 "data_bytes", "clients_bytes", "score_bytes", "insight_bytes", "loader_bytes")
        self.assertEqual(host["total_bytes"],
                         sum(host[key] for key in stays) +
                         max(host["evaluation_bytes"], host["piece_bytes"], host["summary_bytes"]))
        if not SANITIZED:  # a sanitizer's own memory cannot be predicted
            self.assertLess(abs(summary["predicted_rss_bytes"] - host["total_bytes"]), PROCESS_SPREAD)
            self.check_taken(summary)

    def check_taken(self, summary):
        predicted, taken = summary["predicted_rss_bytes"], summary["rss_peak_bytes"]
        self.assertLessEqual(abs(taken - predicted), max(0.05 * predicted, 8 * MIB), summary)

    def test_random_configurations_take_their_planned_memory(self):
        every = 1 if FULL and not SANITIZED else 5
        for i, words in enumerate(configurations(FASHION)[::every]):
            with self.subTest(" ".join(words)):
                self.check(f"run{i}", words)

    def test_backbones_of_real_sizes_take_their_planned_memory(self):
        if SANITIZED:
            self.skipTest("a sanitizer takes minutes here and its own memory")
        for model, side, batch in (("resnet18", 224, 4), ("resnet50", 64, 4), ("vit_tiny", 224, 2),
                                   ("clip_vit_b32 model.depth=3", 224, 2)):
            with self.subTest(model):
                self.check(model.split()[0], [*f"model={model}".split(), "dataset=synthetic", "dataset.classes=102",
                                              f"dataset.shape=[3,{side},{side}]", "dataset.train_count=16",
                                              "dataset.test_count=4", f"training.batch_size={batch}",
                                              "memory.timing=false"])

    def test_many_classes_take_a_confusion_matrix_and_its_copy(self):
        words = ["model=mlp", "model.hidden=[16]", "dataset=synthetic", "dataset.classes=1500", "dataset.test_count=64",
                 "training.batch_size=16", "training.steps=2", "backend=cpu"]
        self.assertEqual(self.plan(*words)["host"]["score_bytes"], 2 * 8 * 1500 * 1500)
        self.train("run", *words)
        if not SANITIZED:
            self.check_taken(self.summary("run"))

    @unittest.skipIf(SANITIZED, "a sanitizer's own memory is not predicted")
    def test_writing_the_last_files_takes_no_more(self):
        """The peak in the summary cannot include the writing of the summary, so the test asks the system for the
        peak."""
        look = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        words = ["model=mlp", "model.hidden=[16]", "dataset=synthetic", "dataset.test_count=64",
                 "training.batch_size=16", "training.steps=2", "backend=cpu", "memory.timing=false"]
        for classes in (200, 256, 257, 1500):
            with self.subTest(classes):
                run = self.folder / str(classes)
                result = subprocess.run([sys.executable, "-c", look, BINARY, "train", f"run.dir={run}", *words,
                                         f"dataset.classes={classes}"], cwd=self.folder, check=True, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, "BRIM_CLAIMS_DIR": str(self.folder / "claims")})
                summary = self.summary(run)
                self.check_taken({**summary, "rss_peak_bytes": 1024 * int(result.stdout.splitlines()[-1])})
                self.assertEqual("test_confusion" in summary, classes <= 256)
                self.assertEqual(len(summary["test_classes"]), classes)

    def test_memory_freed_by_evaluations_and_checkpoints_is_returned(self):
        """An evaluation's loader is one block of 49 MiB, and a checkpoint takes a block of 4 MiB; the two alternate.
        With glibc's defaults, chance decides whether one can reuse the place of the other."""
        for turn in range(3 if FULL else 2):
            with self.subTest(turn):
                self.train(f"run{turn}", "model=mlp", "model.hidden=[1024,1024]", "dataset=synthetic",
                           "memory.timing=false", "dataset.train_count=1100", "dataset.test_count=4096",
                           "training.batch_size=512", "training.eval_batch_size=4096", "training.steps=3",
                           "training.eval_every_steps=1", "training.checkpoint_every_steps=1", "backend=cpu")
                if not SANITIZED:
                    self.check_taken(self.summary(f"run{turn}"))

    def test_the_prediction_of_a_resumed_run_counts_reading_its_checkpoint(self):
        words = ["model=mlp", "model.hidden=[2048,2048]", "dataset=synthetic", "dataset.test_count=64",
                 "memory.timing=false", "training.batch_size=16", "training.steps=4",
                 "training.checkpoint_every_steps=2", "backend=cpu"]
        self.train("run", *words)
        (self.folder / "run" / "summary.json").unlink()  # as if the run had been killed
        shutil.rmtree(self.checkpoint("run", 4))
        self.brim("train", "--resume", "run")
        host, summary = self.plan(*words)["host"], self.summary("run")
        self.assertGreater(host["resume_bytes"], host["loader_bytes"] + host["piece_bytes"])
        if not SANITIZED:
            self.check_taken(summary)
            self.assertGreater(summary["predicted_rss_bytes"], host["total_bytes"] + 8 * MIB)

    def test_predicted_process_memory_is_itemized(self):
        line = self.brim("plan", *SMALL_CNN, "backend=cpu").out.splitlines()[-1]
        self.assertRegex(line,
                         r"^the process will take about [\d.]+ MiB of host memory: [\d.]+ MiB program and libraries, "
                         r"[\d.]+ .iB arena, [\d.]+ .iB kernels, [\d.]+ .iB confusion matrix, "
                         r"[\d.]+ .iB histograms and worst answers, "
                         r"[\d.]+ .iB micro-batches ahead, "
                         r"[\d.]+ .iB (micro-batches ahead, in an evaluation|a piece of a checkpoint|"
                         r"confusion matrix for the summary)$")


if __name__ == "__main__":
    main()
