"""Tests brim doctor: it names the fault of broken set-ups with a remedy, and finds none in a good one."""

import json
import os
import pathlib
import resource
import subprocess
import unittest

from support import BINARY, HANG_SECONDS, SMALL, Case, main

NO_JOB = ["--job-seconds", "0"]


class Doctor(Case):
    def examine(self, *words, env=None, limits=(), drop=()):
        """Runs brim doctor; returns its findings and its exit status."""
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm",
                       "BRIM_CLAIMS_DIR": str(self.folder / "claims"), "XDG_CACHE_HOME": str(self.folder / "cache"),
                       **(env or {})}
        for name in drop:
            environment.pop(name, None)

        def limit():
            for kind, value in limits:
                resource.setrlimit(kind, (value, value))
        process = subprocess.run([BINARY, "doctor", "--json", *words], cwd=self.folder, env=environment, text=True,
                                 stdin=subprocess.DEVNULL, capture_output=True, timeout=HANG_SECONDS, check=False,
                                 preexec_fn=limit if limits else None)
        found = json.loads(process.stdout)
        self.assertEqual(found["brim_doctor"], 1)
        self.assertEqual(process.returncode, 3 if found["problems"] else 0, process.stderr)
        for level, key in (("problem", "problems"), ("warning", "warnings")):
            self.assertEqual(sum(f["level"] == level for f in found["findings"]), found[key])
        left = [path.name for path in self.folder.iterdir() if path.name.startswith(".brim-doctor")]
        self.assertEqual(left, [])
        return found["findings"]

    def assert_named(self, level, area, text, remedy, *words, **options):
        """Asserts that one finding has this level and area, and matches both patterns."""
        findings = self.examine(*(words or SMALL), *options.pop("jobs", NO_JOB), **options)
        for f in findings:
            if (f["level"], f["area"]) == (level, area) and f["remedy"]:
                if all(self.matches(pattern, f[key]) for pattern, key in ((text, "text"), (remedy, "remedy"))):
                    return
        self.fail(f"no {level} of '{area}' matches {text!r} and {remedy!r}: {json.dumps(findings, indent=1)}")

    @staticmethod
    def matches(pattern, text):
        return pattern in text

    def file(self, name, text="", mode=0o644):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    def test_a_good_setup_has_no_problem(self):
        findings = self.examine(*SMALL, *NO_JOB)
        self.assertEqual([f for f in findings if f["level"] == "problem"], [])
        areas = {f["area"] for f in findings}
        self.assertLessEqual({"program", "plugins", "configuration", "devices", "run", "shared folder", "runs", "disk",
                              "cache", "memory", "processors", "environment", "terminal"}, areas)

    # ---- plugins and configuration ----

    def test_a_broken_plugin(self):
        self.file("plugins/model/broken.so", "no object")
        self.assert_named("warning", "plugins", "broken.so", "remove it", *SMALL, "--plugin-path", "plugins")

    def test_an_unknown_key(self):
        self.assert_named("problem", "configuration", "optimizer.lrr", "optimizer.lr", *SMALL, "optimizer.lrr=1")

    def test_an_unknown_option(self):
        self.assert_named("problem", "configuration", "mpl", "mlp", *SMALL, "model=mpl")

    # ---- the run ----

    def test_a_dataset_that_is_not_there(self):
        self.assert_named("problem", "run", "nowhere", "", "dataset=mnist", "dataset.path=nowhere")

    def test_weights_that_are_not_there(self):
        self.assert_named("problem", "run", "nowhere.safetensors", "", *SMALL, "model.weights=nowhere.safetensors")

    def test_a_device_that_is_not_there(self):
        self.assert_named("problem", "run", "cpu:9", "", *SMALL, "backend=cpu", "device=cpu:9")

    def test_a_run_that_does_not_fit(self):
        self.assert_named("problem", "run", "memory.limit_mb", "at its peak", *SMALL, "model.hidden=[9999]",
                          "memory.limit_mb=1")

    # ---- folders ----

    def test_a_shared_folder_that_is_a_file(self):
        path = self.file("claims")
        self.assert_named("problem", "shared folder", str(path), "claims.dir")

    def test_a_shared_folder_that_cannot_be_made(self):
        self.assert_named("problem", "shared folder", "/proc/brim", "BRIM_CLAIMS_DIR",
                          env={"BRIM_CLAIMS_DIR": "/proc/brim"})

    def test_a_board_with_another_name(self):
        os.link(self.file("claims/queue"), self.folder / "link")
        self.assert_named("problem", "shared folder", "hard link", "remove it")

    def test_a_damaged_slot(self):
        process = self.hold("run", *SMALL)
        self.suspend(process.pid)
        with open(self.folder / "claims" / "runs", "r+b") as board:
            board.seek(24 + 1 + 100)
            board.write(b"damage")
        self.assert_named("warning", "shared folder", "slot 0 of ", "claims.dir")

    def test_runs_where_nothing_can_be_written(self):
        self.assert_named("problem", "runs", "/proc", "run.dir=", *SMALL, "run.dir=/proc/brim/run")

    def test_runs_below_a_file(self):
        self.file("file")
        self.assert_named("problem", "runs", "'file' is not a folder", "run.dir=", *SMALL, "run.dir=file/run")

    def test_a_cache_that_is_a_file(self):
        path = self.file("cached")
        self.assert_named("warning", "cache", str(path), "XDG_CACHE_HOME", env={"XDG_CACHE_HOME": str(path)})

    def test_no_home(self):
        self.assert_named("warning", "cache", "no folder", "HOME", drop=("HOME", "XDG_CACHE_HOME"))

    def test_a_profile_without_times(self):
        self.assert_named("note", "profile", "no operation was timed on cpu:0 yet", "policy=auto_plan", *SMALL,
                          "backend=cpu")
        self.train("run", *SMALL, "backend=cpu")  # this training measures nothing
        self.assert_named("note", "profile", "no operation was timed on cpu:0 yet", "nothing to do for training",
                          *SMALL, "backend=cpu")

    def test_an_old_profile(self):
        words = [word for word in SMALL if not word.startswith("memory.timing")]
        self.brim("plan", *words)
        profiles = list((self.folder / "cache" / "brim").glob("cpu-*.jsonl"))
        self.assertTrue(profiles)
        for path in profiles:
            os.utime(path, (1e9, 1e9))
        self.assert_named("warning", "profile", "days old", "--forget-times", *words)

    # ---- limits and environment ----

    def test_limits_of_the_process(self):
        for kind, value, text in ((resource.RLIMIT_NOFILE, 100, "open files: 100"),
                                  (resource.RLIMIT_AS, 1 << 40, "address space"),
                                  (resource.RLIMIT_FSIZE, 1 << 40, "size of a file"),
                                  (resource.RLIMIT_DATA, 1 << 40, "data: "),
                                  (resource.RLIMIT_CPU, 100000, "processor time: 100000")):
            with self.subTest(text):
                self.assert_named("warning", "limits", text, "ulimit", limits=[(kind, value)])

    def test_faults_for_tests(self):
        self.assert_named("problem", "environment", "BRIM_FAULT=", "unset BRIM_FAULT",
                          env={"BRIM_FAULT": "step:9:update"})

    def test_other_variables(self):
        for name, value, level, area in (("OMP_NUM_THREADS", "many", "warning", "environment"),
                                         ("LD_PRELOAD", "libm.so.6", "warning", "environment"),
                                         ("TERM", "dumb", "warning", "terminal"),
                                         ("LC_ALL", "C", "note", "terminal")):
            with self.subTest(name):
                text = "UTF-8" if name == "LC_ALL" else f"{name}={value}"
                self.assert_named(level, area, text, name, env={name: value})

    # ---- ranks ----

    def has_mpi(self):
        return any(line.startswith("comm/mpi") for line in self.brim("plugins").out.replace("  ", "").splitlines()) or \
            "mpi" in self.brim("plugins", "comm").out

    def mpirun(self, script):
        return {"PATH": f"{self.file('bin/mpirun', script, 0o755).parent}:{os.environ['PATH']}"}

    def assert_not_ended(self, env):
        """Asserts the finding for a script that did not end. On a busy machine it may wait for a processor until the
        time limit, before it sleeps; then the finding is only a note."""
        findings = []

        def had_a_processor():
            findings[:] = [f for f in self.examine(*SMALL, "--job-seconds", "1", env=env) if f["area"] == "ranks"]
            return not any("this machine is busy" in f["text"] for f in findings)
        self.until(had_a_processor)
        found, = (f for f in findings if "has not ended after 1 s" in f["text"])
        self.assertEqual(found["level"], "warning")
        self.assertIn("--job-seconds", found["remedy"])

    def test_jobs_that_cannot_run(self):
        if not self.has_mpi():
            raise unittest.SkipTest("this build has no MPI")
        empty = self.folder / "empty"
        empty.mkdir()
        self.assert_named("note", "ranks", "no mpirun", "openmpi-bin", env={"PATH": str(empty)}, jobs=[])
        self.assert_named("warning", "ranks", "failed", "mpirun -n 2 hostname", jobs=["--job-seconds", "60"],
                          env=self.mpirun("#!/bin/sh\necho 'error: no route to host' >&2\nexit 1\n"))
        self.assert_not_ended(self.mpirun("#!/bin/sh\nexec sleep 1000\n"))
        # A job that computes, or waits for a processor, is not a fault of the set-up.
        self.assert_named("note", "ranks", "processor time: this machine is busy", "--job-seconds 30",
                          jobs=["--job-seconds", "1"], env=self.mpirun("#!/bin/sh\nwhile :; do :; done\n"))
        self.assertEqual([p for p in pathlib.Path("/tmp").glob("brim-doctor-*") if p.stat().st_uid == os.geteuid()
                          and (p / "output").exists() and str(self.folder) in (p / "output").read_text()], [])

    # ---- the text ----

    def test_text_and_brief(self):
        result = self.brim("doctor", *SMALL, *NO_JOB, "device=cpu:9", "backend=cpu", status=3)
        self.assertRegex(result.out, r"(?m)^ok    plugins +\d+ can be used$")
        self.assertRegex(result.out, r"(?m)^FAIL  run +.*cpu:9.*\n +-> ")
        self.assertRegex(result.err, r"error: 1 problem and \d+ warnings?")
        brief = self.brim("doctor", "--brief", *SMALL, *NO_JOB, "device=cpu:9", "backend=cpu", status=3).out
        self.assertNotRegex(brief, r"(?m)^(ok|note)")
        self.assertIn("FAIL  run", brief)

    def test_bad_words(self):
        self.assert_error(self.brim("doctor", "--job-seconds", "x", status=2), "--job-seconds")


if __name__ == "__main__":
    main()
