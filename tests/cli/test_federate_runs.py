"""Tests federations as runs: when they end, the option names of other simulators, repeats, their records, and
memory."""

import collections
import math
import re
import statistics

from support import FAILED, NO_FIT, USAGE, Case, main, plain

SMALL = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=240", "dataset.test_count=40",
         "dataset.classes=4", "total_clients=12", "clients_per_round=5", "memory.timing=false", "model=mlp",
         "model.hidden=[9]", "training.batch_size=8"]


class Runs(Case):
    def federate(self, run, *overrides, status=0, env=None):
        return self.brim("federate", f"run.dir={run}", *SMALL, *overrides, status=status, env=env)

    def evaluations(self, run, split="test"):
        return [record for record in self.records(run) if record["split"] == split]


class Stop(Runs):
    """Rules that end a federation before its last round."""

    @plain
    def test_it_ends_when_an_evaluation_reaches_the_target(self):
        self.federate("whole", "rounds=12")
        accuracies = [record["accuracy"] for record in self.evaluations("whole")]
        target = max(accuracies[:9])  # the target is first reached before the last round
        expected = accuracies.index(target) + 1
        result = self.federate("run", "rounds=12", f"federate.target_accuracy={target!r}")
        self.assertEqual(self.summary("run")["steps"], expected)
        self.assertIn(f"stopped early after round {expected} of 12: the test accuracy is {100 * target:.2f} %",
                      result.out)
        self.assertIn("stopped_early", self.events("run"))
        self.federate("short", f"rounds={expected}")
        self.assert_same_checkpoint("run", "short", expected, ["model.safetensors"])

    def test_the_target_applies_to_validation_data_if_there_is_some(self):
        result = self.federate("run", "rounds=12", "dataset.validation_fraction=0.2", "federate.target_accuracy=0.3")
        last = self.evaluations("run", "validation")[-1]
        self.assertGreaterEqual(last["accuracy"], 0.3)
        self.assertIn(f"the validation accuracy is {100 * last['accuracy']:.2f} %", result.out)
        self.assertTrue(all(r["accuracy"] < 0.3 for r in self.evaluations("run", "validation")[:-1]))

    @plain
    def test_it_ends_when_loss_and_accuracy_have_settled(self):
        """A plain loop applies the rule to the evaluations of a run without it."""
        rounds = 30
        self.federate("whole", f"rounds={rounds}", "optimizer.lr=0.02")
        figures = [(record["loss"], record["accuracy"]) for record in self.evaluations("whole")]
        for threshold, patience, least in (0.05, 2, 0), (0.05, 1, 0), (0.08, 3, 0), (0.05, 1, 17):
            with self.subTest(threshold=threshold, patience=patience, min_rounds=least):
                expected = settled(figures, threshold, patience, least)
                self.assertLess(expected, rounds, "the test shows nothing if the rule does not end the run")
                run = f"run {threshold} {patience} {least}"
                result = self.federate(run, f"rounds={rounds}", "optimizer.lr=0.02", f"federate.patience={patience}",
                                       f"federate.convergence_threshold={threshold}", f"federate.min_rounds={least}")
                self.assertEqual(self.summary(run)["steps"], expected)
                self.assertIn(f"stopped early after round {expected} of {rounds}: neither test loss nor accuracy "
                              f"improved by more than {threshold:g}", result.out)

    def test_a_resumed_federation_ends_at_the_same_round_with_the_same_bytes(self):
        words = ["rounds=30", "optimizer.lr=0.02", "federate.convergence_threshold=0.05", "federate.patience=3",
                 "federate.checkpoint_every_rounds=1"]
        self.federate("whole", *words)
        end = self.summary("whole")["steps"]
        self.assertLess(end, 30)
        for cut in end - 2, end:  # the stop comes while the rule is counting
            with self.subTest(cut=cut):
                fault = ",".join(f"step:{cut}:begin:{n}" for n in range(1, 13))
                self.federate(f"cut {cut}", *words, status=NO_FIT, env={"BRIM_FAULT": fault})
                self.assertEqual(max(self.steps(f"cut {cut}")), cut - 1)
                self.brim("federate", "--resume", f"cut {cut}")
                self.assertEqual(self.summary(f"cut {cut}")["steps"], end)
                self.assert_same_checkpoint("whole", f"cut {cut}", end)
                self.assert_same_records("whole", f"cut {cut}")

    @plain
    def test_by_default_no_rule_ends_it(self):
        self.federate("run", "rounds=6", "optimizer.lr=1e-9")
        self.assertEqual(self.summary("run")["steps"], 6)

    def test_too_few_updates_end_the_run_and_leave_a_checkpoint(self):
        words = ["rounds=9", "optimizer.lr=0.5", "server_optimizer.lr=100", "model.hidden=[9,9]",
                 "federate.checkpoint_every_rounds=100"]
        self.federate("any", *words)
        short = next(r for r in self.evaluations("any", "train") if r["clients_left_out"] > 0)
        arrived = short["clients"] - short["clients_left_out"]
        result = self.federate("run", *words, f"federate.min_clients={arrived + 1}", status=FAILED)
        self.assert_error(result, f"{short['clients_left_out']} of the 5 clients of round {short['step']} have "
                                  f"diverged; federate.min_clients needs {arrived + 1} updates",
                          "brim federate --resume run")
        self.assertEqual(max(self.steps("run")), short["step"] - 1)

    def test_rules_that_cannot_work_are_refused(self):
        for words, parts in (
                (["federate.target_accuracy=90"], ["'federate.target_accuracy' must be in [0,1], got 90"]),
                (["federate.min_clients=6"], ["federate.min_clients 6 is more than the 5 clients of a round",
                                              "set federate.min_clients to 5 at most"]),
                (["federate.target_accuracy=0.5", "dataset.test_count=0"],
                 ["'federate.target_accuracy' needs test or validation data", "dataset.validation_fraction"]),
                (["federate.convergence_threshold=0.1", "dataset.test_count=0"],
                 ["'federate.convergence_threshold' needs test or validation data"])):
            with self.subTest(words):
                self.assert_error(self.federate("run", "rounds=2", *words, status=USAGE), *parts)


