"""Tests brim config and the errors of configurations, as a user sees them."""

import json
import os
import pathlib
import pwd

from support import BINARY, FULL, LOAD, NETWORK, SMALL, USAGE, Case, main, plain, some_of, write_idx_dataset

# The configurations of the installation or of the build: both lie next to the program.
CONFIGS = pathlib.Path(BINARY).resolve().parent.parent / "share/brim/configs"
PLUGINS = os.environ["BRIM_CONFIG_PLUGINS"]  # has a model "vit" with a parameter "depth"
COMMANDS = ["train", "start", "eval", "predict", "plan", "compare", "runs", "config", "plugins", "devices", "ops",
            "complete", "version"]
# Models that wrap another one. Each needs a backbone and cannot be a backbone itself; other models take none.
AROUND = {"linear_probe", "lora"}


class Messages(Case):
    """Whole error messages: the fault, its position, and the remedy."""

    def reported(self, *argv):
        result = self.brim(*argv, status=USAGE)
        self.assertEqual(result.out, "")
        return result.err

    @plain
    def test_an_unknown_key(self):
        self.assertEqual(self.reported("train", "seed=1", "run.dir=run", "optimizer.learning_rat=1e-4"),
                         "error: unknown key 'optimizer.learning_rat'\n"
                         "  command line, argument 3: optimizer.learning_rat=1e-4\n"
                         "  did you mean 'optimizer.lr'? to add a new key, write +optimizer.learning_rat=1e-4\n"
                         "  optimizer 'adamw' has: lr weight_decay beta1 beta2 eps no_decay bias_correction update\n")

    @plain
    def test_a_value_out_of_range(self):
        (self.folder / "configs/model").mkdir(parents=True)
        (self.folder / "configs/model/vit.yaml").write_text("id: vit\n# one\n# two\n# three\n# four\n\ndepth:     0\n")
        err = self.reported("--plugin-path", PLUGINS, "--config-path", "configs", "train", "model=vit")
        self.assertEqual("".join(line for line in err.splitlines(True) if not line.endswith(" is hidden\n")),
                         "error: 'model.depth' must be in [1,512], got 0\n"
                         "  configs/model/vit.yaml:7:12   (vit: number of blocks; default 12)\n")

    @plain
    def test_no_such_option(self):
        (self.folder / "configs/model").mkdir(parents=True)
        for name in ("lightcnn", "resnet18", "vit"):
            (self.folder / f"configs/model/{name}.yaml").write_text("id: cnn\n")
        plugins = self.brim("plugins", "model", "--json").json["plugins"]
        files = {path.stem for path in (CONFIGS / "model").glob("*.yaml")}
        options = " ".join(sorted({"lightcnn", "resnet18", "vit"} | files | {plugin["id"] for plugin in plugins}))
        self.assertRegex(options, r"\bcnn .*lightcnn .*mlp .*resnet18 .*vit\b")
        lines = self.reported("--config-path", "./configs", "train", "model=resnet19").splitlines()
        self.assertEqual(lines[:2], ["error: no option 'resnet19' in group 'model'", "  did you mean 'resnet18'?"])
        self.assertEqual(" ".join(line.strip() for line in lines[2:-1]), f"available: {options}")
        self.assertEqual(lines[-1], f"  searched: ./configs {CONFIGS}")
        self.assertGreater(len(lines), 4)
        self.assertLess(max(map(len, lines[:-1])), 120)

    @plain
    def test_a_sweep_without_m(self):
        self.assertEqual(self.reported("train", "optimizer.lr=1,2"),
                         "error: 'optimizer.lr=1,2' is a sweep: add -m, or write optimizer.lr=[1,2] for a list\n")

    def test_all_of_them_together_leave_no_files(self):
        err = self.reported("train", "run.dir=run", "optimizer.learning_rat=1", "training.epochs=-1", "model=resnet19")
        for said in ("unknown key 'optimizer.learning_rat'", "'training.epochs' must be in [0,1000000], got -1",
                     "no option 'resnet19' in group 'model'"):
            self.assertIn(f"error: {said}\n", err)
        self.assertEqual(list(self.folder.iterdir()), [])


