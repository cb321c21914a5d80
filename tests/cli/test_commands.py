"""Tests commands: help, mistyped words, plan before train, exit statuses."""

import os
import subprocess

from support import BINARY, DONE, FAILED, LOAD, NO_FIT, SMALL, USAGE, Case, main, plain

COMMANDS = ["train", "start", "eval", "predict", "export", "plan", "config", "plugins", "new", "devices",
            "ops", "version"]


class Help(Case):
    def test_help_lists_every_command_and_the_exit_statuses(self):
        text = self.brim("--help").out
        for name in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {name} ")
        for number in "0 1 2 3 4 5 6".replace("1 ", "").split():
            self.assertRegex(text, rf"\b{number} \w")

    @plain
    def test_each_command_has_its_own_help(self):
        for name in COMMANDS:
            with self.subTest(name):
                text = self.brim(name, "--help").out
                self.assertIn(f"usage: brim {name}", text)
                self.assertEqual(text, self.brim(name, "-h").out)

    @plain
    def test_help_needs_no_plugins_and_no_configuration(self):
        self.brim("--config-path", "/nowhere", "train", "--help", env={"BRIM_PLUGIN_PATH": "/nowhere"})

    @plain
    def test_no_command_prints_help_as_an_error(self):
        result = self.brim(status=USAGE)
        self.assertIn("usage: brim", result.err)
        self.assertEqual(result.out, "")

    @plain
    def test_version(self):
        self.assertRegex(self.brim("version").out, r"^brim \d+\.\d+\.\d+\n")
        self.assertRegex(self.brim("--version").out, r"^brim \d+\.\d+\.\d+\n")
        self.assertIn("version", self.brim("version", "--json").json)


class WrongWords(Case):
    @plain
    def test_unknown_command_suggests_the_nearest(self):
        result = self.brim("trian", status=USAGE)
        self.assert_error(result, "unknown command 'trian'", "did you mean 'brim train'?")

    @plain
    def test_unknown_command_far_from_any_names_none(self):
        result = self.brim("xylophone", status=USAGE)
        self.assert_error(result, "unknown command 'xylophone'")
        self.assertNotIn("did you mean", result.err)

    @plain
    def test_unknown_option_suggests_the_nearest(self):
        result = self.brim("train", "--resumee", "x", status=USAGE)
        self.assert_error(result, "unknown option '--resumee'", "did you mean '--resume'?")

    @plain
    def test_unknown_option_with_a_value_suggests_the_nearest(self):
        result = self.brim("train", "--resum=runs/a", status=USAGE)
        self.assert_error(result, "unknown option '--resum=runs/a'", "did you mean '--resume'?")

    @plain
    def test_very_short_words_are_not_guessed_at(self):
        for words in (["a"], ["config", "-x"], ["config", "fun=1"], ["config", "lo=1"], ["config", "optimizer.x=1"]):
            with self.subTest(words):
                self.assertNotIn("did you mean", self.brim(*words, status=USAGE).err)
        self.assertIn("did you mean 'run.dir'?", self.brim("config", "di=1", status=USAGE).err)

    def test_the_maximum_number_of_folders(self):
        (self.folder / "p").mkdir()
        result = self.brim(*["--plugin-path", "p"] * 32, "--config-path", "p", "--quiet", "version")
        self.assertEqual(result.err, "")
        result = self.brim(*["--plugin-path", "p"] * 33, "version", status=USAGE)
        self.assert_error(result, "--plugin-path given more than 32 times")

    @plain
    def test_option_without_its_value(self):
        self.assert_error(self.brim("train", "--resume", status=USAGE), "'--resume' needs a value")

    @plain
    def test_flag_with_a_value(self):
        self.assert_error(self.brim("plan", "--json=1", status=USAGE), "'--json' takes no value")

    @plain
    def test_unknown_key_names_argument_and_nearest(self):
        result = self.brim("train", "dataset=synthetic", "optimizer.lrr=1e-4", status=USAGE)
        self.assert_error(result, "unknown key 'optimizer.lrr'", "argument 2: optimizer.lrr=1e-4",
                          "did you mean 'optimizer.lr'?")

    def test_all_errors_are_reported_together(self):
        result = self.brim("train", "dataset=synthetic", "training.batch_size=0", "training.epoch=3", "seed=x",
                           status=USAGE)
        self.assert_error(result, "training.batch_size", "training.epoch", "seed")
        self.assertGreaterEqual(result.err.count("error: "), 3, result)

    def test_unknown_option_of_a_group_lists_the_options(self):
        result = self.brim("train", "model=cnnn", status=USAGE)
        self.assert_error(result, "no option 'cnnn' in group 'model'", "cnn", "mlp")

    @plain
    def test_an_option_with_a_missing_plugin_lists_those_found(self):
        option = self.folder / "model" / "mine.yaml"
        option.parent.mkdir()
        option.write_text("id: absent\n")
        result = self.brim("train", "--config-path", self.folder, "model=mine", "dataset=synthetic", status=USAGE)
        self.assert_error(result, "no plugin 'absent' for group 'model' was found", "mine.yaml:1:5", "found:", " cnn ")
        self.assertNotIn("available", result.err)

    def test_a_value_of_the_wrong_type_names_the_position(self):
        result = self.brim("train", "dataset=synthetic", "training.steps=many", status=USAGE)
        self.assert_error(result, "training.steps", "argument 2")

    @plain
    def test_a_bad_command_line_leaves_no_folder(self):
        self.train("run", "training.batch_size=0", status=USAGE)
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name != "claims"], [])


