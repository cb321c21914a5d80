"""Tests hooks.*: shell commands that a run starts, and that cannot disturb it."""

import os
import signal
import time

from support import FAILED, INTERRUPTED, SMALL, USAGE, Case, main, plain

RUN = [*SMALL, "training.epochs=2", "training.eval_every_steps=2", "training.checkpoint_every_steps=2"]


class Hooks(Case):
    def log(self, run="run"):
        return self.read(run, "hooks.log")

    def results(self, hook, run="run"):
        """Returns the lines of the log that have the hook's results."""
        return [line.split(f"{hook}: ")[1] for line in self.log(run).splitlines() if f" {hook}: " in line]

    def test_each_hook_gets_variables_and_figures(self):
        keep = "cat > $BRIM_RUN/$BRIM_HOOK.json; env | grep ^BRIM_ > $BRIM_RUN/$BRIM_HOOK.env; echo said"
        self.train("run", *RUN, *(f"hooks.{name}={keep}" for name in ("on_start", "on_evaluation", "on_checkpoint",
                                                                      "on_oom", "on_end")),
                   env={"BRIM_FAULT": "step:3:update", "BRIM_HOOK": "of an outer hook"})
        env = {name: dict(line.split("=", 1) for line in self.read("run", f"on_{name}.env").splitlines()
                          if "=" in line) for name in ("start", "evaluation", "checkpoint", "oom", "end")}
        self.assertEqual({e["BRIM_RUN"] for e in env.values()}, {str((self.folder / "run").resolve())})
        self.assertEqual([env[name]["BRIM_HOOK"] for name in env], [f"on_{name}" for name in env])
        self.assertEqual((env["start"]["BRIM_STATUS"], env["start"]["BRIM_STEP"], env["start"]["BRIM_STEPS"],
                          env["start"]["BRIM_DETAIL"]), ("running", "0", "4", "started"))
        self.assertEqual((env["end"]["BRIM_STATUS"], env["end"]["BRIM_STEP"]), ("finished", "4"))
        self.assertEqual((env["end"]["BRIM_MODEL"], env["end"]["BRIM_DATASET"]), ("mlp", "synthetic"))
        last = [r for r in self.records("run") if r["split"] == "test"][-1]
        self.assertEqual((env["evaluation"]["BRIM_SPLIT"], float(env["evaluation"]["BRIM_LOSS"]),
                          float(env["evaluation"]["BRIM_ACCURACY"])), ("test", last["loss"], last["accuracy"]))
        self.assertTrue(os.path.samefile(env["checkpoint"]["BRIM_CHECKPOINT"], self.checkpoint("run", 4)))
        self.assertIn("BRIM_FAULT", env["oom"]["BRIM_DETAIL"])
        end = self.json("run", "on_end.json")
        self.assertEqual({key: end[key] for key in self.summary("run")}, self.summary("run"))
        self.assertEqual((end["hook"], end["run"]), ("on_end", env["end"]["BRIM_RUN"]))
        evaluation = self.json("run", "on_evaluation.json")
        self.assertEqual((evaluation["status"], evaluation["steps"], evaluation["test_loss"]),
                         ("running", 4, last["loss"]))
        self.assertIn("said\n", self.log())
        self.assertEqual(len(self.results("on_end")), 1)
        self.assertTrue(self.results("on_end")[0].startswith("exit status 0 after "))

    @plain
    def test_hooks_change_no_checkpoint(self):
        self.train("calm", *RUN)
        self.train("run", *RUN, "hooks.on_checkpoint=sleep 0.2", "hooks.on_evaluation=exit 3",
                   "hooks.on_end=kill -9 $$")
        self.assert_same_checkpoint("calm", "run", 4)
        self.assert_same_records("calm", "run")

    def test_a_failure_is_one_warning(self):
        result = self.train("run", *RUN, "training.epochs=4", "hooks.on_evaluation=echo out; echo problem >&2; exit 3",
                            "hooks.on_end=kill -9 $$")
        self.assertEqual(result.err.count("warning: hooks.on_evaluation: exit status 3"), 1)
        self.assertRegex(result.err, "warning: hooks.on_evaluation: [^\n]*; the run continues\n")
        self.assertRegex(result.err,
                         "warning: hooks.on_end: killed by signal 9[^\\n]*; the run had ended\\n[^\\n]*output\\n")
        self.assertIn("run/hooks.log", result.err)
        self.assertIn("out\nproblem\n", self.log())
        self.assertEqual(self.summary("run")["status"], "finished")

    @plain
    def test_failures_are_events_and_on_the_page(self):
        self.train("run", *RUN, "training.epochs=4", "hooks.on_evaluation=exit 3", "hooks.on_end=exit 4")
        failures = [r for r in self.records("run", "events.jsonl") if r["event"] == "hook_failed"]
        self.assertEqual([f["detail"].split(" after")[0] for f in failures],
                         ["hooks.on_evaluation: exit status 3", "hooks.on_end: exit status 4"], "each once")
        self.assertEqual(self.events("run")[-1], "hook_failed", "of on_end, after the event of the end")
        page = self.read("run", "report.html")
        for failure in failures:
            self.assertIn(failure["detail"], page)
        self.assertEqual(self.summary("run")["status"], "finished")

    @plain
    def test_a_mistyped_key_is_refused_also_with_a_plus(self):
        for word in ("+hooks.on_evalution=true", "++hooks.on_evalution=true", "hooks.on_evalution=true"):
            self.assert_error(self.train("run", *RUN, word, status=USAGE), "unknown key 'hooks.on_evalution'",
                              "did you mean 'hooks.on_evaluation'?")
        self.assert_error(self.train("run", *RUN, "+hooks.on_finish=true", status=USAGE), "unknown key", "on_start")

    @plain
    def test_a_command_that_is_not_there(self):
        result = self.train("run", *RUN, "hooks.on_end=no-such-program --at-all")
        self.assertIn("hooks.on_end: exit status 127", result.err)
        self.assertIn("no-such-program", self.log())

    def test_a_flood_is_cut(self):
        self.train("run", *RUN, "hooks.on_start=yes 0123456789 | head -c 5000000")
        self.assertLess((self.folder / "run/hooks.log").stat().st_size, 70000)
        self.assertIn(f"{5000000 - 65536} more bytes of output are not in this file", self.log())
        self.assertTrue(self.results("on_start")[0].startswith("exit status 0"))

    @plain
    def test_children_that_keep_the_pipe_open_are_not_waited_for(self):
        process = self.start("train", "run.dir=run", *RUN,
                             "hooks.on_end=sleep 1000 & echo $! > child; echo done")
        self.finish(process, 0)
        self.assertIn("done\n", self.log())
        os.kill(int(self.read("child")), signal.SIGKILL)

    def test_a_command_that_hangs_holds_up_no_step_and_a_signal_ends_it(self):
        process = self.start("train", "run.dir=run", *RUN, "hooks.on_start=trap '' TERM; echo begun; sleep 1000")
        self.until(lambda: (self.folder / "run/summary.json").exists(), process, what="the end of the training")
        self.assertEqual(self.steps("run"), [2, 4], "steps and checkpoints went on beside it")
        self.assertIsNone(process.poll(), "the run waits for the hook, but not for long")
        self.until(lambda: "begun" in self.log(), process, what="the hook")
        # A run releases its folder before it waits for its hooks. An earlier signal would interrupt the run instead.
        self.until(lambda: not self.holds_lock("run"), process, what="the end of the run's work")
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        result = self.finish(process)
        self.assertIn("hooks.on_start: ended after", result.err)
        self.assertEqual(self.summary("run")["status"], "finished")

    @plain
    def test_only_the_newest_of_several_waiting_ones_runs(self):
        self.train("run", *RUN, "training.epochs=8", "training.checkpoint_every_steps=1",
                   "hooks.on_start=until test -e $BRIM_RUN/summary.json; do sleep 0.01; done",
                   "hooks.on_checkpoint=echo step $BRIM_STEP")
        self.assertEqual([line for line in self.log().splitlines() if line.startswith("step")], ["step 16"])

    def test_a_run_that_fails_or_is_interrupted_has_an_end(self):
        keep = "hooks.on_end=echo $BRIM_STATUS: $BRIM_DETAIL > end; cat > end.json"
        process = self.hold("run", *SMALL, keep)
        process.terminate()
        self.finish(process, INTERRUPTED)
        self.assertTrue(self.read("end").startswith("interrupted: terminated after step"))
        self.assertEqual(self.json("end.json")["status"], "interrupted")
        self.train("bad", *RUN, keep, "optimizer.lr=1e30", "optimizer=sgd", status=FAILED)
        self.assertTrue(self.read("end").startswith("failed: "))

    @plain
    def test_the_run_can_be_deleted_by_its_last_hook(self):
        brim = os.environ["BRIM_BINARY"]
        self.train("runs/a", *RUN, f"hooks.on_end={os.path.abspath(brim)} runs delete runs/a")
        self.assertFalse((self.folder / "runs/a").exists())
        self.brim("runs", "restore", "runs/a")
        self.assertEqual(self.summary("runs/a")["status"], "finished")

    def test_a_link_at_the_log_is_not_followed(self):
        (self.folder / "run").mkdir()
        (self.folder / "run/hooks.log").symlink_to(self.folder / "victim")
        result = self.train("run", *RUN, "hooks.on_end=echo written")
        self.assertIn("the run's hooks are off", result.err)
        self.assertFalse((self.folder / "victim").exists())

    @plain
    def test_a_resumed_run_says_so(self):
        keep = "hooks.on_start=echo $BRIM_DETAIL at $BRIM_STEP"
        process = self.hold("run", *SMALL, keep)
        process.terminate()
        self.finish(process, INTERRUPTED)
        process = self.start("train", "--resume", "run")
        self.until(lambda: "resumed at" in self.log(), process)
        process.terminate()
        self.finish(process, INTERRUPTED)

    @plain
    def test_commands_of_another_user_are_not_run(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make a folder of another user")
        self.train("theirs", *RUN, "hooks.on_end=touch run_by_theirs", "hooks.on_start=touch started_by_theirs")
        for path in [self.folder / "theirs", *(self.folder / "theirs").rglob("*")]:
            os.chown(path, 65534, 65534, follow_symlinks=False)
        for name in ("run_by_theirs", "started_by_theirs"):
            (self.folder / name).unlink()
        words = ["--from", "theirs", "run.dir=mine", "hooks.on_start=touch mine_started"]
        self.assert_error(self.brim("train", *words, status=USAGE), "'theirs/config.yaml' belongs to another user",
                          "hooks.on_end=touch run_by_theirs")
        self.assert_error(self.brim("train", "-m", *words, "seed=1,2", status=None), "belongs to another user")
        self.brim("train", *words, "hooks.on_end=")
        self.assertFalse((self.folder / "run_by_theirs").exists())
        self.assertTrue((self.folder / "mine_started").exists())


if __name__ == "__main__":
    main()
