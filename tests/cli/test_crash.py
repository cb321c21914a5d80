"""After a process has died, its run can be resumed or says why not. Everything that the process held (devices,
queues, locks) is free for the next process."""

import json
import random
import shutil
import time

from support import LOAD, SMALL, Case, killed, main, plain

RUN = [*SMALL, "training.steps=8", "training.checkpoint_every_steps=4", "training.keep_checkpoints=3",
       "observe.log_every_steps=2", "training.eval_every_steps=4"]


class Stopped(Case):
    """A run was stopped after step 4, and its folder was changed afterwards."""

    def setUp(self):
        super().setUp()
        self.once(lambda: self.train("whole", *self.overrides()), "whole")

    def overrides(self):
        return RUN

    def stopped(self, name):
        """Makes a copy of the run, as a kill after step 4 would leave it."""
        run = self.folder / name
        shutil.copytree(self.folder / "whole", run, symlinks=True)
        (run / "summary.json").unlink()
        shutil.rmtree(self.checkpoint(name, 8))
        (run / "checkpoints" / "last").unlink()
        (run / "checkpoints" / "last").symlink_to("step-00000004")
        return run

    def assert_goes_on(self, run, *messages):
        result = self.brim("train", "--resume", run.name)
        for message in messages:
            self.assertIn(message, result.out + result.err)
        self.assert_same_checkpoint("whole", run.name, 8)
        self.assert_same_records("whole", run.name)
        self.assertEqual((run / "checkpoints" / "last").readlink().name, "step-00000008")
        return result


class Folder(Stopped):
    def test_a_link_to_the_last_checkpoint_that_was_not_made(self):
        run = self.stopped("run")
        (run / "checkpoints" / "last").unlink()
        self.assert_goes_on(run, "after step 4 of 8")

    def test_a_checkpoint_that_is_not_whole(self):
        run = self.stopped("run")
        whole = run / "checkpoints" / "step-00000004"
        shutil.copytree(whole, run / "checkpoints" / "step-00000006")
        (run / "checkpoints" / "step-00000006" / "state.json").unlink()
        result = self.assert_goes_on(run, "after step 4 of 8", "skipping a checkpoint")
        self.assertIn("step-00000006", result.err)
        self.assertFalse((run / "checkpoints" / ".step-00000006.tmp").exists())

    @plain
    def test_no_intact_checkpoint_is_reported(self):
        run = self.stopped("run")
        (run / "checkpoints" / "step-00000004" / "state.json").unlink()
        self.assert_error(self.brim("train", "--resume", "run", status=LOAD), "all 1 checkpoints", "--from")

    def test_half_a_record_is_cut_off(self):
        run = self.stopped("run")
        with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write('{"step":8,"epo')
        with open(run / "events.jsonl", "a", encoding="utf-8") as file:
            file.write('{"event":"check')
        self.assert_goes_on(run)
        for line in (run / "events.jsonl").read_text().splitlines():
            json.loads(line)

    @plain
    def test_lost_records_are_reported(self):
        run = self.stopped("run")
        (run / "metrics.jsonl").unlink()
        result = self.brim("train", "--resume", "run")
        self.assertIn("'run/metrics.jsonl' has 0 records, but had ", result.err)
        self.assert_same_checkpoint("whole", "run", 8)
        whole, records = self.records("whole"), self.records("run")
        self.assertEqual(len(whole), len(records))
        lost = records.count({"lost": 1})
        self.assertEqual([r["step"] for r in whole[lost:]], [r["step"] for r in records[lost:]])
        self.assertEqual({r["step"] > 4 for r in whole[lost:]}, {True})

    def test_files_for_information_only_may_be_damaged(self):
        run = self.stopped("run")
        for name in ("plan.json", "plugins.json", "overrides.yaml", "summary.json"):
            (run / name).write_text("{")
        self.assert_goes_on(run)
        self.assertEqual(self.summary("run")["status"], "finished")

    def test_temporary_files_are_removed(self):
        run = self.stopped("run")
        (run / "checkpoints" / ".step-00000008.tmp").mkdir()
        (run / "checkpoints" / ".step-00000008.tmp" / "model.safetensors").write_bytes(b"half")
        for name in "config.yaml", "sources.yaml", "plan.json":
            (run / f".{name}.tmp").write_text("half")
        self.assert_goes_on(run)
        self.assertEqual([p.name for p in run.iterdir() if p.name.endswith(".tmp")], [])
        self.assertEqual([p.name for p in (run / "checkpoints").iterdir() if p.name.startswith(".")], [])

    @plain
    def test_a_run_without_a_configuration_cannot_be_resumed(self):
        run = self.folder / "run"
        run.mkdir()
        for name in (".lock", "sources.yaml", "overrides.yaml", ".plan.json.tmp"):
            (run / name).write_text("")
        self.assert_error(self.brim("train", "--resume", "run", status=LOAD),
                          "ended before its configuration was written", "brim train run.dir=run")
        self.train("run", *self.overrides())
        self.assert_same_checkpoint("whole", "run", 8)

    @plain
    def test_without_a_configuration_checkpoints_stay_unchanged(self):
        run = self.stopped("run")
        (run / "config.yaml").unlink()
        before = self.tree("run")
        self.assert_error(self.brim("train", "--resume", "run", status=LOAD), "has no readable config.yaml")
        self.assertEqual(self.tree("run"), before)
        self.assertIn("already holds a run", self.train("run", *self.overrides(), status=2).err)


