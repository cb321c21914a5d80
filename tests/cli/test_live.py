"""Tests the live state of runs: other programs see it while they plan, wait and train, without a change of their
results."""

import os
import pathlib
import subprocess
import time

import live
from support import SMALL, Case, main
from test_queue import JOB, WAIT, devices_of


class Live(Case):
    def look(self):
        return live.read(self.folder / "claims")

    def slot(self, process):
        return self.look().get(process.pid)

    def until_slot(self, process, condition, what):
        """Waits for a slot that meets the condition, and returns it. A later read might see it half written, or no
        longer meet the condition."""
        found = []

        def holds():
            found[:] = [self.slot(process)]
            return found[0] is not None and condition(found[0])
        self.until(holds, process, what=what)
        return found[0]

    def test_a_run_is_seen_with_its_memory_and_progress_and_no_more(self):
        process = self.hold("run", *SMALL)
        slot = self.until_slot(process, lambda slot: slot["step"] > 0, "the first step")
        plan = self.json("run", "plan.json")
        self.assertEqual((slot["layout"], slot["bytes"], slot["uid"], slot["command"], slot["backend"], slot["device"]),
                         (1, 512, os.geteuid(), "train", "cpu", 0))
        self.assertEqual((slot["rank"], slot["ranks"], slot["place"]), (0, 1, 0))
        self.assertEqual(slot["peak_bytes"], plan["peak_bytes"])
        self.assertGreater(slot["steps"], slot["step"])
        self.assertEqual((slot["model"], slot["run"], slot["loss"] != slot["loss"]), ("", "", True))
        link = pathlib.Path(os.readlink(f"/proc/{process.pid}/fd/{slot['folder_fd']}"))
        self.assertEqual(link, (self.folder / "run" / ".lock").resolve())
        board = (self.folder / "claims" / "runs").read_bytes()
        for word in (str(self.folder).encode(), b"mlp"):
            self.assertNotIn(word, board)

    def test_all_adds_model_run_and_loss(self):
        process = self.hold("run", *SMALL, "observe.live=all")
        slot = self.until_slot(process, lambda slot: slot["step"] > 0, "the first step")
        self.assertEqual((slot["model"], slot["run"]), ("mlp", str((self.folder / "run").resolve())))
        self.assertGreater(slot["loss"], 0)
        self.assertTrue(0 <= slot["accuracy"] <= 1)

    def test_waiting_runs_are_seen_with_their_places(self):
        device = devices_of(1, 1)
        holder = self.hold("one", *JOB, *device)
        waiting = []
        for place in (1, 2):
            waiting.append(self.start("train", f"run.dir=w{place}", *JOB, *device, *WAIT))
            slot = self.until_slot(waiting[-1], lambda slot: slot["state"] == "waiting", "the wait")
            self.assertEqual((slot["place"], slot["device"]), (place, -1))
            self.assertEqual(slot["peak_bytes"], self.json("one", "plan.json")["peak_bytes"])
        waiting[0].kill()
        self.until_slot(waiting[1], lambda slot: slot["place"] == 1, "the next place")
        holder.kill()
        self.finish(waiting[1], 0)
        self.assertNotIn(waiting[1].pid, self.look())

    def test_evaluations_are_seen(self):
        process = self.start("train", "run.dir=run", *SMALL, "training.eval_every_steps=1", "training.epochs=100000",
                             "dataset.test_count=20000", "training.checkpoint_every_steps=100000",
                             out=subprocess.DEVNULL)
        slot = self.until_slot(process, lambda slot: slot["state"] == "evaluating", "an evaluation")
        self.assertLessEqual(slot["since"], slot["updated"])

    def test_a_run_writes_at_most_twice_a_second(self):
        process = self.hold("run", *SMALL)
        self.until_slot(process, lambda slot: slot["step"] > 0, "the first step")
        start = time.monotonic()
        first = self.until_slot(process, lambda slot: True, "the slot")
        time.sleep(2)
        last = self.until_slot(process, lambda slot: slot["stamp"] > first["stamp"], "another write")
        self.assertLessEqual(last["stamp"] - first["stamp"], 2 * (time.monotonic() - start) + 2)

    def test_other_commands_are_seen_while_they_work(self):
        self.train("run", *SMALL)
        seen = set()
        process = self.start("eval", "run", "dataset.test_count=4000000")

        def has_state():
            slot = self.slot(process)
            if slot:
                seen.add((slot["command"], slot["state"]))
            return ("eval", "working") in seen
        self.until(has_state, process, what="the evaluation")

    def test_watching_changes_no_checkpoint(self):
        for mode in ("off", "basic", "all"):
            self.train(mode, *SMALL, f"observe.live={mode}", "training.checkpoint_every_steps=1",
                       "training.keep_checkpoints=99")
            for step in self.steps("off"):
                self.assert_same_checkpoint("off", mode, step)
        self.assert_same_records("off", "all")

    def test_off_publishes_nothing(self):
        self.train("run", *SMALL, "observe.live=off")
        self.assertFalse((self.folder / "claims").exists())

    def test_a_folder_that_cannot_be_used_costs_one_warning(self):
        result = self.train("run", *SMALL, env={"BRIM_CLAIMS_DIR": "/proc/brim"})
        self.assertEqual(result.err.count("warning: other programs cannot see the state of this process: "), 1, result)
        self.assertIn("/proc/brim", result.err)
        self.assertIn("observe.live=off", result.err)


if __name__ == "__main__":
    main()