class Plan(Case):
    def test_json_has_peak_bound_classes_and_table(self):
        plan = self.brim("plan", "--json", *SMALL).json
        self.assertGreater(plan["peak_bytes"], 0)
        self.assertLessEqual(plan["lower_bound_bytes"], plan["peak_bytes"])
        for name in ("parameters", "gradients", "optimizer", "activations", "workspace", "data"):
            self.assertGreaterEqual(plan["classes"][name], 0)
        self.assertEqual(sum(plan["classes"].values()), plan["peak_bytes"])
        chosen = [row for row in plan["table"] if row["chosen"]]
        self.assertEqual(len(chosen), 1)
        self.assertEqual(chosen[0]["peak_bytes"], plan["peak_bytes"])
        self.assertEqual(chosen[0]["batch_size"], 128)
        sizes = [row["batch_size"] for row in plan["table"]]
        self.assertEqual(sizes, sorted(set(sizes)))
        self.assertGreater(len(sizes), 5)

    @plain
    def test_parameters_and_moments_have_the_computed_sizes(self):
        plan = self.brim("plan", "--json", "model=cnn", "dataset=synthetic", "optimizer=adamw").json
        parameters = 4 * 1_199_882
        for name, bytes_least in (("parameters", parameters), ("gradients", parameters), ("optimizer", 2 * parameters)):
            self.assertGreaterEqual(plan["classes"][name], bytes_least)
            self.assertLess(plan["classes"][name], bytes_least * 1.02 + 4096)

    @plain
    def test_the_row_of_another_micro_batch_is_the_plan_of_that_micro_batch(self):
        rows = self.brim("plan", "--json", *SMALL).json["table"]
        for row in rows[::3]:
            other = self.brim("plan", "--json", *SMALL, f"training.batch_size={row['batch_size']}").json
            self.assertEqual(other["peak_bytes"], row["peak_bytes"])

    @plain
    def test_text_names_peak_and_operation(self):
        text = self.brim("plan", *SMALL).out
        self.assertRegex(text, r"peak .* exactly \d+ bytes")
        self.assertIn("micro-batch", text)

    @plain
    def test_plan_leaves_nothing(self):
        self.brim("plan", "model=cnn", "dataset=synthetic", "--no-timing")
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name != "claims"], [])
        self.brim("plan", "model=cnn", "dataset=synthetic")  # writes nothing into this folder except times of kernels
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"cache", "claims"})

    def test_over_the_budget_a_fitting_size_is_suggested(self):
        limit = ["memory.limit_mb=16", "model=cnn", "dataset=synthetic", "memory.timing=false"]
        peak = self.brim("plan", "--json", *limit[1:]).json["peak_bytes"]
        self.assertGreater(peak, 16 << 20)
        result = self.brim("train", "memory.limit_mb=32", "run.dir=run", *limit[1:], status=NO_FIT)
        self.assert_error(result, "the run needs", "memory.limit_mb allows 32.0 MiB", "would fit")
        self.assertFalse((self.folder / "run").exists())
        self.brim("plan", *limit, status=NO_FIT)

    @plain
    def test_suggested_sizes_fit(self):
        result = self.brim("train", "memory.limit_mb=40", "run.dir=run", "model=cnn", "dataset=synthetic",
                           status=NO_FIT)
        advice = next(line for line in result.err.splitlines() if "would fit" in line).split()
        batch, accumulation = advice[0], advice[1]
        self.train("run", "memory.limit_mb=40", "model=cnn", "dataset=synthetic", "dataset.test_count=0",
                   "training.steps=1", batch, accumulation)
        self.assertLessEqual(self.summary("run")["device_peak_bytes"], 40 << 20)