class Timed(Stopped):
    """Measured times decided the plan of a run, and its folder stores them."""

    def overrides(self):
        return [*[word for word in RUN if not word.startswith(("training.batch_size", "memory.timing"))],
                "training.batch_size=auto"]

    def test_a_truncated_profile_is_reported(self):
        for cut in (-20, None):
            with self.subTest(cut):
                run = self.stopped(f"run{cut}")
                profile = run / "profile.jsonl"
                text = profile.read_text()
                profile.unlink()
                if cut:
                    profile.write_text(text[:cut])
                result = self.brim("train", "--resume", run.name)
                self.assertIn("profile.jsonl differs from the profile that the run began with", result.err)

    @plain
    def test_a_run_still_knows_its_profile(self):
        self.assert_goes_on(self.stopped("run"), "after step 4 of 8")

    @plain
    def test_a_run_without_a_checkpoint_still_knows_its_profile(self):
        run = self.stopped("run")
        shutil.rmtree(run / "checkpoints")
        self.assert_goes_on(run, "starting at step 0")


LIMIT = ["backend=cpu", "backend.devices=1", "backend.memory_mb=1", "gpu_check_interval_seconds=0.02"]
KILLS = 12


class Held(Case):
    """Resources that a killed process held are free for the next process, whatever it was doing."""

    def assert_nothing_is_held(self, context):
        found = self.brim("devices", "--json", *LIMIT[:3]).json
        device = next(device for device in found["devices"] if device["backend"] == "cpu")
        self.assertEqual((device["users"], device["free_bytes"], found["queue"]), ([], 1 << 20, []), context)

    def test_at_moments_from_its_start_to_its_end(self):
        overrides = [*RUN, *LIMIT, "training.num_workers=1"]
        start = time.monotonic()
        self.train("whole", *overrides)
        seconds = time.monotonic() - start
        moments = random.Random(21)
        for attempt in range(KILLS):
            run = f"run{attempt}"
            process = self.start("train", f"run.dir={run}", *overrides)
            time.sleep(seconds * (attempt + moments.random()) / KILLS)
            process.kill()
            result = self.finish(process)
            self.assert_nothing_is_held(result)
            if killed(result) and (self.folder / run / "config.yaml").exists():
                self.brim("train", "--resume", run)
            elif killed(result):
                self.train(run, *overrides)
            self.assert_same_checkpoint("whole", run, 8, context=str(result))
        self.assert_nothing_is_held("at the end")

    @plain
    def test_while_it_waits_and_while_another_waits_for_it(self):
        big = [*LIMIT, *SMALL, "model.hidden=[300]", "wait_for_gpu=true"]
        holder = self.hold("holder", *big)
        waiting = [self.start("train", f"run.dir=waiting{i}", *big, "training.steps=2") for i in range(2)]
        self.until(lambda: len(self.brim("devices", "--json", *LIMIT[:3]).json["queue"]) >= 2, *waiting)
        waiting[0].kill()
        self.finish(waiting[0])
        holder.kill()
        self.finish(holder)
        self.finish(waiting[1], 0)
        self.assert_nothing_is_held("after the queue")


if __name__ == "__main__":
    main()
