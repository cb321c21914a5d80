"""Tests comm/mpi on one host: exchanges, sums, and the end of a job whose ranks are lost."""

import os
import re
import signal
import subprocess
import time
import unittest

from jobs import RANKS, Case, Job

FULL = os.environ.get("BRIM_TEST_TIER", "full") == "full"
SECONDS = 2  # timeout for a rank that does not come


class Mpi(Case):
    def test_brim_has_the_communicator(self):
        out = subprocess.run([os.environ["BRIM_BINARY"], "plugins", "comm"], check=True, capture_output=True,
                             text=True).stdout
        self.assertRegex(out, r"comm/mpi .*mpirun")

    def test_the_program_itself_needs_no_mpi(self):
        libraries = subprocess.run(["ldd", os.environ["BRIM_BINARY"]], check=True, capture_output=True,
                                   text=True).stdout
        self.assertNotIn("libmpi", libraries)

    def test_thousands_of_exchanges_of_many_sizes(self):
        for count in (1, 2, 3, 4):
            with self.subTest(count):
                self.ranks(count, "talk", 10000 if FULL else 2000)

    def test_sums_are_in_the_order_of_the_ranks_and_have_the_same_bits_in_every_run(self):
        for count in (1, 2, 3, 4, 5) if FULL else (2, 3):
            with self.subTest(count):
                self.assertEqual(*[self.ranks(count, "sums")[0] for _ in range(2)])

    def test_joining_leaves_signals_as_they_are(self):
        self.ranks(2, "signals")

    def test_a_rank_that_comes_late_but_in_time_is_waited_for(self):
        for late in (0, 1, 2):
            with self.subTest(late):
                self.ranks(3, "wait", late, 1, env={"SECONDS_TO_WAIT": "60"})

    def assert_named(self, err, lost):
        """Asserts that one rank reports, and names the lost one."""
        said = re.findall(r"^rank (\d) after ([0-9.]+) s: .*; late: (-?\d)$", err, re.MULTILINE)
        self.assertEqual([late for _, _, late in said], [str(lost)], err)
        self.assertEqual(said[0][0], "1" if lost == 0 else "0", err)

    def test_a_rank_that_stands_still_is_named_once_and_the_job_ends(self):
        for lost in range(4):
            with self.subTest(lost):
                _, err = self.ranks(4, "lose", lost, SECONDS, status=5)
                self.assert_named(err, lost)

    def test_the_same_while_sums_are_under_way(self):
        for lost in (0, 2):
            with self.subTest(lost):
                _, err = self.ranks(3, "lose_sums", lost, SECONDS, status=5)
                self.assert_named(err, lost)

    def test_a_rank_is_named_though_rank_0_is_later_than_others_would_have_waited(self):
        _, err = self.ranks(3, "lose_late", 1, SECONDS, status=5)
        self.assert_named(err, 1)

    def test_a_job_that_was_stopped_and_continued_blames_no_rank(self):
        job = self.job(3, RANKS, "mpi", "idle", 2 * SECONDS, env={"SECONDS_TO_WAIT": str(SECONDS)})
        self.assertEqual(job.process.stdout.readline(), "begun\n")
        ranks = [process for process in job.processes() if process != job.process.pid]
        for process in ranks:
            os.kill(process, signal.SIGSTOP)
        time.sleep(1.5 * SECONDS)
        for process in ranks:
            os.kill(process, signal.SIGCONT)
        status, _, err = job.finish()
        self.assertEqual(status, 0, err)

    def test_a_rank_that_is_killed_takes_the_job_with_it(self):
        for lost in (0, 1, 2):
            with self.subTest(lost):
                self.ranks(3, "die", lost, status=None)

    def test_any_rank_ends_all_wherever_they_are(self):
        for rank in (0, 3):
            with self.subTest(rank):
                self.ranks(4, "end", rank, status=5)

    def test_srun_without_pmi_gets_advice(self):
        job = Job(self.folder, [RANKS, "mpi", "talk", "1"], {"SLURM_STEP_NUM_TASKS": "4"})
        self.addCleanup(job.kill)
        status, _, err = job.finish()
        self.assertEqual(status, 5, err)
        self.assertIn("Slurm has started 4 processes", err)
        self.assertIn("srun --mpi=pmix", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
