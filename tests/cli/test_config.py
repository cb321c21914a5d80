"""brim config and the messages of a configuration, as a user sees them."""

import json
import os
import pathlib

from support import BINARY, LOAD, SMALL, USAGE, Case, main

# The installation's, or the build's: both lie beside the program.
CONFIGS = pathlib.Path(BINARY).resolve().parent.parent / "share/brim/configs"
PLUGINS = os.environ["BRIM_CONFIG_PLUGINS"]  # with a model "vit" that has a "depth"
COMMANDS = ["train", "start", "eval", "predict", "plan", "compare", "config", "plugins", "devices", "ops", "complete",
            "version"]
# models around another: they need one, which none of them can be, and nothing else has one
AROUND = {"linear_probe", "lora"}


class Messages(Case):
    """The four that CONFIG.md shows, to the letter: what is wrong, where, and what to do."""

    def told(self, *argv):
        result = self.brim(*argv, status=USAGE)
        self.assertEqual(result.out, "")
        return result.err

    def test_an_unknown_key(self):
        self.assertEqual(self.told("train", "seed=1", "run.dir=run", "optimizer.learning_rat=1e-4"),
                         "error: unknown key 'optimizer.learning_rat'\n"
                         "  command line, argument 3: optimizer.learning_rat=1e-4\n"
                         "  did you mean 'optimizer.lr'? to add a new key, write +optimizer.learning_rat=1e-4\n")

    def test_a_value_out_of_range(self):
        (self.folder / "configs/model").mkdir(parents=True)
        (self.folder / "configs/model/vit.yaml").write_text("id: vit\n# one\n# two\n# three\n# four\n\ndepth:     0\n")
        err = self.told("--plugin-path", PLUGINS, "--config-path", "configs", "train", "model=vit")
        self.assertEqual("".join(line for line in err.splitlines(True) if not line.endswith(" is hidden\n")),
                         "error: 'model.depth' must be in [1,512], got 0\n"
                         "  configs/model/vit.yaml:7:12   (vit: number of blocks; default 12)\n")

    def test_no_such_option(self):
        (self.folder / "configs/model").mkdir(parents=True)
        for name in ("lightcnn", "resnet18", "vit"):
            (self.folder / f"configs/model/{name}.yaml").write_text("id: cnn\n")
        plugins = json.loads(self.brim("plugins", "model", "--json").out)["plugins"]
        files = {path.stem for path in (CONFIGS / "model").glob("*.yaml")}
        options = " ".join(sorted({"lightcnn", "resnet18", "vit"} | files | {plugin["id"] for plugin in plugins}))
        self.assertRegex(options, r"\bcnn .*lightcnn .*mlp .*resnet18 .*vit\b")
        self.assertEqual(self.told("--config-path", "./configs", "train", "model=resnet19"),
                         "error: no option 'resnet19' in group 'model'\n  did you mean 'resnet18'?\n"
                         f"  available: {options}   searched: ./configs {CONFIGS}\n")

    def test_a_sweep_without_m(self):
        self.assertEqual(self.told("train", "optimizer.lr=1,2"),
                         "error: 'optimizer.lr=1,2' is a sweep: add -m, or write optimizer.lr=[1,2] for a list\n")

    def test_all_of_them_at_once_and_nothing_is_left(self):
        err = self.told("train", "run.dir=run", "optimizer.learning_rat=1", "training.epochs=-1", "model=resnet19")
        for part in ("unknown key 'optimizer.learning_rat'", "'training.epochs' must be in [0,1000000], got -1",
                     "no option 'resnet19' in group 'model'"):
            self.assertIn(f"error: {part}\n", err)
        self.assertEqual(list(self.folder.iterdir()), [])


class Resolved(Case):
    """What is printed is a configuration that prints itself."""

    def check(self, *words):
        text = self.brim("config", *words).out
        for name, options in (("plain", []), ("origins", ["--origins"])):
            (self.folder / f"{name}.yaml").write_text(self.brim("config", *words, *options).out)
            again = self.brim("--config-path", ".", "--config-name", name, "config")
            self.assertEqual(again.out, text, words)

    def test_every_root_configuration(self):
        for path in sorted(CONFIGS.glob("*.yaml")):
            self.check("--config-name", path.stem)

    def test_every_option_of_every_group(self):
        group, checked = "", 0
        for line in self.brim("config", "--groups").out.splitlines():
            if not line.startswith(" "):
                group = line
            elif line.split() != ["none"]:
                option = line.split()[0]
                if option in AROUND and group == "backbone":
                    continue
                more = ["backbone=mlp"] if option in AROUND else ["model=lora"] if group == "backbone" else []
                self.check(f"{group}={option}", *more)
                checked += 1
        self.assertGreater(checked, 15)

    def test_values_of_every_kind(self):
        self.check("run.name=a: b #c", "+x={a: [1, '2', true, 'true', null, ~, '~', {b: 'no'}]}", "+s=' lead'",
                   "+t='a\\nb'", '+u="a\\nb"', "+e=", "+v=ünï 🎉", "+w=\\${a}", "+z='???'", '+q=\'a"b\'', "+y=[]",
                   "+m={}", "policy=[]", "memory.limit_mb=1.5GiB", "+long=" + "x" * 3000)


class Folders(Case):
    def test_a_plugin_folder_that_is_not_there(self):
        """In BRIM_PLUGIN_PATH, which is set for every command, it is a warning; on the command line an error."""
        env = {"BRIM_PLUGIN_PATH": "nowhere"}
        text = "the plugin folder 'nowhere' cannot be read: No such file or directory\n"
        for words in (["version"], ["config", *SMALL], ["train", "run.dir=run", "training.steps=1", "--quiet", *SMALL]):
            self.assertEqual(self.brim(*words, env=env).err, f"warning: BRIM_PLUGIN_PATH: {text}")
        self.assertEqual(self.brim("--plugin-path", "nowhere", "version", status=LOAD).err, f"error: {text}")

    def test_empty_names_in_the_list_of_plugin_folders(self):
        self.assertEqual(self.brim("config", *SMALL, env={"BRIM_PLUGIN_PATH": "::"}).err, "")

    def test_a_configuration_folder_that_is_not_there(self):
        self.assert_error(self.brim("--config-path", "nowhere", "config", status=LOAD), "'nowhere'")


class Help(Case):
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
            self.assertTrue(text.endswith("\n`brim train --help` lists the keys, with type, default, range and meaning.\n"))
            self.assertLess(len(text.splitlines()), 50, command)

    def test_old_names_are_told(self):
        schema = self.brim("config", "--schema").out
        self.assertRegex(schema, r"(?m)^training\.gradient_checkpointing +now memory\.recompute: true=blocks")
        self.assertRegex(schema, r"(?m)^training\.fp16 +now precision: true=fp16")


if __name__ == "__main__":
    main()