class OldNames(Runs):
    """Option names of the client-selection simulator."""

    def config(self, *words, status=0):
        result = self.brim("--config-name", "federate", "config", *words, status=status)
        return result.out, result.err

    @plain
    def test_names_of_methods_are_taken_with_a_line(self):
        for old, now in (("heuristic.random", "random"), ("heuristic.round_robin", "round_robin"),
                         ("heuristic.proportional_data", "proportional"), ("baseline.fedavg", "random"),
                         ("heuristic.mmr_diverse", "mmr_diverse"), ("system_aware.oort", "oort"),
                         ("system_aware.poc", "power_of_choice"), ("ml.bandit.linucb", "linucb"),
                         ("ml.fedcor", "fedcor")):
            with self.subTest(old):
                out, err = self.config(f"method={old}")
                self.assertRegex(out, rf"(?m)^method:\n  id: {now}$")
                self.assertEqual(err.count(f"method={old} is taken as method={now}, its new name"), 1)
        self.assertEqual(self.config("method=round_robin")[1], "")

    @plain
    def test_in_a_file_too(self):
        (self.folder / "mine.yaml").write_text(
            "defaults: [federate]\nlocal_epochs: 3\n")
        result = self.brim("--config-path", ".", "--config-name", "mine", "config")
        self.assertRegex(result.out, r"(?m)^  local_epochs: 3$")

    @plain
    def test_an_unknown_method_is_refused_with_the_known_ones(self):
        for old, now, nearest in (("ml.apex", "apex", ""), ("round_robbin", "round_robbin", "round_robin"),
                                  ("heuristic.proportionl", "proportionl", "proportional")):
            with self.subTest(old):
                result = self.federate("run", f"method={old}", status=USAGE)
                self.assert_error(result, f"no option '{now}' in group 'method'", "available: ", " random round_robin",
                                  f"did you mean '{nearest}'?" if nearest else "")
                self.assertFalse((self.folder / "run").exists())

    @plain
    def test_passes_of_an_experiment_are_those_of_clients(self):
        """The experiment's file sets the number of epochs, so the same option on the command line is ambiguous and is
        refused."""
        words = ["experiment=temperature", f"dataset.path={self.folder}", "network=moderate"]
        out, err = self.config(*words)
        self.assertRegex(out, r"(?m)^  local_epochs: 20$")
        self.assertRegex(out, r"(?m)^  epochs: 5$")
        self.assertIn("training.epochs=20 is taken as federate.local_epochs=20", err)
        self.assertRegex(self.config(*words, "federate.local_epochs=3")[0], r"(?m)^  local_epochs: 3$")
        err = self.config(*words, "training.epochs=5", "federate.local_epochs=3", status=USAGE)[1]
        self.assertIn("'training.epochs' cannot be combined with total_clients=100", err)

    @plain
    def test_words_are_taken_with_a_line(self):
        for old, now, section, line in (
                ("partition=label-shard", "partition=shards", "partition", "kind: shards"),
                ("dirichlet_alpha=0.25", "partition.alpha=0.25", "partition", "alpha: 0.25"),
                ("shards_per_client=3", "partition.shards=3", "partition", "shards: 3"),
                ("size_distribution=lognormal", "partition.sizes=lognormal", "partition", "sizes: lognormal"),
                ("local_epochs=4", "federate.local_epochs=4", "federate", "local_epochs: 4"),
                ("eval_every=5", "federate.eval_every_rounds=5", "federate", "eval_every_rounds: 5")):
            with self.subTest(old):
                out, err = self.config(old)
                self.assertRegex(out, rf"(?m)^{section}:\n(  .*\n)*  {line}$")
                self.assertEqual(err.count(f"{old} is taken as {now}, its new name"), 1)

    def test_keys_with_dashes_are_taken_with_a_line(self):
        words = ["--total-clients", "9", "--clients-per-round=4", "--rounds", "2", "--parallel-clients", "-1",
                 "--method", "heuristic.round_robin", "--partition", "label-shard", "--eval-every", "2"]
        result = self.federate("old", *words)
        self.federate("new", "total_clients=9", "clients_per_round=4", "rounds=2", "method=round_robin",
                      "partition=shards", "federate.eval_every_rounds=2")
        self.assert_same_checkpoint("old", "new", 2)
        for text in "--total-clients 9 is taken as total_clients=9", "--clients-per-round=4 is taken as clients_per":
            self.assertEqual(result.err.count(text), 1)

    @plain
    def test_keys_with_dashes_keep_the_numbers_of_words(self):
        result = self.brim("federate", "--total-clients", "9", "--rounds", "many", "optimizer.lr=-1", status=USAGE)
        self.assert_error(result, "command line, argument 3: rounds=many", "command line, argument 5: optimizer.lr=-1")

    def test_options_that_are_not_keys_are_refused(self):
        for words, text in ((["--total-clients"], "total_clients=VALUE"), (["--roundz", "4"], "--roundz"),
                            (["--total-clients", "--rounds=3"], "unknown option '--total-clients'")):
            self.assert_error(self.brim("federate", *words, status=USAGE), "unknown option", text)
        self.assert_error(self.brim("train", "--total-clients", "9", status=USAGE), "total_clients=9")

    @plain
    def test_without_parallel_clients_they_train_one_after_another(self):
        for lanes in 0, 1:
            self.assertIn("1 client at a time", self.federate(f"{lanes}", f"parallel_clients={lanes}", "rounds=2").out)
        self.assert_same_checkpoint("0", "1", 2)


