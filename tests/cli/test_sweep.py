"""Tests brim train -m: every combination runs in a process of its own, whatever happens to the others."""

import os
import signal
import subprocess
import time

from support import BINARY, DONE, FAILED, INTERRUPTED, NO_FIT, SMALL, USAGE, Case, main, plain

QUICK = [*SMALL, "training.epochs=1"]
RARELY = ["training.eval_every_steps=100000000", "training.checkpoint_every_steps=100000000"]
# A run longer than any test.
LONG = [*SMALL, "training.steps=200000000", *RARELY]
# Jobs with hidden layers of [8] or so take a moment; [1000,1000] takes many seconds, and [65536,65536] is over the
# limit.
MIXED = [*SMALL[:1], *SMALL[2:], "training.epochs=400", "memory.limit_mb=200", "observe.log_every_steps=1000000",
         *RARELY]


def table_of(result):
    """Returns the lines of the table, between the jobs' output and the last line."""
    lines = result.out.splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.startswith("job ")):-1]


class Sweep(Case):
    def sweep(self, *words, status=DONE, **options):
        return self.brim("train", "-m", "run.dir=sweep", *words, status=status, **options)

    def jobs(self):
        return self.json("sweep", "sweep.json")["jobs"]

    def states(self):
        return [job["status"] for job in self.jobs()]

    def wait_for_job(self, job, folder="sweep"):
        """Waits until the job trains; returns its process number."""
        events = self.folder / folder / str(job) / "events.jsonl"
        self.until(lambda: events.exists() and "started" in events.read_text(), what=f"job {job}'s start")
        return int(self.read(folder, str(job), ".lock"))


class Jobs(Sweep):
    def test_the_product_with_the_last_key_fastest(self):
        result = self.sweep(*QUICK, "optimizer.lr=1e-3,1e-2", "seed=range(3)")
        swept = [job["overrides"][-2:] for job in self.jobs()]
        self.assertEqual(swept,
                         [[f"optimizer.lr={lr}", f"seed={seed}"] for lr in ("1e-3", "1e-2") for seed in range(3)])
        for number, job in enumerate(self.jobs()):
            self.assertEqual((job["job"], job["run"], job["status"]), (number, f"sweep/{number}", "finished"))
            config = self.read("sweep", str(number), "config.yaml")
            self.assertIn(f"lr: {job['overrides'][-2].split('=')[1]}\n", config)
            self.assertIn(f"seed: {number % 3}\n", config)
            self.assertEqual(job["test_accuracy"], self.summary(f"sweep/{number}")["test_accuracy"])
        table = table_of(result)
        self.assertEqual(table[0].split()[:4], ["job", "optimizer.lr", "seed", "status"])
        self.assertEqual([line.split()[:4] for line in table[1:]],
                         [[str(i), lr, str(i % 3), "finished"] for i, lr in enumerate(["1e-3"] * 3 + ["1e-2"] * 3)])
        self.assertIn("6 finished", result.out)

    @plain
    def test_a_job_equals_the_run_of_its_arguments_alone(self):
        self.sweep(*QUICK, "optimizer.lr=1e-3,1e-2")
        self.train("alone", *QUICK, "optimizer.lr=1e-2")
        self.assert_same_checkpoint("alone", "sweep/1", 2)

    @plain
    def test_the_option_is_accepted_anywhere(self):
        for number, words in enumerate((["-m", *QUICK, "seed=1,2"], [*QUICK, "-m", "seed=1,2"],
                                        [*QUICK, "seed=1,2", "--multirun"])):
            self.brim("train", f"run.dir=s{number}", *words)
            self.assertEqual(self.summary(f"s{number}/1")["status"], "finished")

    @plain
    def test_a_group_goes_over_its_options(self):
        self.sweep(*QUICK, "schedule=glob(*)")
        names = [job["overrides"][-1] for job in self.jobs()]
        self.assertIn("schedule=cosine", names)
        self.assertEqual(names, sorted(names))

    @plain
    def test_one_job_is_a_sweep_too(self):
        self.sweep(*QUICK)
        self.assertEqual(self.states(), ["finished"])

    @plain
    def test_a_sweep_has_a_folder_with_the_date_unless_it_is_named(self):
        self.brim("train", "-m", *QUICK, "seed=1,2")
        folders = list((self.folder / "multirun").iterdir())
        self.assertEqual(len(folders), 1)
        self.assertRegex(folders[0].name, r"^\d{8}-\d{6}$")
        self.assertEqual(sorted(path.name for path in folders[0].iterdir()), ["0", "1", "sweep.json"])

    @plain
    def test_a_folder_with_odd_characters(self):
        self.brim("train", "-m", *QUICK, "run.dir=\"a, 'b' [c\"", "seed=1,2")
        self.assertEqual(self.summary("a, 'b' [c/1")["status"], "finished")

    def test_from_a_run(self):
        self.train("first", *QUICK)
        self.brim("train", "--from", "first", "-m", "seed=5,6", "run.dir=sweep")
        self.assertIn("seed: 6\n", self.read("sweep", "1", "config.yaml"))
        self.assertIn("hidden: [16]", self.read("sweep", "1", "config.yaml"))

    @plain
    def test_global_options_reach_the_jobs(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine" / "small.yaml").write_text(
            "defaults: [{model: mlp}, {dataset: synthetic}, {optimizer: sgd}, {schedule: constant}, "
            "{loss: cross_entropy}, {backend: reference}, _self_]\n"
            "dataset: {shape: [1, 4, 4], train_count: 32, test_count: 16}\ntraining: {epochs: 1, batch_size: 16}\n")
        result = self.brim("--quiet", "--config-path", "mine", "--config-name", "small", "train", "-m", "seed=1,2",
                           "run.dir=sweep")
        self.assertEqual(result.err, "")
        self.assertIn("id: sgd", self.read("sweep", "1", "config.yaml"))


