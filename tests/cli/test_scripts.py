"""Tests scripts/: setup without a network or without root, and the counting of tests."""

import os
import pathlib
import subprocess

from support import Case, main

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"

REPORT = """<?xml version="1.0"?><testsuite>
<testcase name="cmocka" status="{cmocka}"><system-out>[  PASSED  ] 7 test(s).
[  SKIPPED ] 1 test(s), listed below:
{more}</system-out></testcase>
<testcase name="python" status="run"><system-out>.....
----------------------------------------------------------------------
Ran 5 tests in 0.1s

OK (skipped=2)
</system-out></testcase>
<testcase name="plain" status="run"><system-out>hello</system-out></testcase>
</testsuite>"""


class Setup(Case):
    """scripts/setup.sh with stand-ins for the system's programs, which record their calls."""

    def setup_script(self, *argv, installed, apt="exit 0", user="0"):
        tools = self.folder / "tools"
        tools.mkdir()
        self.calls = self.folder / "calls"
        for name, text in {"dpkg-query": f'case "$*" in {installed}) echo installed;; *) exit 1;; esac',
                           "apt-get": f'echo "$*" >>{self.calls}\n{apt}',
                           "sudo": "exit 1"}.items():
            (tools / name).write_text(f"#!/bin/sh\n{text}\n")
            (tools / name).chmod(0o755)
        # The shell sets EUID itself and ignores an exported one, so the test sets it in a copy of the script.
        script = (SCRIPTS / "setup.sh").read_text().replace("EUID != 0", f"{user} != 0")
        copy = self.folder / "setup.sh"
        copy.write_text(script)
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
        return subprocess.run(["bash", copy, *argv], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False)

    def test_with_everything_installed_it_does_nothing(self):
        result = self.setup_script("test", installed="*")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        self.assertFalse(self.calls.exists())

    def test_installs_only_what_is_missing(self):
        result = self.setup_script(installed="*cmake*|*gcc*|*g++*|*dataset*|*yaml*|*ninja*|"
                                             "*libc6*|*zlib*|*pkg*|*openmpi*|*jpeg*|*pcre2*|*utf8proc*|*png*")
        self.assertEqual(result.returncode, 0)
        install = self.calls.read_text().splitlines()[-1]
        missing = "libjansson-dev libxxhash-dev libdnnl-dev libxbyak-dev libncurses-dev"
        self.assertTrue(install.endswith(missing), install)
        self.assertIn("--yes", install)

    def test_without_a_network_it_lists_missing_programs(self):
        result = self.setup_script(installed="[!x]*zlib*", apt="exit 100")
        self.assertEqual(result.returncode, 1)
        self.assertIn("missing and could not be installed: cmake ", result.stderr)
        self.assertIn("is there a network?", result.stderr)

    def test_without_root_gives_the_command(self):
        result = self.setup_script(installed="*cmake*", user="1000")
        self.assertEqual(result.returncode, 1)
        self.assertIn("run: sudo apt-get install ninja-build", result.stderr)
        self.assertFalse(self.calls.exists())


class Just(Case):
    """scripts/just.sh, with a stand-in for python3 that behaves as if there were no network."""

    def just_script(self, python, **environment):
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        (tools / "python3").write_text(f"#!/bin/sh\n{python}\n")
        (tools / "python3").chmod(0o755)
        base = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(self.folder), "BRIM_JUST": ""}
        return subprocess.run([SCRIPTS / "just.sh"], env={**base, **environment}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)

    def test_the_one_that_is_named_is_taken(self):
        result = self.just_script("exit 1", BRIM_JUST="/some/just")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "/some/just\n", ""))

    def test_without_a_network_it_fails_with_a_line_and_leaves_nothing(self):
        result = self.just_script("echo no network; exit 1")
        if result.returncode == 0:
            self.skipTest("just is installed in /usr/bin")
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertTrue(result.stderr.endswith("so the justfile is not tested: no network\n"), result.stderr)
        self.assertFalse((self.folder / ".cache/brim/just").exists())

    def test_one_in_the_cache_is_taken_again(self):
        just = self.folder / "cache/brim/just/bin/just"
        just.parent.mkdir(parents=True)
        just.write_text("#!/bin/sh\n")
        just.chmod(0o755)
        result = self.just_script("exit 1", XDG_CACHE_HOME=str(self.folder / "cache"))
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, f"{just}\n", ""))