class Repeats(Runs):
    WORDS = [*SMALL, "rounds=2"]

    @plain
    def test_each_seed_is_a_run_with_a_folder_of_its_own(self):
        result = self.federate("all", "rounds=2", "seed=5", "repeats=3")
        for number, seed in enumerate((5, 6, 7)):
            self.federate(f"alone {seed}", "rounds=2", f"seed={seed}")
            self.assert_same_checkpoint(f"alone {seed}", f"all/{number}", 2)
            self.assertRegex(self.read("all", str(number), "config.yaml"), r"(?m)^repeats: 1$")
        self.assertEqual([job["status"] for job in self.json("all", "sweep.json")["jobs"]], ["finished"] * 3)
        self.assertFalse((self.folder / "all/3").exists())
        self.assertIn("3 jobs in ", result.out)

    def test_methods_by_repeats_have_mean_and_deviation(self):
        result = self.brim("federate", "-m", *self.WORDS, "run.dir=all", "method=random,heuristic.round_robin",
                           "repeats=3")
        sweep = self.json("all", "sweep.json")
        self.assertEqual([(row["what"], row["first_job"], row["finished"]) for row in sweep["repeats"]],
                         [("method=random", 0, 3), ("method=heuristic.round_robin", 3, 3)])
        cells = []
        for row in sweep["repeats"]:
            first = row["first_job"]
            for key in "test_accuracy", "test_loss":
                values = [self.summary(f"all/{first + i}")[key] for i in range(3)]
                self.assertAlmostEqual(row[key], statistics.mean(values), delta=1e-9)
                self.assertAlmostEqual(row[f"{key}_deviation"], statistics.stdev(values), delta=1e-9)
            mean, deviation = 100 * row["test_accuracy"], 100 * row["test_accuracy_deviation"]
            cells.append(f"{mean:.2f} \u00b1 {deviation:.2f}")
        self.assertRegex(result.out, r"(?m)^accuracy, % +" + " +".join(cells) + "$")
        for seed in range(3):  # a seed draws the same for all methods
            self.assertEqual(self.read(f"all/{seed}", "partition.csv"), self.read(f"all/{3 + seed}", "partition.csv"))
        self.assertNotEqual(self.read("all/0", "partition.csv"), self.read("all/1", "partition.csv"))

    @plain
    def test_a_repeat_that_fails_is_left_out_of_the_mean(self):
        """The folder of job 1 already holds a run."""
        (self.folder / "all").mkdir()
        (self.folder / "all/1").mkdir()
        (self.folder / "all/1/config.yaml").write_text("seed: 1\n")
        result = self.federate("all", "rounds=2", "repeats=3", status=USAGE)
        row, = self.json("all", "sweep.json")["repeats"]
        self.assertEqual(row["finished"], 2)
        values = [self.summary(f"all/{i}")["test_loss"] for i in (0, 2)]
        self.assertAlmostEqual(row["test_loss"], statistics.mean(values), delta=1e-9)
        self.assertRegex(result.out, r"(?m)^seeds +2$")

    @plain
    def test_from_a_run_and_in_a_file(self):
        self.federate("old", "rounds=2")
        self.brim("train", "--from", "old", "run.dir=again", "repeats=2")
        self.assert_same_checkpoint("old", "again/0", 2)
        (self.folder / "mine.yaml").write_text("defaults: [federate]\nrepeats: 2\n")
        self.brim("--config-path", ".", "--config-name", "mine", "federate", *self.WORDS, "run.dir=file")
        self.assert_same_checkpoint("old", "file/0", 2)
        self.assert_same_checkpoint("again/1", "file/1", 2)

    @plain
    def test_runs_that_cannot_be_repeated_are_refused(self):
        for words, text in ((["seed=1,2", "repeats=3"], "repeats=3 gives each job seeds of its own"),
                            (["repeats=1,2"], "'repeats' cannot be swept"),
                            (["repeats=0"], "'repeats' must be in [1,10000], got 0")):
            self.assert_error(self.brim("federate", "-m", *self.WORDS, *words, status=USAGE), text)

    @plain
    def test_methods_are_listed(self):
        out = self.brim("federate", "--list-methods").out
        names = [line.split()[0] for line in out.splitlines()]
        self.assertLess({"random", "round_robin", "proportional", "topk_loss"}, set(names))
        self.assertEqual(names[0], "method")
        self.assert_error(self.brim("train", "--list-methods", status=USAGE), "unknown option '--list-methods'")