class Resolved(Case):
    """The output of `brim config` is a configuration that reproduces the same output."""

    def check(self, *words, ways=((), ("--origins",))):
        text = self.brim("config", *words).out
        for name, way in zip(("plain", "origins"), ways):
            said = self.brim("config", *words, *way).out if way else text
            (self.folder / f"{name}.yaml").write_text(said)
            again = self.brim("--config-path", ".", "--config-name", name, "config")
            self.assertEqual(again.out, text, words)

    def test_every_root_configuration(self):
        for path in sorted(CONFIGS.glob("*.yaml")):
            self.check("--config-name", path.stem)

    def test_every_option_of_every_group(self):
        group, options = "", []
        for line in self.brim("config", "--groups").out.splitlines():
            if not line.startswith(" "):
                group = line
            elif line.split() != ["none"]:
                options.append((group, line.split()[0]))
        self.assertGreater(len(options), 100)
        for number, (group, option) in some_of(enumerate(options), 9):
            ways = ((), ("--origins",)) if FULL or number % 4 == 0 else ((),)
            if option not in {*AROUND, "hf_lora"} or group != "backbone":
                more = ["backbone=mlp"] if option in AROUND else ["model=lora"] if group == "backbone" else []
                if group == "server_optimizer":
                    more = ["total_clients=20", "method=random"]
                if group == "method":
                    more = ["total_clients=20", "server_optimizer=sgd"]
                if group == "aggregator":
                    more = ["total_clients=20", "method=random", "server_optimizer=sgd"]
                if option in ("hf", "hf_lora"):
                    more.append(f"model.weights={NETWORK}")
                self.check(f"{group}={option}", *more, ways=ways)

    def test_values_of_every_kind(self):
        self.check("run.name=a: b #c", "+x={a: [1, '2', true, 'true', null, ~, '~', {b: 'no'}]}", "+s=' lead'",
                   "+t='a\\nb'", '+u="a\\nb"', "+e=", "+v=ünï 🎉", "+w=\\${a}", "+z='???'", '+q=\'a"b\'', "+y=[]",
                   "+m={}", "policy=[]", "memory.limit_mb=1.5GiB", "+long=" + "x" * 3000)


@plain
class Folders(Case):
    def test_a_missing_plugin_folder(self):
        """A missing folder is an error on the command line, but only a warning if BRIM_PLUGIN_PATH names it, because
        that variable applies to every command."""
        env = {"BRIM_PLUGIN_PATH": "nowhere"}
        text = "the plugin folder 'nowhere' cannot be read: No such file or directory\n"
        for words in (["version"], ["config", *SMALL], ["train", "run.dir=run", "training.steps=1", "--quiet", *SMALL]):
            self.assertEqual(self.brim(*words, env=env).err, f"warning: BRIM_PLUGIN_PATH: {text}")
        self.assertEqual(self.brim("--plugin-path", "nowhere", "version", status=LOAD).err, f"error: {text}")

    def test_empty_names_in_the_list_of_plugin_folders(self):
        self.assertEqual(self.brim("config", *SMALL, env={"BRIM_PLUGIN_PATH": "::"}).err, "")

    def test_a_missing_configuration_folder(self):
        self.assert_error(self.brim("--config-path", "nowhere", "config", status=LOAD), "'nowhere'")


class Options(Case):
    """Arguments with a meaning in other programs."""

    def hint(self, *words):
        lines = self.brim(*words, status=USAGE).err.splitlines()
        self.assertRegex(lines[0], "^error: unknown (option|command) ")
        return lines[1].strip()

    def test_a_key_with_dashes(self):
        for words, key in ((["--lr", "1e-3"], "optimizer.lr=1e-3"), (["--batch_size=4"], "training.batch_size=4"),
                           (["--batch-size", "4"], "training.batch_size=4"), (["--epochs"], "training.epochs=VALUE"),
                           (["--model", "mlp"], "model=mlp"), (["--training.steps=3"], "training.steps=3"),
                           (["--epochs", "seed=2"], "training.epochs=VALUE")):
            self.assertEqual(self.hint("train", *words), f"a key is written without dashes: {key}")

    @plain
    def test_options_of_hydra(self):
        for words, here in ((["--config-dir", "x"], "--config-path DIR"), (["-cn", "x"], "--config-name NAME"),
                            (["-cd=x"], "--config-path DIR"), (["--cfg", "job"], "brim config")):
            self.assertEqual(self.hint("train", *words), f"in brim this is: {here}")
            self.assertEqual(self.hint(*words, "train"), f"in brim this is: {here}")

    @plain
    def test_commands_of_other_programs(self):
        self.assertEqual(self.hint("sweep", "seed=1,2"), "in brim this is: brim train -m KEY=A,B")
        self.assertEqual(self.hint("model=mlp"), "an override goes after a command: brim train model=mlp")
        self.assertEqual(self.hint("Train"), "did you mean 'brim train'?")

    @plain
    def test_a_mistyped_option_is_not_taken_for_a_key(self):
        self.assertEqual(self.hint("train", "--resme", "x"), "did you mean '--resume'?")

    @plain
    def test_case_does_not_matter(self):
        self.assertIn("did you mean 'adamw'?", self.brim("config", "optimizer=AdamW", status=USAGE).err)
        self.assertIn("did you mean 'mlp'?", self.brim("config", "model=MLP", status=USAGE).err)
        self.assertIn("did you mean 'one_cycle'?", self.brim("config", "schedule=one-cycle", status=USAGE).err)


