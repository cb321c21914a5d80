"""Tests brim start: questions on a pipe and on a terminal, and a run equal to that of the command it prints."""

import fcntl
import os
import pty
import re
import shlex
import signal
import subprocess
import termios
import time

from support import BINARY, DONE, HANG_SECONDS, INTERRUPTED, NO_FIT, SMALL, USAGE, Case, Result, main

GPUS = os.environ["BRIM_GPUS"]  # a folder with a backend that simulates GPUs; see tests/memory/gpus.c
# takes 44.6 MiB; in micro-batches of 32, 31.5 MiB
CNN = ["model=cnn", "dataset=synthetic", "dataset.train_count=256", "dataset.test_count=64", "training.epochs=1"]
# Steps have 128 samples. brim asks only for values that the command line does not set.
WORDS = [word for word in SMALL if not word.startswith("training.batch_size")] + ["training.steps=2"]
DEVICE, PRECISION, BATCH, START = (f"{name} (" for name in ("device", "precision", "batch size", "start"))


class Start(Case):
    def environment(self, env=None):
        return {**os.environ, "LC_ALL": "C.UTF-8", "BRIM_CLAIMS_DIR": str(self.folder / "claims"), **(env or {})}

    def answer(self, answers, *words, status=DONE, env=None):
        """Runs `brim start` with these lines as its standard input."""
        argv = [*words[:2], "start", *words[2:]] if words and words[0] == "--plugin-path" else ["start", *words]
        process = subprocess.run([BINARY, *argv], cwd=self.folder, env=self.environment(env), text=True, check=False,
                                 input="".join(f"{a}\n" for a in answers), capture_output=True, timeout=HANG_SECONDS)
        result = Result(argv, process.returncode, process.stdout, process.stderr)
        self.assertEqual(result.status, status, result)
        return result

    def asked(self, result):
        return [question for question in (DEVICE, PRECISION, BATCH, START) if question in result.err]

    def command(self, result):
        """Returns the arguments of the command that brim printed, without the program's name."""
        line = result.out.splitlines()[0]  # the run's output follows
        words = shlex.split(line)
        self.assertEqual(words[0], "brim")
        return words[1:]

    def assert_nothing_made(self):
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name != "claims"], [])

    # ---- answers ----

    def test_enter_takes_the_defaults(self):
        result = self.answer(["", "", "", ""], *WORDS, "run.dir=run")
        self.assertEqual(self.asked(result), [DEVICE, PRECISION, BATCH, START])
        self.assertEqual(self.command(result), ["train", *WORDS, "run.dir=run", "training.batch_size=auto"])
        self.assertEqual(self.summary("run")["status"], "finished")

    def test_yes_asks_nothing(self):
        result = self.answer([], *WORDS, "run.dir=run", "--yes")
        self.assertEqual(self.asked(result), [])
        self.assertEqual(self.command(result), ["train", *WORDS, "run.dir=run", "training.batch_size=auto"])
        self.assertEqual(self.summary("run")["steps"], 2)

    def test_devices_and_fitting_sizes_are_shown_before_the_questions(self):
        result = self.answer(["", "", "", "no"], *CNN, "backend=cpu", "backend.devices=2", "backend.memory_mb=40",
                             "training.batch_size=64", status=NO_FIT)
        self.assertRegex(result.err, r"(?m)^\* cpu:0 +40\.0 MiB +40\.0 MiB +32 x 2 +31\.5 MiB +32 x 2 +31\.5 MiB$")
        self.assertLess(result.err.index("cpu:1 "), result.err.index(DEVICE))
        result = self.answer(["", "", "no"], *CNN, "device=cpu", "memory.limit_mb=40",
                             "training.effective_batch_size=64")
        self.assertRegex(result.err, r"(?m)^ +32 x 2 +31\.5 MiB$")
        self.assertNotRegex(result.err, r"(?m)^ +64 x 1 +44\.6 MiB$")

    def test_no_ends_without_a_trace(self):
        for answer in ("no", "n"):
            result = self.answer(["", "", "", answer], *WORDS)
            self.assertEqual(self.command(result)[0], "train")
            self.assert_nothing_made()

    def test_values_of_the_command_line_are_kept_and_not_asked(self):
        result = self.answer(["yes"], *WORDS, "device=cpu", "precision=fp32", "training.batch_size=32", "run.dir=run")
        self.assertEqual(self.asked(result), [START])
        self.assertEqual(self.command(result)[1:], [*WORDS, "device=cpu", "precision=fp32", "training.batch_size=32",
                                                    "run.dir=run"])
        self.assertIn("batch_size: 32", self.read("run", "config.yaml"))

    def test_the_printed_command_does_the_same_run(self):
        cases = {"defaults": ["", "", "", "y"], "cut": ["cpu:0", "fp32", "32", "yes"],
                 "a single one": ["cpu", "", "128", ""], "another backend": ["reference:0", "", "", ""]}
        for name, answers in cases.items():
            with self.subTest(name):
                extra = ["run.name=it's $5", "training.gradient_accumulation_steps=2"]
                words = [*[word for word in WORDS if not word.startswith("backend.")], *extra]
                result = self.answer(answers, *words, f"run.dir={name}/a")
                line = result.out.splitlines()[0].replace(shlex.quote(f"run.dir={name}/a"),
                                                          shlex.quote(f"run.dir={name}/b"))
                self.assertTrue(line.startswith("brim "), line)
                subprocess.run(["sh", "-c", f"{shlex.quote(BINARY)} {line[5:]}"], cwd=self.folder, check=True,
                               env=self.environment(), capture_output=True)
                config = self.read(name, "a", "config.yaml")
                self.assertEqual(config.replace(f"{name}/a", f"{name}/b"), self.read(name, "b", "config.yaml"))
                self.assert_same_checkpoint(f"{name}/a", f"{name}/b", 2)

    def test_a_micro_batch_that_divides_the_effective_batch_leaves_it_as_it_is(self):
        result = self.answer(["", "", "32", "no"], *WORDS, "training.effective_batch_size=128")
        self.assertEqual(self.command(result)[-1], "training.batch_size=32")
        self.assertIn("micro-batch 32 x 4,", result.err)
        result = self.answer(["", "", "16", "no"], *WORDS)  # the configuration has 64
        self.assertEqual(self.command(result)[-2:],
                         ["training.batch_size=16", "training.gradient_accumulation_steps=4"])
        self.assertIn("micro-batch 16 x 4,", result.err)
        result = self.answer(["", "", "48", "16", "no"], *WORDS)
        self.assert_error(result, "a step has 64 samples, which 48 does not divide",
                          "write a number that does, or auto")

    def test_global_options_are_part_of_the_command(self):
        (self.folder / "my").mkdir()
        (self.folder / "my/mine.yaml").write_text("defaults:\n  - model: mlp\n  - dataset: synthetic\n"
                                                  "  - optimizer: sgd\n  - schedule: constant\n"
                                                  "  - loss: cross_entropy\n  - backend: cpu\n")
        argv = ["--config-path", "my", "--config-name", "mine", "--quiet"]
        result = self.finish(self.start(*argv, "start", "--yes", *WORDS, "run.dir=run"), DONE)
        self.assertEqual(self.command(result)[:len(argv) + 1], [*argv, "train"])
        self.assertEqual(result.err, "")
        self.assertEqual(self.summary("run")["steps"], 2)

    # ---- devices and precisions ----

    def test_each_backend_has_its_own_precisions(self):
        words = [word for word in WORDS if not word.startswith("backend.")]
        result = self.answer(["reference:0", "bf16", "", "", "no"], *words)
        self.assert_error(result, "this device does not support precision 'bf16'", "it supports fp32")
        self.assertEqual(result.err.count(PRECISION), 2)
        result = self.answer(["cpu:0", "bf16", "", "no"], *words)
        self.assertEqual(self.command(result)[-3:], ["device=cpu:0", "precision=bf16", "training.batch_size=auto"])
        self.assertIn(" on cpu:0 in bf16:", result.err)
        result = self.answer(["cpu:0", "fp16", "", "no"], *words)
        self.assertEqual(self.command(result)[-3:], ["device=cpu:0", "precision=fp16", "training.batch_size=auto"])

    def test_a_configured_precision_that_the_device_lacks_is_asked_for_again(self):
        (self.folder / "my").mkdir()
        (self.folder / "my/half.yaml").write_text(
            "defaults:\n  - model: mlp\n  - dataset: synthetic\n  - optimizer: sgd\n  - schedule: constant\n"
            "  - loss: cross_entropy\n  - backend: reference\nprecision: bf16\n")
        half = ["--config-path", "my", "--config-name", "half"]
        self.assert_error(self.brim(*half, "plan", status=USAGE), "backend 'reference' keeps activations in")
        result = self.answer(["", "", "", "no"], *half, "training.steps=2")
        self.assertEqual(self.command(result), [*half, "train", "training.steps=2", "precision=fp32",
                                                "training.batch_size=auto"])
        result = self.answer([], *half, "precision=bf16", status=USAGE)
        self.assert_error(result, "backend 'reference' keeps activations in")

    def test_a_device_of_a_backend_not_requested_is_not_offered(self):
        result = self.answer(["reference:0", "cpu:0", "", "", "no"], *WORDS, "backend=cpu")
        self.assert_error(result, "there is no device 'reference:0'", "choose one from the table, or auto")
        self.assertNotRegex(result.err, r"(?m)^[* ] reference:0")

    def test_the_device_that_is_named_is_trained_on(self):
        two = ["backend=cpu", "backend.devices=2", "backend.memory_mb=64"]
        result = self.answer(["cpu:1", "", "", "no"], *WORDS, *two)
        self.assertIn(" on cpu:1 in fp32:", result.err)
        self.assertIn("device=cpu:1", self.command(result))

    def test_a_gpu_on_which_nothing_fits_is_explained_and_another_requested(self):
        result = self.answer(["gpus:1", "", "gpus:2", "", "", "no"], "--plugin-path", GPUS, "backend=gpus", "model=mlp",
                             "dataset=synthetic", env={"TEST_GPUS": "300/400,14/400/5,15/400"})
        self.assertRegex(result.err, r"(?m)^  gpus:1 +14\.0 MiB +400\.0 MiB +- +- +64 x 1 +13\.6 MiB$")
        self.assert_error(result,
                          "nothing fits on gpus:1 in fp32: at least 13.2 MiB are needed, and there is room for 11.0")
        self.assertIn(" on gpus:2 in fp32: micro-batch 64 x 1, peak 9.6 MiB of 12.0 MiB free", result.err)
        self.assertEqual(self.command(result)[:3], ["--plugin-path", GPUS, "train"])
        self.answer(["gpus:1", ""], "--plugin-path", GPUS, "backend=gpus", "model=mlp", "dataset=synthetic",
                    "device=gpus:1", "precision=fp32", env={"TEST_GPUS": "300/400,14/400/5"}, status=NO_FIT)

    # ---- wrong answers ----

    def test_wrong_answers_are_explained_and_asked_again(self):
        result = self.answer(["gpu", "cpu:7", "cpu:0", "fp8", "fp32", "many", "0", "-3", "1e3", "32", "perhaps", "no"],
                             *WORDS)
        self.assert_error(result, "there is no device 'gpu'", "there is no device 'cpu:7'",
                          "does not support precision 'fp8'",
                          "'many' is not a number of samples", "'0' is not a number of samples",
                          "'-3' is not a number of samples", "'1e3' is not a number of samples",
                          "'perhaps' is neither yes nor no")
        self.assertEqual([result.err.count(question) for question in (DEVICE, PRECISION, BATCH, START)], [3, 2, 5, 2])
        self.assertIn("training.batch_size=32", self.command(result))
        self.assert_nothing_made()

    def test_a_batch_that_does_not_fit_is_explained_and_asked_again(self):
        words = [*CNN, "memory.limit_mb=40", "device=cpu", "precision=fp32"]
        result = self.answer(["64", "32", "no"], *words)
        self.assert_error(result, "the run needs 44.6 MiB, but memory.limit_mb allows 40.0 MiB",
                          "training.batch_size=32 training.gradient_accumulation_steps=2 would fit")
        self.assertEqual(self.command(result)[-2:],
                         ["training.batch_size=32", "training.gradient_accumulation_steps=2"])

    def test_a_batch_of_the_command_line_that_does_not_fit_is_an_error(self):
        result = self.answer(["", "", "yes"], *CNN, "memory.limit_mb=40", "training.batch_size=64", status=NO_FIT)
        self.assert_error(result, "memory.limit_mb allows 40.0 MiB", "would fit")
        self.assertNotIn(START, result.err)
        self.assert_nothing_made()

    def test_an_effective_batch_on_the_command_line_is_kept(self):
        result = self.answer(["48", "32", "no"], *WORDS, "device=cpu", "precision=fp32",
                             "training.effective_batch_size=64")
        self.assert_error(result, "a step has 64 samples, which 48 does not divide")
        self.assertIn("micro-batch 32 x 2,", result.err)

    def test_without_a_policy_that_chooses_the_default_is_the_configurations(self):
        result = self.answer(["", "", "auto", "", "no"], *WORDS, "policy=fixed")
        self.assert_error(result, "none of the policies chooses a micro-batch")
        self.assertIn("[64]: ", result.err)
        self.assertEqual(self.command(result), ["train", *WORDS, "policy=fixed"])

    def test_wrong_words_are_reported_before_any_question(self):
        result = self.answer([], *WORDS, "model.widht=3", status=USAGE)
        self.assert_error(result, "unknown key 'model.widht'", f"argument {len(WORDS) + 1}: model.widht=3")
        self.assertEqual(self.asked(result), [])
        self.assert_error(self.answer([], "--resume", "run", status=USAGE), "unknown option '--resume'")

    # ---- ends ----

    def test_an_end_of_the_input_is_not_an_answer(self):
        for answers, question in ([], "device"), (["", ""], "batch size"), (["", "", ""], "start"):
            with self.subTest(question):
                result = self.answer(answers, *WORDS, status=USAGE)
                self.assert_error(result, f"standard input ended without an answer to '{question}'", "--yes")
                self.assert_nothing_made()

    def test_a_last_line_needs_no_newline(self):
        process = subprocess.run([BINARY, "start", *WORDS, "device=cpu", "precision=fp32", "training.batch_size=64"],
                                 cwd=self.folder, env=self.environment(), text=True, check=False, input="no",
                                 capture_output=True)
        self.assertEqual(process.returncode, DONE, process.stderr)

    # ---- a terminal ----

    def on_terminal(self, *words):
        """Runs brim start on a terminal; returns the process and the terminal's other end."""
        other, terminal = pty.openpty()
        self.addCleanup(os.close, other)
        process = subprocess.Popen([BINARY, "start", *words], cwd=self.folder, env=self.environment({"TERM": "xterm"}),
                                   stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
                                   preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(terminal)
        self.addCleanup(self._end_terminal, process)
        return process, other

    @staticmethod
    def _end_terminal(process):
        if process.poll() is None:
            process.kill()
        process.wait()

    def read_until(self, other, pattern):
        """Reads until the pattern appears."""
        data, text, deadline = b"", "", time.monotonic() + HANG_SECONDS
        while not re.search(pattern, text):
            self.assertLess(time.monotonic(), deadline, text[-1000:])
            try:
                data += os.read(other, 4096)  # a read may end within a character
            except OSError:  # brim has closed its side
                self.fail(f"brim ended before it printed {pattern!r}: {text}")
            text = data.decode(errors="replace")
        return text

    def rest(self, process, other):
        text = b""
        try:
            while chunk := os.read(other, 4096):
                text += chunk
        except OSError:
            pass
        return process.wait(HANG_SECONDS), text.decode(errors="replace")

    def test_questions_on_a_terminal(self):
        process, other = self.on_terminal(*WORDS, "run.dir=run")
        for question, answer in (("device", "cpu:0"), ("precision", ""), ("batch size", "32"), ("start", "yes")):
            text = self.read_until(other, re.escape(question) + r" \([^)]*\) \[[^]]*\]: \Z")
            os.write(other, answer.encode() + b"\n")
        self.assertIn("training.batch_size=32 training.gradient_accumulation_steps=2\r\n", text)
        status, text = self.rest(process, other)
        self.assertEqual(status, DONE, text)
        self.assertIn("results in run", text)
        self.assertEqual(self.summary("run")["steps"], 2)

    def test_ctrl_d_and_ctrl_c_end_it(self):
        for key, status in (b"\x04", USAGE), (b"\x03", -signal.SIGINT):
            with self.subTest(key):
                process, other = self.on_terminal(*WORDS)
                self.read_until(other, r"\]: \Z")
                os.write(other, key)
                self.assertEqual(self.rest(process, other)[0], status)
                self.assert_nothing_made()

    def test_a_signal_stops_the_run_as_usual(self):
        process, other = self.on_terminal(*WORDS, "run.dir=run", "--yes", "training.steps=100000000")
        self.read_until(other, r"test loss")
        os.write(other, b"\x03")
        status, text = self.rest(process, other)
        self.assertEqual(status, INTERRUPTED, text[-1000:])
        self.assertTrue(self.steps("run"))


if __name__ == "__main__":
    main()