class Records(Runs):
    def participants(self, run):
        return self.records(run, "participants.jsonl")

    def test_each_round_has_its_figures(self):
        self.federate("run", "rounds=4", "observe.tensorboard=true")
        train, test = self.evaluations("run", "train"), self.evaluations("run")
        self.assertEqual([record["step"] for record in train], [1, 2, 3, 4])
        self.assertEqual([record["step"] for record in test], [1, 2, 3, 4])
        for record in test:
            self.assertTrue({"loss", "accuracy", "f1", "seconds"} <= set(record))
            self.assertTrue(0 <= record["f1"] <= 1)
        summary = self.summary("run")
        for record in train:
            self.assertGreater(record["seconds"], 0)
            self.assertEqual(record["device_bytes"], summary["device_bytes"])
            self.assertEqual(record["device_peak_bytes"], summary["device_peak_bytes"])
            self.assertTrue(0 < record["rss_bytes"] <= summary["rss_peak_bytes"])
        events, = (self.folder / "run").glob("events.out.tfevents.*")
        for tag in b"f1/test", b"loss/train", b"seconds/train", b"rss_bytes/train", b"device_peak_bytes/train":
            value = bytes([10, len(tag)]) + tag + b"\x15"  # Summary.Value: a tag (field 1), then a number (field 2)
            self.assertEqual(events.read_bytes().count(value), 4, tag)

    @plain
    def test_participants_are_the_clients_of_each_round(self):
        self.federate("run", "rounds=4", "method=round_robin", "partition=dirichlet", "partition.alpha=0.3",
                      "federate.local_epochs=2", "federate.remainder=keep")
        sizes = collections.Counter(line.split(",")[0] for line in self.read("run", "partition.csv").splitlines()[1:])
        rounds = self.participants("run")
        self.assertEqual([r["round"] for r in rounds], [1, 2, 3, 4])
        for number, (line, record) in enumerate(zip(rounds, self.evaluations("run", "train"))):
            self.assertEqual(line["client"], [(5 * number + k) % 12 for k in range(5)])
            self.assertEqual(line["samples"], [2 * sizes[str(client)] for client in line["client"]])
            self.assertEqual(line["arrived"], [True] * 5)
            mean = sum(n * loss for n, loss in zip(line["samples"], line["loss"])) / sum(line["samples"])
            self.assertAlmostEqual(mean, record["loss"], delta=1e-6)

    @plain
    def test_a_client_that_is_left_out_has_not_arrived(self):
        self.federate("run", "rounds=4", "optimizer.lr=0.5", "server_optimizer.lr=100", "model.hidden=[9,9]")
        left_out = [record["clients_left_out"] for record in self.evaluations("run", "train")]
        self.assertEqual([line["arrived"].count(False) for line in self.participants("run")], left_out)
        self.assertGreater(sum(left_out), 0)

    @plain
    def test_a_line_is_as_long_as_a_round_has_clients(self):
        self.federate("run", "rounds=1", "total_clients=240", "clients_per_round=200")
        line, = self.participants("run")
        self.assertEqual(len(set(line["client"])), 200)
        self.assertGreater(len(self.read("run", "participants.jsonl")), 4096)

    @plain
    def test_they_are_the_same_bytes_however_many_train_at_a_time_and_whatever_went_wrong(self):
        words = ["rounds=6", "federate.checkpoint_every_rounds=2"]
        self.federate("whole", *words, "parallel_clients=1")
        self.federate("lanes", *words, "parallel_clients=2")
        self.federate("again", *words, env={"BRIM_FAULT": "step:4:begin:1"})
        self.federate("back", *words, env={"BRIM_FAULT": "step:4:update:1"})  # loses the parameters of round 3
        self.assertIn("recovered", self.events("back"))
        for run in "lanes", "again", "back":
            self.assertEqual(self.read(run, "participants.jsonl"), self.read("whole", "participants.jsonl"), run)

    def test_a_resumed_federation_cuts_them_to_the_rounds_of_its_checkpoint(self):
        words = ["rounds=6", "federate.checkpoint_every_rounds=2"]
        self.federate("whole", *words)
        fault = ",".join(f"step:4:begin:{n}" for n in range(1, 13))
        for name, change in (("more", lambda text: text + text), ("half a line", lambda text: text + '{"round":4,"cl')):
            with self.subTest(name):
                self.federate(name, *words, status=NO_FIT, env={"BRIM_FAULT": fault})
                path = self.folder / name / "participants.jsonl"
                text = path.read_text()
                self.assertEqual(text.count("\n"), 3)
                path.write_text(change(text))
                self.brim("federate", "--resume", name)
                self.assertEqual(path.read_text(), self.read("whole", "participants.jsonl"))

    def test_lost_lines_are_reported_and_counted(self):
        fault = ",".join(f"step:4:begin:{n}" for n in range(1, 13))
        self.federate("run", "rounds=6", status=NO_FIT, env={"BRIM_FAULT": fault})
        (self.folder / "run/participants.jsonl").unlink()
        result = self.brim("federate", "--resume", "run")
        self.assertIn("participants.jsonl' has 0 records, but had 3 when the checkpoint was written", result.err)
        self.assertEqual([line.get("round") for line in self.participants("run")], [None, None, None, 4, 5, 6])

    @plain
    def test_other_runs_have_no_such_file(self):
        self.train("run", *SMALL[:5], *SMALL[7:], "training.epochs=1")
        self.assertFalse((self.folder / "run/participants.jsonl").exists())


