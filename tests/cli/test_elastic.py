"""Tests policy=elastic: a run returns device memory while other runs wait for it, takes it back when it is free, and
the results of no run change. The device is a share of the host with a limit; the tests wait for events, not for
times."""

import shutil

from elastic_runs import ELASTIC, WAIT, ElasticCase, device_of
from support import main

# Peaks for micro-batches of 16, 32, 64 and 128 samples: 1.0, 1.4, 2.2 and 3.7 MiB; with recompute, 0.95 MiB for 16.
CNN = ["model=cnn", "model.width=16", "dataset=synthetic", "dataset.shape=[1,12,12]", "dataset.train_count=1024",
       "dataset.test_count=64", "backend.threads=1", "memory.timing=false", "backend=cpu"]
# With batch norm: 0.9, 1.4, 2.3 and 4.1 MiB.
NORM = ["model=lightcnn", *CNN[2:]]
ENDLESS = ["training.batch_size=128", "training.epochs=1000000", "training.eval_every_steps=100",
           "training.checkpoint_every_steps=20", "training.keep_checkpoints=1000000"]


class Elastic(ElasticCase):
    def assert_replayed(self, run):
        """Asserts that the policy makes the same decisions at the same steps in the scenario recorded from the run."""
        self.brim("simulate", "--record", run, "-o", f"{run}.yaml")
        simulation, = self.brim("simulate", f"scenario={run}.yaml", *ELASTIC[:-1], "training.steps=100000",
                                "--json").json["simulations"]
        self.assertEqual([(e["step"], e["choice"], e["reason"]) for e in simulation["timeline"]
                          if e["by"] == "policy.elastic"], self.decisions(run))

    def two_jobs(self, words, mebibytes, batch):
        """The first job holds memory that the second needs, returns it when the second comes, and takes it back when
        the second has gone. Returns the amount returned, the reason, and the reason of the last decision to take it
        back."""
        first = self.begin("first", *words, *device_of(mebibytes), *ELASTIC, *ENDLESS)
        second = self.start("train", "run.dir=second", *words, *device_of(mebibytes), *WAIT,
                            f"training.batch_size={batch}", "training.epochs=3")
        waited = self.finish(second, 0)
        self.assertIn("waiting: 1st in line", waited.err)
        step = self.until_taken("first", first)
        result = self.end(first)
        self.train("second-alone", *words, f"training.batch_size={batch}", "training.epochs=3")
        self.assert_same_checkpoint("second", "second-alone", self.steps("second")[-1])
        self.assert_same_records("second", "second-alone")
        self.assert_as_alone("first", step, *words, *ENDLESS)
        decisions = self.decisions("first")
        for _, choice, reason in decisions:
            self.assertIn(f"policy.elastic: {choice}: {reason}\n", result.err)
        self.assertTrue(all(choice.endswith("taken again") for _, choice, _ in decisions[1:]), decisions)
        return decisions[0][1], decisions[0][2], decisions[-1][2]

    def test_the_second_gets_the_memory_it_needs_and_the_first_takes_it_back(self):
        given, why, taken = self.two_jobs(CNN, 4, 64)
        self.assertEqual((given, why), ("2.4 MiB given back", "micro-batch 128 -> 32, as a run waits for cpu:0"))
        self.assertRegex(taken, "-> 128, as no run waits for cpu:0$")
        self.assertEqual(self.summary("first")["retries"], 0)
        self.assertEqual(self.summary("first")["planned_peak_bytes"], self.json("first", "plan.json")["peak_bytes"])
        self.assert_replayed("first")

    def test_groups_of_batch_norm_are_not_cut(self):
        _, given, taken = self.two_jobs(NORM, 5, 32)
        self.assertEqual(given, "micro-batch 128 -> 64, as a run waits for cpu:0")
        self.assertRegex(taken, "-> 128, as no run waits for cpu:0$")

    def test_without_smaller_micro_batches_more_is_recomputed(self):
        _, given, taken = self.two_jobs([*NORM, "min_batch_size=128"], 5, 16)
        self.assertEqual(given, "micro-batch 128 -> 128 with recompute, as a run waits for cpu:0")
        self.assertEqual(taken, "micro-batch 128 -> 128, as no run waits for cpu:0")

    def test_a_run_with_recompute_returns_to_its_configured_recompute(self):
        """The configured plan has some recompute: it takes 3.0 of 4 MiB; without recompute it would take 4.1. The run
        returns memory by a smaller micro-batch, or by more recompute if no smaller one is allowed, and takes the same
        amount back."""
        auto = [*NORM, "memory.recompute=auto"]
        for name, words, batch, bytes_given in (("cut", auto, 64, "741.5 KiB"),
                                                ("uncut", [*auto, "min_batch_size=128"], 128, "297.0 KiB")):
            with self.subTest(name):
                given, why, taken = self.two_jobs(words, 4, 24)
                self.assertEqual(given, f"{bytes_given} given back")
                self.assertEqual(why, f"micro-batch 128 -> {batch} with recompute, as a run waits for cpu:0")
                self.assertRegex(taken, "-> 128.*, as no run waits for cpu:0$")
            for run in ("first", "first-alone", "second", "second-alone"):
                shutil.rmtree(self.folder / run, ignore_errors=True)

    def test_memory_that_would_not_help_is_not_returned(self):
        """The log explains once for each waiting job why the run keeps its plan."""
        first = self.begin("first", *CNN, *device_of(4), *ELASTIC, *ENDLESS, "policy.elastic.floor_percent=80")
        for count, batch in ((1, 64), (2, 32)):
            second = self.start("train", "run.dir=second", *CNN, *device_of(4), *WAIT, f"training.batch_size={batch}")
            self.until_decided("first", count, first)
            second.kill()
            self.finish(second)
        self.end(first)
        (_, *one), (_, *other) = self.decisions("first")
        self.assertEqual((one[0], other[0]), ("keeps its plan", "keeps its plan"))
        self.assertRegex(one[1], r"^a run waits for 2\.2 MiB of cpu:0, which has \S+ KiB free, but this run needs at "
                                 r"least 3\.0 MiB$")
        self.assertRegex(other[1], r"^a run waits for 1\.4 MiB of cpu:0")

    def test_a_larger_job_second_in_line_gets_only_the_returned_memory(self):
        """The larger job could use the whole device, but the run that returns memory keeps the rest."""
        first = self.begin("first", *CNN, *device_of(4), *ELASTIC, *ENDLESS)
        second = self.start("train", "run.dir=second", *CNN, *device_of(4), *WAIT, *ENDLESS[1:],
                            "training.batch_size=64")
        self.until(lambda: self.steps("second"), first, second)
        large = self.start("train", "run.dir=large", *CNN, *device_of(4), *WAIT, "training.batch_size=128")
        self.until_said("waiting: ", large)  # otherwise the queue might be empty once the second job has gone
        self.end(second)
        self.until_decided("first", 2, first)
        choice, reason = self.decisions("first")[-1][1:]
        self.assertEqual(choice, "keeps its plan")
        # brim may ask the policy while it still plans the second run. Then no recompute would be enough, and the policy
        # counts none.
        self.assertRegex(reason, r"^a run waits for 3\.7 MiB of cpu:0, .* needs at least \S+ [KM]iB$")
        self.assertFalse((self.folder / "large").exists())
        self.end(first)
        self.finish(large, 0)

    def test_a_reserve_stays_free_for_processes_that_do_not_wait(self):
        first = self.begin("first", *CNN, *device_of(5), *ELASTIC, *ENDLESS, "policy.elastic.reserve_mb=1")
        second = self.begin("second", *CNN, *device_of(5), *ENDLESS[1:], "training.batch_size=16")
        self.until_decided("first", 1, first)
        self.end(second)
        self.until_decided("first", 2, first)
        self.end(first)
        (_, given, why), (_, taken, _) = self.decisions("first")
        self.assertRegex(why, r"^micro-batch 128 -> 64, as cpu:0 has \S+ KiB free, and 1\.0 MiB should be$")
        self.assertEqual((given, taken), ("1.6 MiB given back", "1.6 MiB taken again"))

    def test_a_queue_that_cannot_be_read_ends_no_run(self):
        first = self.begin("first", *CNN, *device_of(4), *ELASTIC, *ENDLESS)
        (self.folder / "claims").rename(self.folder / "gone")
        (self.folder / "claims").write_text("")
        self.until_said("cannot find out whether other runs wait for memory: ", first)
        step = self.steps("first")[-1]
        self.until(lambda: self.steps("first")[-1] > step, first)
        self.assertNotIn("cannot find out", self.end(first).err)

    def test_a_run_that_returned_memory_can_be_resumed(self):
        first = self.begin("first", *CNN, *device_of(4), *ELASTIC, *ENDLESS)
        second = self.start("train", "run.dir=second", *CNN, *device_of(4), *WAIT, *ENDLESS[1:],
                            "training.batch_size=64")
        self.until_decided("first", 1, first)
        first.kill()
        self.finish(first)
        self.end(second)
        resumed = self.start("train", "--resume", "first")
        step = self.steps("first")[-1]
        self.until(lambda: self.steps("first")[-1] > step, resumed)
        step = self.steps("first")[-1]
        self.end(resumed)
        self.assert_as_alone("first", step, *CNN, *ENDLESS)


if __name__ == "__main__":
    main()