class Failures(Sweep):
    def test_one_failing_and_one_killed_of_six(self):
        process = self.start("train", "-m", "run.dir=sweep", *MIXED,
                             "model.hidden=[8],[65536,65536],[16],[1000,1000],[24],[]")
        os.kill(self.wait_for_job(3), signal.SIGKILL)
        result = self.finish(process, FAILED)
        self.assertEqual(self.states(), ["finished", "failed", "finished", "killed", "finished", "finished"], result)
        jobs = self.jobs()
        self.assertEqual((jobs[1]["exit_status"], jobs[3]["exit_status"], jobs[3]["signal"]), (NO_FIT, None, "SIGKILL"))
        self.assertIn("error: job 1 failed with exit status 4: model.hidden=[65536,65536]", result.err)
        self.assertIn("error: job 3 was killed by SIGKILL (Killed): model.hidden=[1000,1000]", result.err)
        # The error appears at once, before the output of the next job.
        self.assertLess(result.err.index("error: job 3"), result.err.index("job 4: "))
        rows = table_of(result)
        self.assertEqual(len(rows), 7)
        self.assertRegex(rows[2], r"^ *1 +\[65536,65536\] +failed \(4\) ")
        self.assertRegex(rows[4], r"^ *3 +\[1000,1000\] +killed \(SIGKILL\) ")
        self.assertIn("4 finished, 1 failed, 1 killed", result.out)

    @plain
    def test_failures_of_one_kind_give_their_own_status(self):
        self.sweep(*QUICK, "memory.limit_mb=200", "model.hidden=[8],[65536,65536]", status=NO_FIT)

    @plain
    def test_a_wrong_value_is_reported_before_the_first_job_and_the_others_run(self):
        result = self.sweep(*QUICK, "optimizer.lr=1e-3,-1,1e-2", status=USAGE)
        self.assertEqual(self.states(), ["finished", "failed", "finished"])
        self.assertLess(result.err.index("error: job 1 failed"), result.err.index("job 0: "))
        self.assert_error(result, "'optimizer.lr' must be in [0,inf), got -1", "argument 13: optimizer.lr=-1")

    @plain
    def test_if_every_job_is_wrong_nothing_starts(self):
        result = self.sweep(*QUICK, "optimizer.learning_rat=1,2", status=USAGE)
        self.assert_error(result, "unknown key 'optimizer.learning_rat'", "did you mean 'optimizer.lr'?")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_fail_fast_ends_at_the_first_failure(self):
        result = self.sweep("--fail-fast", *QUICK, "memory.limit_mb=200", "model.hidden=[8],[65536,65536],[16]",
                            status=NO_FIT)
        self.assertEqual(self.states(), ["finished", "failed", "not started"])
        self.assertIn("left: job 2: model.hidden=[16]", result.err)
        self.assertFalse((self.folder / "sweep" / "2").exists())

    @plain
    def test_fail_fast_starts_nothing_with_a_wrong_value(self):
        self.sweep("--fail-fast", *QUICK, "optimizer.lr=1e-3,-1", status=USAGE)
        self.assertEqual(self.states(), ["not started", "failed"])

    @plain
    def test_a_folder_with_a_sweep_is_not_written_over(self):
        self.sweep(*QUICK, "seed=1,2")
        before = self.tree("sweep")
        self.assert_error(self.sweep(*QUICK, "seed=3,4", status=USAGE), "'sweep' holds a sweep already")
        self.assertEqual(self.tree("sweep"), before)

    @plain
    def test_how_a_job_ended_is_known_where_children_are_ignored(self):
        process = self.start("train", "-m", "run.dir=sweep", *QUICK, "memory.limit_mb=200",
                             "model.hidden=[65536,65536],[8]", ignoring=signal.SIGCHLD)
        self.finish(process, NO_FIT)
        self.assertEqual(self.states(), ["failed", "finished"])

    def test_messages(self):
        for words, message in ((["seed=1,2"], "error: 'seed=1,2' is a sweep: add -m, or write seed=[1,2] for a list"),
                               (["--fail-fast"], "--fail-fast ends a sweep at its first failure: add -m"),
                               (["-m", "--resume", "x"],
                                "--resume continues one run and --multirun starts several"),
                               (["-m", "seed=1,"], "a value between the commas is missing"),
                               (["-m", "seed=range(200)", "training.epochs=range(1,200)"],
                                "the sweep has 200 x 199 jobs; at most 10000 are allowed"),
                               (["-m", "run.dir=a,b"], "'run.dir' cannot be swept"),
                               (["-m", "seed=1,2", "seed=5"],
                                "'seed=5' overrides the sweep 'seed=1,2': leave out one of them"),
                               (["-m", "seed=1,2", "+seed=3,4"], "'+seed=3,4' overrides the sweep 'seed=1,2'"),
                               (["-m", "seed=1,2", "~seed"], "'~seed' overrides the sweep 'seed=1,2'"),
                               (["-m", "model=glob(x*)"], "no option of group 'model' matches glob(x*)")):
            self.assert_error(self.brim("train", *QUICK, *words, status=USAGE), message)