class Memory(Runs):
    """brim asks policies after each round of clients, also after rounds without an evaluation."""

    def cleanups(self, run):
        return [(event["step"], event["choice"], event["reason"]) for event in self.records(run, "events.jsonl")
                if event["event"] == "decision" and "cleanup" in event["choice"]]

    def test_light_every_5_rounds_heavy_every_10_and_heavy_at_the_end(self):
        for every in 1, 4:
            with self.subTest(eval_every_rounds=every):
                run = f"run {every}"
                result = self.federate(run, "rounds=12", "policy=periodic", f"federate.eval_every_rounds={every}")
                self.assertEqual(self.cleanups(run), [(5, "light cleanup", "planned at round 5"),
                                                      (10, "heavy cleanup", "planned at round 10"),
                                                      (12, "heavy cleanup", "at the end, after round 12")])
                for line in (r"\[Memory\] Before cleanup: \d+\.\d\d GB allocated$",
                             r"\[Memory\] After cleanup: \d+\.\d\d GB \(freed \d+\.\d\d GB\)$"):
                    self.assertEqual(len(re.findall(line, result.err, re.M)), 3)

    @plain
    def test_a_run_that_ends_early_is_cleaned_up_at_its_end(self):
        self.federate("run", "rounds=30", "optimizer.lr=0.02", "policy=periodic", "federate.patience=2",
                      "federate.convergence_threshold=0.05")
        end = self.summary("run")["steps"]
        self.assertLess(end, 30)
        self.assertEqual(self.cleanups("run")[-1], (end, "heavy cleanup", f"at the end, after round {end}"))

    @plain
    def test_the_key_counts_rounds_of_clients(self):
        self.federate("run", "rounds=9", "federate.eval_every_rounds=3", "training.clear_cache_every_n_rounds=4")
        self.assertEqual([step for step, _, _ in self.cleanups("run")], [4, 8])

    @plain
    def test_cleaning_up_changes_no_number(self):
        self.federate("plain", "rounds=6")
        self.federate("often", "rounds=6", "policy=periodic", "policy.periodic.light_every_n_rounds=1",
                      "policy.periodic.heavy_every_n_rounds=2")
        self.assertEqual(len(self.cleanups("often")), 6)
        self.assert_same_checkpoint("plain", "often", 6)
        self.assert_same_records("plain", "often")
        self.assertEqual(self.read("plain", "participants.jsonl"), self.read("often", "participants.jsonl"))

    @plain
    def test_a_resumed_run_cleans_up_after_the_same_rounds(self):
        words = ["rounds=12", "policy=periodic", "federate.eval_every_rounds=5", "federate.checkpoint_every_rounds=1"]
        fault = ",".join(f"step:8:begin:{n}" for n in range(1, 13))
        self.federate("run", *words, status=NO_FIT, env={"BRIM_FAULT": fault})
        self.brim("federate", "--resume", "run")
        self.assertEqual([step for step, _, reason in self.cleanups("run") if "round" in reason], [5, 10, 12])

    def test_pressure_is_reported_with_the_round(self):
        """Some of the host's memory is always in use, so a threshold near 0 is always reached."""
        words = ["rounds=1000", "federate.eval_every_rounds=1000", "federate.checkpoint_every_rounds=1000",
                 "observe.log_every_steps=1000", "memory.check_interval_seconds=0.002"]
        result = self.federate("run", *words, "memory.warn_percent=0.01", "memory.critical_percent=0")
        reported, = re.findall(r"Warning at round (\d+): RAM at \d+\.\d%", result.err)
        event, = (e for e in self.records("run", "events.jsonl") if e["event"] == "memory_warning")
        self.assertEqual(event["step"], int(reported))

    @plain
    def test_measures_under_pressure_change_no_number(self):
        words = ["rounds=300", "memory.check_interval_seconds=0.002", "federate.checkpoint_every_rounds=300",
                 "parallel_clients=2"]
        self.federate("alone", *words)
        result = self.federate("run", *words, "memory.warn_percent=0.01", "memory.critical_percent=0.02")
        self.assertRegex(result.err, r"Critical at round \d+: RAM at \d+\.\d%")
        self.assertIn("[Memory] After cleanup: ", result.err)
        self.assertRegex(result.err, r"recovery: 1 client at a time, micro-batch 8 x 1.*, a plan of [\d.]+ KiB "
                                     r"instead of [\d.]+ KiB: memory pressure")
        device_bytes = [record["device_bytes"] for record in self.evaluations("run", "train")]
        self.assertLess(device_bytes[-1], self.summary("alone")["device_bytes"])
        self.assert_same_checkpoint("alone", "run", 300)
        self.assert_same_records("alone", "run")

    @plain
    def test_thresholds_are_85_and_90_percent(self):
        text = self.brim("--config-name", "federate", "config", "policy=periodic").out
        self.assertRegex(text, r"(?m)^  warn_percent: 85$")
        self.assertRegex(text, r"(?m)^  critical_percent: 90$")
        self.assertRegex(text, r"(?m)^    light_every_n_rounds: 5\n    heavy_every_n_rounds: 10$")


def settled(figures, threshold, patience, least):
    """Returns the round after which the rule ends a run with these losses and accuracies."""
    loss, accuracy, row = math.inf, -math.inf, 0
    for step, (new_loss, new_accuracy) in enumerate(figures, 1):
        lower, better = new_loss < loss - threshold, new_accuracy > accuracy + threshold
        loss = new_loss if lower else loss
        accuracy = new_accuracy if better else accuracy
        row = 0 if lower or better else row + 1
        if row >= patience and step >= least:
            return step
    return len(figures)


if __name__ == "__main__":
    main()