class Choices(Case):
    """Settings that a file makes for an option apply only when that option is chosen."""

    def value(self, key, *words):
        section, name = key.split(".")
        lines = self.brim("config", *words).out.splitlines()
        start = lines.index(f"{section}:")
        return next(line.split(": ", 1)[1] for line in lines[start + 1:] if line.startswith(f"  {name}: "))

    @plain
    def test_an_optimizer_and_a_schedule_have_their_own_defaults(self):
        self.assertEqual(self.value("optimizer.lr"), "2e-3")
        self.assertEqual(self.value("optimizer.lr", "optimizer=adamw"), "2e-3")
        self.assertEqual(float(self.value("optimizer.lr", "optimizer=lion")), 1e-4)
        self.assertEqual(float(self.value("optimizer.lr", "optimizer=adafactor")), 1e-2)
        self.assertEqual(float(self.value("optimizer.lr", "--config-name", "robust", "optimizer=sgd")), 1e-2)
        self.assertEqual(self.value("optimizer.lr", "optimizer.lr=3", "optimizer=lion"), "3")
        self.assertEqual(self.value("schedule.warmup_fraction"), "0.3")
        self.assertEqual(self.value("schedule.warmup_fraction", "schedule=constant"), "0")
        text = self.brim("config", "optimizer=lion", "--origins").out
        self.assertRegex(text, r"(?m)^  id: lion  # command line, argument 1: optimizer=lion\n  lr: 0.0001  # default$")

    @plain
    def test_an_experiments_settings_do_so_too(self):
        words = ["experiment=temperature", "dataset.path=x"]
        self.assertEqual(self.value("optimizer.lr", *words), "1e-3")
        self.assertEqual(self.value("schedule.warmup_fraction", *words), "0")
        self.assertEqual(float(self.value("optimizer.lr", *words, "optimizer=lion")), 1e-4)

    @plain
    def test_augment_none_leaves_images_as_they_are(self):
        for dataset in ("image_folder", "flowers102", "cub200", "cifar10"):
            words = [f"dataset={dataset}", "dataset.path=x"]
            for key in ("flip", "random_resized_crop", "brightness", "mixup"):
                with self.subTest(dataset, key=key):
                    self.assertIn(self.value(f"augment.{key}", *words, "augment=none"), ("false", "0"))
            self.assertEqual(self.value("augment.flip", *words), "true")
        self.assertEqual(self.value("augment.brightness", "dataset=image_folder", "dataset.path=x", "augment=gentle"),
                         "0.2")
        self.assertEqual(self.value("transform.size", "experiment=emotion", "dataset.path=x", "transform=clip"), "224")

    def test_dropped_values_of_a_users_file_are_reported(self):
        (self.folder / "my").mkdir()
        (self.folder / "my/mine.yaml").write_text("defaults: [config, _self_]\noptimizer: {lr: 0.5}\n")
        mine = ["--config-path", "my", "--config-name", "mine"]
        self.assertEqual(self.brim("config", *mine).err, "")
        result = self.brim("config", *mine, "optimizer=lion")
        self.assertEqual(result.err, "'optimizer.lr' of my/mine.yaml has no effect: it belongs to optimizer=adamw\n")
        self.assertIn("  lr: 0.0001\n", result.out)
        self.assertEqual(self.brim("config", *mine, "optimizer=lion", "optimizer.lr=0.1").err, "")
        (self.folder / "my/experiment").mkdir()
        (self.folder / "my/experiment/own.yaml").write_text("defaults: [optimizer: sgd, _self_]\n"
                                                            "optimizer: {lr: 0.25}\n")
        result = self.brim("config", *mine, "experiment=own")
        self.assertEqual(result.err, "", "another value is there, so none is missed")
        self.assertIn("  id: sgd\n  lr: 0.25\n", result.out)

    def test_runs_made_from_a_run_and_sweeps(self):
        self.train("run", *SMALL, "training.steps=1", "optimizer.weight_decay=0.125")
        self.brim("train", "--from", "run", "-m", "run.dir=sweep", "optimizer=adamw,lion")
        self.assertRegex(self.read("sweep/1/config.yaml"), r"(?m)^  id: lion\n  lr: 0.0001\n  weight_decay: 0$")
        self.brim("train", *SMALL, "training.steps=1", "-m", "run.dir=other", "optimizer=adamw,lion")
        self.assertRegex(self.read("other/0/config.yaml"), r"(?m)^  id: adamw\n  lr: 2e-3$")
        self.assertRegex(self.read("other/1/config.yaml"), r"(?m)^  id: lion\n  lr: 0.0001$")