class Look(Case):
    def test_config_prints_a_configuration_that_is_itself_valid(self):
        text = self.brim("config", *SMALL, "optimizer.lr=0.25").out
        self.assertRegex(text, r"(?m)^  lr: 0?\.25$")
        (self.folder / "mine").mkdir()
        (self.folder / "mine" / "again.yaml").write_text(text, encoding="utf-8")
        again = self.brim("--config-path", "mine", "--config-name", "again", "config").out
        self.assertEqual(again, text)

    def test_config_shows_missing_values_and_a_run_names_them_all(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine" / "open.yaml").write_text("defaults: [config]\nseed: ???\nrun:\n  name: ???\n",
                                                        encoding="utf-8")
        mine = ("--config-path", "mine", "--config-name", "open")
        text = self.brim(*mine, "config").out
        self.assertIn("seed: ???  # mandatory", text)
        self.assertIn("  name: ???  # mandatory", text)
        for command in ("train", "plan"):
            result = self.brim(*mine, command, status=USAGE)
            self.assert_error(result, "'seed' is mandatory and has no value: write seed=VALUE")
            self.assertIn("mine/open.yaml:2:7", result.err)
            self.assert_error(result, "'run.name' is mandatory and has no value: write run.name=VALUE")
        self.assertIn("seed: 4", self.brim(*mine, "config", "seed=4").out)

    def test_values_refer_to_each_other_and_to_the_environment(self):
        text = self.brim("config", "run.name=${model.id}-${oc.env:BRIM_TEST_WHO,nobody}", "model=mlp",
                         env={"BRIM_TEST_WHO": "me"}).out
        self.assertIn("  name: mlp-me\n", text)

    @plain
    def test_an_old_name_warns_once_and_means_the_new_one(self):
        result = self.brim("config", "training.fp16=false")
        self.assertEqual(result.err.count("training.fp16=false is taken as precision=fp32, its new name"), 1)
        self.assertIn("precision: fp32\n", result.out)
        for word in ("fp16=true", "training.fp16=true"):
            result = self.brim("config", word)
            self.assertEqual(result.err.count(f"{word} is taken as precision=fp16, its new name"), 1)
            self.assertIn("precision: fp16\n", result.out)

    def test_help_lists_every_key(self):
        text = self.brim("train", "--help").out
        self.assertRegex(text, r"(?m)^training\.batch_size +integer +64 +auto\|\[1,1048576\] +samples in a micro-batch")
        self.assertRegex(text, r"(?m)^model\.\w+ .*")
        self.assertRegex(text, r"(?m)^optimizer\.lr ")

    @plain
    def test_origins_say_where_a_value_comes_from(self):
        text = self.brim("config", "--origins", *SMALL).out
        line = next(line for line in text.splitlines() if "train_count" in line)
        self.assertIn("dataset.train_count=256", line)

    def test_plugins_lists_the_choices_of_a_run(self):
        text = self.brim("plugins").out
        for name in ("cnn", "mlp", "idx", "synthetic", "cpu", "reference", "adamw", "sgd", "cosine"):
            self.assertIn(name, text)
        self.assertIn("width", self.brim("plugins", "model/cnn").out)

    @plain
    def test_unknown_device(self):
        result = self.brim("train", *SMALL, "device=cpu:7", "backend=cpu", status=NO_FIT)
        self.assert_error(result, "no device 'cpu:7'")