class Counting(Case):
    def count(self, *, cmocka="run", more="", broken=0):
        (self.folder / "tests.xml").write_text(REPORT.format(cmocka=cmocka, more=more))
        result = subprocess.run(["python3", SCRIPTS / "count_tests.py", "--broken", str(broken), "tests.xml"],
                                cwd=self.folder, capture_output=True, text=True, check=False)
        return result.returncode, result.stdout.splitlines()[-1]

    def test_sums_cases(self):
        self.assertEqual(self.count(), (0, "11 passed, 0 failed"))

    def test_failed_cases(self):
        self.assertEqual(self.count(cmocka="fail", more="[  FAILED  ] 2 test(s), listed below:"),
                         (1, "11 passed, 2 failed"))

    def test_a_program_that_crashed_is_a_failure(self):
        self.assertEqual(self.count(cmocka="fail"), (1, "11 passed, 1 failed"))

    def test_a_build_that_failed_is_a_failure(self):
        self.assertEqual(self.count(broken=1), (1, "11 passed, 1 failed"))


class Kernels(Case):
    """The compiler's reports about kernels, as cmake/keep_ptxas.sh stores them."""

    PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4moveIfLi4EEvPKT_l' for 'sm_90'
ptxas info    : Function properties for _Z4moveIfLi4EEvPKT_l
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used 46 registers, used 1 barriers, 256 bytes smem, 664 bytes cmem[0]
ptxas info    : Compiling entry function '_Z3addPf' for 'sm_80'
ptxas info    : Function properties for _Z3addPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""

    def kernels(self, name="move.cu.o", stack=0, stores=0, loads=0):
        (self.folder / name).touch()
        (self.folder / f"{name}.ptxas").write_text(self.PTXAS.format(stack=stack, stores=stores, loads=loads))
        return subprocess.run([SCRIPTS / "kernels.py", self.folder], capture_output=True, text=True, check=False)

    def test_lists_each_by_architecture(self):
        result = self.kernels()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        rows = [line.split(maxsplit=6) for line in result.stdout.splitlines()]
        self.assertEqual(rows[1][:6], ["sm_80", "8", "0", "0", "0", "move.cu"])
        self.assertEqual(rows[2][:6], ["sm_90", "46", "256", "0", "0", "move.cu"])
        self.assertEqual(result.stdout.splitlines()[-1], "2 kernels, 0 of them spill")

    def test_a_spill_is_a_failure(self):
        for stores, loads in ((4, 0), (0, 4)):
            result = self.kernels(stack=16, stores=stores, loads=loads)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, r"^kernels: move\.cu: .*move.* spills on sm_90\n$")
        self.assertEqual(self.kernels(stack=16).returncode, 0)

    def test_kernels_of_missing_objects_do_not_count(self):
        (self.folder / "gone.cu.o.ptxas").write_text(self.PTXAS.format(stack=8, stores=8, loads=8))
        self.assertEqual(self.kernels().returncode, 0)
        (self.folder / "move.cu.o").unlink()
        result = subprocess.run([SCRIPTS / "kernels.py", self.folder], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("was backend/cuda built there?", result.stderr)


class ScalingModel(Case):
    """scripts/bench/scaling_model.py: the predicted time of a step on many GPUs."""

    def table(self, *argv):
        result = subprocess.run([SCRIPTS / "bench/scaling_model.py", *argv], capture_output=True, text=True, check=True)
        return result.stdout

    def row(self, *argv):
        """Returns the cells of the row for one model, one number of GPUs and shard none, from the computing time to the
        last."""
        line = self.table("--model", "m", "1e8", "1e5", "1e6", *argv).splitlines()[2]
        return [float(cell) for cell in line.split("|")[5:11]]

    def test_the_page_contains_the_scripts_output(self):
        page = (SCRIPTS.parent / "docs/guide/scaling.md").read_text()
        self.assertIn(self.table(), page)
        self.assertIn(self.table("--weak", "65536"), page)

    def test_one_gpu_waits_for_no_other(self):
        computed, sums, exposed, votes, _, step = self.row("--gpus", "1", "--checkpoint-steps", "1e12")
        self.assertEqual((sums, exposed, votes, step), (0, 0, 0, computed))

    def test_two_gpus_by_hand(self):
        # 16 buckets of 25e6 bytes: each takes 2 (1/2) 25e6 / 360e9 s and 8.4 + 2 * 3.4 us by a ring with protocol
        # Simple
        computed, sums, exposed, votes, _, _ = self.row("--gpus", "2")
        bucket = 2 / 2 * 25e6 / 360e9 + 15.2e-6
        self.assertEqual(computed, 5000)
        self.assertAlmostEqual(sums, 1e3 * 16 * bucket, delta=0.01)
        self.assertAlmostEqual(exposed, 1e3 * bucket, delta=0.01)  # the last bucket's time
        self.assertAlmostEqual(votes, 2 * 11e-3, delta=0.01)

    def test_a_slower_network_is_never_quicker(self):
        for gpus in ("16", "512"):
            steps = [self.row("--gpus", gpus, "--nic-gb-s", speed)[5] for speed in ("1", "10", "50")]
            self.assertEqual(steps, sorted(steps, reverse=True))


if __name__ == "__main__":
    main()