class Runs(Case):
    """--from and --resume."""

    @plain
    def test_another_root_configuration_is_refused(self):
        self.train("run", *SMALL, "training.steps=1")
        for words in (["train", "--from", "run"], ["train", "--resume", "run"], ["eval", "run"], ["export", "run"],
                      ["predict", "run", "x"], ["generate", "run"]):
            for name in ("robust", "nowhere"):
                self.assert_error(self.brim("--config-name", name, *words, status=USAGE),
                                  f"--config-name {name} cannot be used here", "the run 'run'")

    def test_a_folder_of_configurations_is_for_options_only(self):
        self.train("run", *SMALL, "training.steps=1")
        (self.folder / "my/schedule").mkdir(parents=True)
        (self.folder / "my/schedule/slow.yaml").write_text("id: constant\nwarmup_steps: 7\n")
        result = self.brim("--config-path", "my", "train", "--from", "run", "run.dir=next", "schedule=slow")
        self.assertIn("--config-path my: the configuration is that of the run 'run'; only options", result.err)
        self.assertIn("  warmup_steps: 7\n", self.read("next/config.yaml"))

    def test_a_plugin_that_is_gone_is_named_with_its_file(self):
        self.train("run", *SMALL, "training.steps=1")
        plugin = self.folder / "mine.so"
        plugin.write_text("")
        text = self.read("run/config.yaml").replace("  id: mlp\n", "  id: mine\n")
        (self.folder / "run/config.yaml").write_text(text)
        reported = self.json("run/plugins.json")
        self.assertTrue(pathlib.Path(reported["model"]["file"]).is_absolute())
        reported["model"].update(id="mine", file=str(plugin))
        (self.folder / "run/plugins.json").write_text(json.dumps(reported))
        for words in (["train", "--from", "run"], ["eval", "run"], ["predict", "run", "config.yaml"]):
            self.assert_error(self.brim(*words, status=USAGE), "no plugin 'mine' for group 'model' was found",
                              f"the run loaded it from {plugin}: add --plugin-path {plugin}")
        plugin.unlink()
        self.assert_error(self.brim("train", "--from", "run", status=USAGE),
                          f"the run loaded it from {plugin}, which no longer exists: pass its new path "
                          "with --plugin-path FILE")

    @plain
    def test_run_dir_must_be_a_new_folder(self):
        (self.folder / "deep").mkdir()
        for folder in ("/", ".", "..", "deep/..", str(self.folder)):
            with self.subTest(folder):
                for words in (["seed=1"], ["-m", "seed=1,2"]):
                    self.assert_error(self.train(folder, *SMALL, *words, status=USAGE), f"run.dir={folder} is ",
                                      "a run needs its own folder")
        self.assertEqual([path.name for path in self.folder.iterdir() if path.name not in ("claims", "cache")],
                         ["deep"])

    @plain
    def test_files_of_the_users_stay(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine/data.json").write_text("mine")
        self.assert_error(self.train("mine", *SMALL, "training.steps=1", status=USAGE),
                          "'mine' already has a file data.json")
        self.assertEqual(self.read("mine/data.json"), "mine")

    @plain
    def test_output_does_not_overwrite_files(self):
        self.train("run", *SMALL, "training.steps=1")
        for name, words in (("a.svg", ["plan", *SMALL, "-o", "a.svg"]), ("b.svg", ["compare", "run", "-o", "b.svg"]),
                            ("report.html", ["report", "run"]), ("d.csv", ["predict", "run", "x", "-o", "d.csv"]),
                            ("e.yaml", ["simulate", "--record", "run", "-o", "e.yaml"]),
                            ("model.safetensors", ["export", "run"])):
            with self.subTest(words):
                (self.folder / name).write_text("mine")
                self.assert_error(self.brim(*words, status=USAGE), f"'{name}' exists already",
                                  "replace it with --force")
                self.assertEqual(self.read(name), "mine")
                if words[0] != "predict":
                    self.brim(*words, "--force")
                    self.assertNotEqual((self.folder / name).read_bytes(), b"mine")

    def test_a_path_may_begin_with_the_home_folder(self):
        (self.folder / "home").mkdir()
        self.train("~/deep/run", *SMALL, "training.steps=1", env={"HOME": str(self.folder / "home")})
        self.assertTrue((self.folder / "home/deep/run/summary.json").exists())
        self.assertFalse((self.folder / "~").exists())
        self.assertIn(f"  dir: {self.folder}/home/deep/run\n", self.read("home/deep/run/config.yaml"))
        self.assert_error(self.brim("config", "run.dir=~/x", env={"HOME": ""}, status=USAGE),
                          "'run.dir': $HOME is not set")
        user = pwd.getpwuid(os.getuid())
        home = user.pw_dir.rstrip("/")
        self.assertIn(f"  dir: {home}/x\n", self.brim("config", f"run.dir=~{user.pw_name}/x").out)
        self.assertIn("  dir: ~nobody-of-this-name/x\n", self.brim("config", "run.dir=~nobody-of-this-name/x").out)

    @plain
    def test_names_of_runs(self):
        self.assert_error(self.brim("config", "run.name=a\x1b[2Jb", status=USAGE),
                          "'run.name' must not contain control characters", "run.name=a\\x1b[2Jb")
        self.assert_error(self.brim("config", "run.name=" + 201 * "k", status=USAGE),
                          "'run.name' has 201 bytes; at most 200")
        self.assertIn("k\n", self.brim("config", "run.name=" + 200 * "k").out)

    def test_names_of_classes_do_not_reach_the_terminal_raw(self):
        rows = "".join(f"{i % 7},{'cat' if i % 2 else chr(27) + '[2J' + chr(0x9b) + 'dog'}\n" for i in range(64))
        (self.folder / "t.csv").write_text("a,kind\n" + rows)
        words = ["model=mlp", "dataset=csv", "dataset.path=t.csv", "dataset.label=kind", "dataset.test_fraction=0.5"]
        results = [self.train("run", *words, "training.steps=1", "training.batch_size=8"), self.brim("eval", "run")]
        for result in results:
            self.assertIn("\\x1b[2J\\x9bdog", result.out + result.err)
            self.assertNotRegex(result.out + result.err, "[\x00-\x08\x0b-\x1f\x7f-\x9f]")

    @plain
    def test_a_data_set_has_the_name_of_its_option(self):
        write_idx_dataset(self.folder / "data")
        data = ["model=mlp", "dataset=fashion_mnist", "dataset.path=data"]
        self.assertIn("mlp on fashion_mnist: adamw", self.brim("plan", *data).out)
        result = self.brim("train", *data, "training.steps=1", "training.batch_size=16")
        self.assertIn("mlp on fashion_mnist: 96 samples", result.out)
        run, = (self.folder / "runs").iterdir()
        self.assertTrue(run.name.startswith("mlp-fashion_mnist-"))
        self.assertIn("  id: idx\n  option: fashion_mnist\n", (run / "config.yaml").read_text())
        self.assertIn(" on fashion_mnist", (run / "report.html").read_text())
        self.assertRegex(self.brim("compare", run).out, r"mlp +fashion_mnist ")
        self.assertRegex(self.brim("eval", run).out, r"(?m)^ *9 +Ankle boot ")
        for words, name in (([], "fashion_mnist"), (["dataset=kmnist", "dataset.path=data"], "kmnist")):
            self.assertIn(f"mlp on {name}:", self.brim("train", "--from", run, f"run.dir={name}", *words).out)
        self.assert_error(self.brim("config", "dataset.option=x", status=USAGE), "to choose a plugin, write dataset=x")
        self.assert_error(self.train("x", *data, "dataset.class_names=[a,b]", status=USAGE),
                          "dataset.class_names has 2 names")


class Help(Case):
    @plain
    def test_every_command_has_examples(self):
        for command in COMMANDS:
            with self.subTest(command):
                lines = self.brim(command, "--help").out.splitlines()
                self.assertTrue([line for line in lines if line.startswith(f"  brim {command}")])

    def test_keys_come_from_the_schema_and_are_listed_once(self):
        schema = self.brim("config", "--schema").out
        self.assertTrue(self.brim("train", "--help").out.endswith(schema))
        for command in ("start", "eval", "plan", "simulate", "check", "config"):
            text = self.brim(command, "--help").out
            self.assertTrue(text.endswith("\n`brim train --help` lists the keys, with type, default, range and "
                                          "meaning.\n"))
            self.assertLess(len(text.splitlines()), 50, command)

    @plain
    def test_old_names_are_reported(self):
        schema = self.brim("config", "--schema").out
        self.assertRegex(schema, r"(?m)^training\.gradient_checkpointing +now memory\.recompute: true=blocks")
        self.assertRegex(schema, r"(?m)^training\.fp16 +now precision: true=fp16")


if __name__ == "__main__":
    main()
