"""Tests comm/mpi over two hosts, and the end of a job whose network is cut."""

from hosts import TwoHosts, main
from jobs import RANKS

SECONDS = 4 # timeout for other ranks


class Ranks(TwoHosts):
    """Ranks of the program dist_ranks."""

    def over(self, counts, *words, env=None):
        return super().over(counts, RANKS, "mpi", *words, env=env)

    def test_exchanges_and_sums_have_the_same_bits_as_on_one_host(self):
        self.assertEqual(self.over((1, 2), "talk", 1000).finish()[0], 0)
        job = self.over((2, 1), "sums")
        status, out, err = job.finish()
        self.assertEqual(status, 0, err)
        self.assertEqual(out, self.ranks(3, "sums")[0])
        self.assert_nothing_left(job)

    def test_a_rank_that_is_killed_on_the_other_host_takes_the_job_with_it(self):
        for lost in (0, 2):
            with self.subTest(lost):
                job = self.over((2, 2), "die", lost)
                self.assertNotEqual(job.finish()[0], 0)
                self.assert_nothing_left(job)

    def test_a_cut_cable_ends_the_job_on_both_hosts(self):
        job = self.over((2, 2), "idle", 600, env={"SECONDS_TO_WAIT": str(SECONDS)})
        self.assertEqual(job.process.stdout.readline(), "begun\n")
        self.assertEqual({self.hosts.where(process) for process in job.processes()}, {0, 1})
        self.hosts.cut()
        self.assert_nothing_left(job)  # otherwise TCP would give up only after a quarter of an hour
        status, _, err = job.finish()
        self.assertNotEqual(status, 0)
        self.assertRegex(err, r"rank 0 after [0-9.]+ s: .*; late: [23]\n")


if __name__ == "__main__":
    main()
