"""Tests calls that fail for lack of memory, each in turn (docs/faults.md): the run redoes the failed part and ends with
the bits of an undisturbed run, or ends with a message and reaches the same bits after a resume. Nothing hangs, leaks or
stays locked.

FAULTS=all fails every call in the chosen steps, which takes minutes; FAULTS=N (default 2) fails N calls for each point
and step."""

import os

from support import FAILED, FULL, NO_FIT, SANITIZED, SMALL_CNN, USAGE, Case, main

STEPS = 8
RUN = [word for word in SMALL_CNN if not word.startswith("training.batch_size")] + [
    "training.batch_size=32", f"training.steps={STEPS}", "training.checkpoint_every_steps=1",
    "training.keep_checkpoints=2", "training.eval_every_steps=1", "observe.log_every_steps=1", "training.num_workers=1",
    "backend=cpu", "backend.devices=1", "backend.memory_mb=64"]
ALL = os.environ.get("FAULTS") == "all"
SPREAD = 0 if ALL else int(os.environ.get("FAULTS", "2"))
AT_START = 4 if SANITIZED else 20  # number of calls before the first step that fail
STEPS_AT = (2,) if SANITIZED and not FULL else (1, 2, 7)  # steps in which calls fail


def spread(count, wanted):
    """Returns `wanted` of the numbers from 1 to `count`, evenly spaced, with both ends; with FAULTS=all returns all."""
    if ALL or count <= wanted:
        return range(1, count + 1)
    return sorted({1 + round(i * (count - 1) / max(wanted - 1, 1)) for i in range(wanted)})


class Faults(Case):
    def setUp(self):
        super().setUp()
        report = self.folder / "report"
        self.once(lambda: self.train("whole", *RUN, env={"BRIM_FAULT_REPORT": str(report)}), "whole", "report")
        self.calls = {}  # counts by step, point and name
        for line in report.read_text().splitlines():
            step, point, name, calls, failed = line.split()
            self.assertEqual(failed, "0")
            self.calls[int(step), point, name] = self.calls.get((int(step), point, name), 0) + int(calls)
        self.number = 0

    def points_of(self, step):
        return [(point, "" if name == "-" else f":{name}", calls)
                for (at, point, name), calls in self.calls.items() if at == step]

    def assert_nothing_is_held(self, context):
        found = self.brim("devices", "--json", "backend=cpu", *RUN[-2:]).json
        device = next(device for device in found["devices"] if device["backend"] == "cpu")
        self.assertEqual((device["users"], found["queue"]), ([], []), context)

    def check(self, fault, statuses=(0, NO_FIT, FAILED)):
        """Runs with a fault, and compares with the run without one."""
        self.number += 1
        run = f"run{self.number}"
        result = self.train(run, *RUN, status=None, env={"BRIM_FAULT": fault})
        self.assertIn(result.status, statuses, result)
        folder = self.folder / run
        ended_at_once = "error: out of host memory: cannot allocate " in result.err  # the run ended at the failed call
        if not ended_at_once:
            self.assertIn(f"warning: BRIM_FAULT={fault} is set", result.err)
        if result.status != 0:
            self.assertIn("error: ", result.err)
            if not ended_at_once and (folder / "summary.json").exists():
                self.assert_last_commit_is_kept(run, result)
            if (folder / "config.yaml").exists():
                self.brim("train", "--resume", run)
            else:
                self.train(run, *RUN)
        self.assert_same_checkpoint("whole", run, STEPS, context=str(result))
        self.assert_same_records("whole", run)
        return result

    def assert_last_commit_is_kept(self, run, result):
        steps = self.summary(run)["steps"]
        if steps == 0 and "update failed (injected" in result.err:  # the seed gives the initial state
            self.assertEqual(self.steps(run), [])
            return
        self.assertIn(f"there is a checkpoint of step {steps}\n", result.err)
        self.assertEqual(self.steps(run)[-1], steps)
        self.assertEqual(list((self.folder / run).glob("checkpoints/.*")), [])

    def test_once_in_a_step(self):
        for step in STEPS_AT:
            points = self.points_of(step)
            self.assertLessEqual({"begin", "lib", "alloc"}, {point for point, _, _ in points})
            for point, name, calls in points:
                for at in spread(calls, SPREAD):
                    self.check(f"step:{step}:{point}{name}:{at}", statuses=(0,))
        self.assert_nothing_is_held("at the end")

    def test_again_and_again_in_a_step(self):
        for step in STEPS_AT:
            for point, name, calls in self.points_of(step):
                for at in spread(calls, SPREAD):
                    self.check(f"step:{step}:{point}{name}:{at}+")
                self.check(f"step:{step}:{point}{name}:%3")
        self.assert_nothing_is_held("at the end")

    def test_before_the_first_step(self):
        for point, name, calls in self.points_of(0):
            for at in spread(calls, AT_START):
                self.check(f"{point}{name}:{at}")
            for at in spread(calls, SPREAD):
                self.check(f"{point}{name}:{at}+")
        self.assert_nothing_is_held("at the end")

    def test_placing_again_fails_too(self):
        """The smaller plan does not get its memory either, the first time or every time."""
        for step in (2, 7):
            self.check(f"step:{step}:lib:conv:%2,step:{step}:place")
            self.check(f"step:{step}:lib:conv:1+,step:{step}:place:1+", statuses=(NO_FIT, FAILED))
        self.assert_nothing_is_held("at the end")

    def test_a_file_ends_it(self):
        (self.folder / "enough").write_text("")
        result = self.check(f"step:2:until={self.folder}/enough,lib:until={self.folder}/enough", statuses=(0,))
        self.assertNotIn("recovery:", result.err)

    def test_every_command_reports_a_mistake_with_its_place(self):
        for argv in (["train", *RUN], ["plan"], ["version"]):
            result = self.brim(*argv, status=USAGE, env={"BRIM_FAULT": "step:3:alok:2"})
            self.assert_error(result, "BRIM_FAULT, character 8: unknown point")


if __name__ == "__main__":
    main()