class Interruptions(Sweep):
    WORDS = ["train", "-m", "run.dir=sweep", *LONG, "seed=range(3)"]

    def assert_interrupted(self, result):
        self.assertEqual(self.states(), ["interrupted", "not started", "not started"], result)
        self.assertEqual(self.summary("sweep/0")["status"], "interrupted")
        self.assertEqual(len(self.steps("sweep/0")), 1, "a checkpoint was written")
        self.assertIn("resume job 0 with: brim train --resume sweep/0", result.err)
        self.assertIn("left: job 1: seed=1", result.err)
        self.assertIn("left: job 2: seed=2", result.err)
        self.assertEqual(self.json("sweep", "sweep.json")["exit_status"], INTERRUPTED)

    def test_a_signal_to_the_sweep_stops_the_job_with_a_checkpoint(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start(*self.WORDS)
            self.wait_for_job(0)
            process.send_signal(number)
            self.assert_interrupted(self.finish(process, INTERRUPTED))
            (self.folder / "sweep").rename(self.folder / f"done{number}")

    def assert_counts_once(self, send):
        """Asserts that a job that gets a signal directly and through the sweep writes a checkpoint. If the machine runs
        one of the two processes 0.3 s later than the other, the signals count as two: one success is enough."""
        for attempt in range(20):
            process = subprocess.Popen([BINARY, *self.WORDS], cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
            self.addCleanup(self._end, process)
            self.wait_for_job(0)
            send(process)
            result = self.finish(process, INTERRUPTED)
            if "ended at once" not in result.err:
                break
            (self.folder / "sweep").rename(self.folder / f"sweep{attempt}")
        self.assert_interrupted(result)

    @plain
    def test_ctrl_c_on_a_terminal_reaches_the_whole_group(self):
        self.assert_counts_once(lambda process: os.killpg(process.pid, signal.SIGINT))

    @plain
    def test_a_signal_to_the_process_and_its_group_counts_once(self):
        """timeout(1) signals both. If that counted as two signals, the job would end without a checkpoint."""
        def send(process):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.01)
            os.killpg(process.pid, signal.SIGTERM)
        self.assert_counts_once(send)

    def test_a_second_signal_ends_the_job_at_once(self):
        # A step takes half a minute of processor time, so no step ends after the first signal and no checkpoint is
        # written; starting takes a fraction of a second.
        process = self.start("train", "-m", "run.dir=sweep", *SMALL[:1], *SMALL[2:], "model.hidden=[1000,1000]",
                             "dataset.train_count=1000000", "training.gradient_accumulation_steps=7000",
                             "training.steps=1000", "seed=range(3)")
        job = self.wait_for_job(0)
        self.until(lambda: self.processor_seconds(job) > 3, process, what="the first step")
        process.send_signal(signal.SIGINT)
        self.assertTrue(any("finishing the step" in line for line in process.stderr))
        time.sleep(0.6)  # so that the next signal counts as a separate one
        self.assertIsNone(process.poll(), "the first one waits for the end of the step")
        process.send_signal(signal.SIGINT)
        result = self.finish(process, INTERRUPTED)
        self.assertEqual(self.states(), ["interrupted", "not started", "not started"], result)
        self.assertEqual(self.jobs()[0]["signal"], "SIGINT")
        self.assertEqual(self.steps("sweep/0"), [])
        self.assertIn("left: job 0: seed=0", result.err)
        self.assertIn("3 of 3 jobs are left", result.err)

    @plain
    def test_suspending_the_sweep_suspends_the_job(self):
        process = self.start(*self.WORDS)
        job = self.wait_for_job(0)
        process.send_signal(signal.SIGTSTP)
        self.wait_for_state(process.pid, "T")
        self.wait_for_state(job, "T")
        process.send_signal(signal.SIGCONT)
        self.wait_for_state(job, "RSD")
        process.send_signal(signal.SIGINT)
        self.assert_interrupted(self.finish(process, INTERRUPTED))

    def processor_seconds(self, pid):
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            user, system = file.read().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def wait_for_state(self, pid, states):
        def state():
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
        self.until(lambda: state() in states, what=f"state {states} of process {pid}")

    def test_a_job_that_dies_before_its_checkpoint_is_left(self):
        process = self.start(*self.WORDS)
        job = self.wait_for_job(0)
        os.kill(job, signal.SIGSTOP)  # so that it cannot react
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        os.kill(job, signal.SIGKILL)
        result = self.finish(process, INTERRUPTED)
        self.assertEqual(self.states(), ["interrupted", "not started", "not started"], result)
        self.assertIn("left: job 0: seed=0", result.err)
        self.assertIn("3 of 3 jobs are left", result.err)
        self.assertNotIn("--resume", result.err)

    @plain
    def test_a_job_writes_its_checkpoint_when_the_sweep_is_killed(self):
        process = self.start(*self.WORDS)
        self.wait_for_job(0)
        process.kill()
        process.wait()
        self.until((self.folder / "sweep" / "0" / "summary.json").exists)
        self.assertEqual(self.summary("sweep/0")["status"], "interrupted")
        self.assertEqual(len(self.steps("sweep/0")), 1)

    @plain
    def test_a_job_that_is_stopped_alone_does_not_stop_the_sweep(self):
        process = self.start("train", "-m", "run.dir=sweep", *MIXED,
                             "model.hidden=[1000,1000],[8]")
        os.kill(self.wait_for_job(0), signal.SIGTERM)
        self.finish(process, INTERRUPTED)
        self.assertEqual(self.states(), ["interrupted", "finished"])


if __name__ == "__main__":
    main()