class Streams(Case):
    def test_results_that_cannot_be_written_are_an_error(self):
        for command in (["plan", "--no-timing"], ["plan", "--no-timing", "--json"], ["start", "--yes", *SMALL],
                        ["plugins"], ["config"], ["devices"], ["ops"], ["version", "--json"],
                        ["complete", "--", "brim "], ["--help"], ["train", "--help"]):
            with self.subTest(command), open("/dev/full", "w", encoding="ascii") as full:
                process = subprocess.run([BINARY, *command], stdout=full, stderr=subprocess.PIPE,
                                         text=True, check=False)
                self.assertEqual(process.returncode, FAILED, process.stderr)
                self.assertRegex(process.stderr, "error: .*writ")
                self.assertNotIn("No such file", process.stderr)  # errno of an unrelated call in between

    def test_closed_streams_do_not_end_in_the_files_of_a_run(self):
        command = " ".join([BINARY, "train", "run.dir=run", "'model=mlp'", "'dataset=synthetic'", "training.steps=2"])
        status = subprocess.run(["sh", "-c", f"{command} <&- >&- 2>&-"], cwd=self.folder, check=False).returncode
        self.assertEqual(status, DONE)
        self.assertEqual(self.events("run"), ["started", "checkpoint", "finished"])

    @plain
    def test_a_pipe_is_not_waited_for(self):
        (self.folder / "my").mkdir()
        os.mkfifo(self.folder / "my" / "config.yaml")
        self.assert_error(self.brim("config", "--config-path", "my", status=LOAD), "it is not a file")

    @plain
    def test_a_missing_config_path_is_refused(self):
        result = self.brim("config", "--config-path", "typo", status=LOAD)
        self.assert_error(result, "cannot look for configurations in 'typo': No such file or directory")


class ExitStatuses(Case):
    """Exit statuses 0 to 5, each caused in one way; status 6 is in test_resume.py."""

    @plain
    def test_done(self):
        self.train("run", *SMALL, "training.steps=2", status=DONE)

    @plain
    def test_usage(self):
        self.brim("train", "no.such.key=1", status=USAGE)

    def test_a_plugin_that_cannot_be_loaded(self):
        (self.folder / "model").mkdir()
        (self.folder / "model" / "broken.so").write_text("this is not a library")
        result = self.brim("--plugin-path", self.folder / "model" / "broken.so", "train", *SMALL, status=LOAD)
        self.assert_error(result, "broken.so")

    @plain
    def test_a_file_that_cannot_be_loaded(self):
        self.brim("train", "--resume", "nowhere", status=LOAD)

    @plain
    def test_no_fit(self):
        self.brim("train", *SMALL, "memory.limit_mb=1", "model.hidden=[4096]", status=NO_FIT)

    def test_training_failed(self):
        self.train("run", *SMALL, "optimizer=sgd", "optimizer.lr=1e30", "schedule=constant", status=FAILED)


if __name__ == "__main__":
    main()
