"""Tests waiting for a device: brim serves jobs in the order in which they came, even if waiting processes die."""

import os
import signal
import time

from support import INTERRUPTED, NO_FIT, Case, main

# 535 KiB of memory, 485 KiB with micro-batches of 32, and a few tenths of a second of work
JOB = ["model=mlp", "model.hidden=[64]", "dataset=synthetic", "dataset.shape=[1,16,16]", "dataset.train_count=2048",
       "dataset.test_count=64", "training.batch_size=64", "training.epochs=3", "backend=cpu", "backend.threads=1"]
WAIT = ["wait_for_gpu=true", "gpu_check_interval_seconds=0.05"]
ROUNDS = int(os.environ.get("ROUNDS", "3"))


def devices_of(mebibytes, count=2):
    return [f"backend.devices={count}", f"backend.memory_mb={mebibytes}"]


class Queue(Case):
    def look(self, *words):
        found = self.brim("devices", "--json", "backend=cpu", *words_of_devices(words)).json
        return [device for device in found["devices"] if device["backend"] == "cpu"], found["queue"]

    def job(self, run, *words):
        return self.start("train", f"run.dir={run}", *JOB, *words)

    def hold(self, run, *words, env=None):
        return super().hold(run, *JOB, *words, env=env)

    def queue_up(self, run, place, *words):
        """Starts a job, and waits until it has the given place in the queue."""
        process = self.job(run, *words)
        self.until(lambda: len(self.look(*words)[1]) >= place, process)
        return process

    def test_eight_jobs_on_two_devices_that_hold_two_each_are_served_in_order_of_arrival(self):
        two = [*devices_of(1), "training.batch_size=32"]
        for turn in range(ROUNDS):
            with self.subTest(turn):
                self.eight(f"turn{turn}", two)

    def eight(self, prefix, two):
        """Starts four jobs that keep their places until they are ended, then four that wait, and kills one of each."""
        jobs = [self.hold(f"{prefix}-{i}", *two, *WAIT) for i in range(4)]
        jobs += [self.queue_up(f"{prefix}-{i}", i - 3, *two, *WAIT, "training.epochs=3") for i in range(4, 8)]
        waiting = [ticket["pid"] for ticket in self.look(*two)[1] if ticket["claimed"] is None]
        self.assertEqual(waiting, [job.pid for job in jobs[4:]])
        for job in jobs[0], jobs[7]:
            job.kill()
        for job in jobs[1:4]:
            job.send_signal(signal.SIGTERM)
        before = []
        while any(job.poll() is None for job in jobs):
            devices, queue = self.look(*two)
            for device in devices:
                used = sum(user["bytes"] for user in device["users"])
                self.assertLessEqual(used, device["total_bytes"])
            # If a job has left the queue or claimed a device, no job before it is still waiting.
            line = [ticket["pid"] for ticket in queue if ticket["claimed"] is None]
            served = [place for place, pid in enumerate(before) if pid not in line and pid != jobs[7].pid]
            if served:
                self.assertFalse(set(before[:max(served)]) & set(line), (before, line))
            before = line
            time.sleep(0.01)
        for job, status in zip(jobs, [None, *[INTERRUPTED] * 3, 0, 0, 0, None]):
            self.finish(job, status)
        for i in range(7):
            self.assertTrue(self.has_begun(f"{prefix}-{i}"), i)
        devices, queue = self.look(*two)
        self.assertEqual(queue, [])
        self.assertEqual([device["users"] for device in devices], [[], []])

    def test_a_waiting_job_reports_its_place_in_the_queue(self):
        two = devices_of(1, 1)
        holder = self.hold("one", *two)
        started = time.time()
        process = self.queue_up("two", 1, *two, *WAIT)
        _, queue = self.look(*two)
        self.assertEqual([(t["pid"], t["wish"], t["claimed"], t["backend"]) for t in queue],
                         [(process.pid, "any", None, "cpu")])
        self.assertEqual(queue[0]["need_bytes"], self.json("one", "plan.json")["peak_bytes"])
        self.assertRegex(self.brim("devices", "backend=cpu", *words_of_devices(two)).out,
                         rf"(?m)^ +1 +cpu +any +waits .* {process.pid} ")
        seen = time.time()  # the job has been waiting at least since then
        time.sleep(0.3)
        holder.kill()
        result = self.finish(process, 0)
        self.assert_waited("two", started, seen)
        free = (1 << 20) - self.json("one", "plan.json")["peak_bytes"]
        self.assertRegex(result.err,
                         rf"waiting: 1st in line, {free / 1024:.1f} KiB of 1\.0 MiB free on cpu:0, since \d\d:\d\d")

    def assert_waited(self, run, started, seen):
        """Asserts that the waiting time is reported separately and is not part of another figure."""
        events, summary = self.records(run, "events.jsonl"), self.summary(run)
        waiting, claimed = [next(e for e in events if e["event"] == kind) for kind in ("waiting", "claimed")]
        self.assertEqual([waiting["device"], claimed["device"]], ["auto", "cpu:0"])
        self.assertEqual([e["need_bytes"] for e in (waiting, claimed)], [self.json(run, "plan.json")["peak_bytes"]] * 2)
        self.assertRegex(waiting["detail"], r"^1st in line, .* free on cpu:0, since \d\d:\d\d$")
        self.assertLess(waiting["time"], seen)
        self.assertLess(seen + 0.3, claimed["time"] + 0.001)
        queued = summary["queue_seconds"]
        self.assertGreaterEqual(queued, 0.3)
        self.assertAlmostEqual(claimed["queue_seconds"], queued, places=4)
        self.assertLess(queued + summary["wall_seconds"], time.time() - started)
        self.assertLessEqual(summary["first_step_seconds"], summary["wall_seconds"])

    def test_a_job_for_another_device_is_not_held_up(self):
        two = devices_of(1)
        self.hold("one", *two, "device=cpu:0")
        self.queue_up("two", 1, *two, *WAIT, "device=cpu:0")
        self.train("three", *JOB, *two, *WAIT, "device=cpu:1")

    def test_a_job_for_devices_that_are_split_otherwise_is_not_held_up(self):
        """The devices have the same names, but are different devices."""
        self.hold("one", *devices_of(1, 1))
        self.queue_up("two", 1, *devices_of(1, 1), *WAIT)
        self.train("three", *JOB, *devices_of(2, 1))
        self.train("four", *JOB, *devices_of(1, 3), "device=cpu:0")

    def test_a_job_that_takes_any_comes_before_a_later_one_that_names_a_device(self):
        two = devices_of(1)
        first, second = self.hold("one", *two, "device=cpu:0"), self.hold("two", *two, "device=cpu:1")
        any_device = self.queue_up("any", 1, *two, *WAIT)
        named = self.queue_up("named", 2, *two, *WAIT, "device=cpu:0")
        first.kill()
        self.until(lambda: self.has_begun("any"), any_device)
        self.finish(any_device, 0)
        self.finish(named, 0)
        second.kill()
        times = [self.records(run, "events.jsonl")[0]["time"] for run in ("any", "named")]
        self.assertLess(*times)

    def test_a_job_that_does_not_wait_does_not_overtake(self):
        two = [*devices_of(1, 1), "training.batch_size=32"]
        self.hold("one", *two)
        self.queue_up("large", 1, *two, *WAIT, "training.batch_size=128")
        result = self.train("small", *JOB, *two, status=NO_FIT)
        self.assert_error(result, "1 run waits for the same devices; set wait_for_gpu=true to join the queue")

    def test_waiting_ends(self):
        two = devices_of(1, 1)
        self.hold("one", *two)
        result = self.train("two", *JOB, *two, *WAIT, "gpu_wait_timeout_minutes=0.5s", status=NO_FIT)
        self.assert_error(result, "no device became free in 0.008333 minutes (gpu_wait_timeout_minutes): 1st in line")
        self.assertFalse((self.folder / "two").exists())

    def test_a_job_that_never_fits_does_not_wait(self):
        two = devices_of(1, 1)
        result = self.train("run", *JOB, *two, *WAIT, "training.batch_size=2048", status=NO_FIT)
        self.assert_error(result, "but the device has 1.0 MiB", "would fit")
        result = self.train("run", *JOB, *two, *WAIT, "min_gpu_memory_mb=2", status=NO_FIT)
        self.assert_error(result, "the run needs 2.0 MiB, but cpu:0 has only 1.0 MiB in total")

    def test_a_signal_ends_waiting(self):
        two = devices_of(1, 1)
        self.hold("one", *two)
        process = self.queue_up("two", 1, *two, *WAIT)
        process.send_signal(signal.SIGINT)
        self.assertIn("interrupted while waiting for a device: 1st in line", self.finish(process, INTERRUPTED).err)
        self.assertEqual(self.look(*two)[1], [])

    def test_a_host_without_limits_is_not_queued_for(self):
        self.train("run", *JOB, *WAIT)
        self.assertEqual(list((self.folder / "claims").glob("queue")), [])


def words_of_devices(words):
    return [word for word in words if word.startswith("backend.")]


if __name__ == "__main__":
    main()
