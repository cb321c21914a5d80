"""Configurations that come with brim, and keys whose behaviour this build does not have."""

import pathlib

from support import BINARY, SMALL, USAGE, Case, main

# The installation's, or the build's: both lie beside the program.
CONFIGS = pathlib.Path(BINARY).resolve().parent.parent / "share/brim/configs"

ROBUST = {"auto_device": "true", "wait_for_gpu": "true", "min_gpu_memory_mb": "4000", "gpu_wait_timeout_minutes": "60",
          "gpu_check_interval_seconds": "30", "min_batch_size": "4", "max_retries": "3"}

# Of these, what this build does.
HERE = ["auto_device", "min_gpu_memory_mb", "wait_for_gpu", "gpu_wait_timeout_minutes", "gpu_check_interval_seconds"]

# Declared, with the value that means what this build does anyway, and one that does not.
LATER = [("memory.headroom_mb", "0", "512"), ("memory.warn_percent", "0", "85"), ("memory.critical_percent", "0", "90"),
         ("training.effective_batch_size", "0", "128"), ("training.clear_cache_every_n_rounds", "0", "10"),
         ("dist.ranks", "1", "4"),
         ("policy", "", "robust"), ("comm", "", "mpi"), ("total_clients", "0", "100"), ("clients_per_round", "0", "10"),
         ("rounds", "0", "100"), ("parallel_clients", "-1", "4"), ("method", "", "heuristic.random"),
         ("repeats", "1", "3"), ("protocol", "", "mqtt"),
         ("memory.recompute", "none", "blocks")]


class Robust(Case):
    def test_it_trains(self):
        result = self.brim("train", "--config-name", "robust", "model=mlp", "dataset=synthetic", "training.steps=2",
                           "run.dir=run")
        self.assertEqual(self.summary("run")["steps"], 2)
        notes = [line for line in result.err.splitlines() if "nothing in this build" in line]
        self.assertEqual(len(notes), 1, result)
        for key in ROBUST:
            (self.assertNotIn if key in HERE else self.assertIn)(key, notes[0])

    def test_its_values_are_as_documented(self):
        text = self.brim("config", "--config-name", "robust").out
        for key, value in ROBUST.items():
            self.assertRegex(text, rf"(?m)^{key}: {value}$")
        for key, value in (("epochs", 1), ("batch_size", 32), ("gradient_accumulation_steps", 4), ("num_workers", 4)):
            self.assertRegex(text, rf"(?m)^  {key}: {value}$")
        self.assertRegex(text, r"(?m)^optimizer:\n  id: adam\n  lr: 1e-3$")

    def test_its_keys_are_overridden_at_the_top(self):
        words = ["wait_for_gpu=false", "max_retries=5", "min_batch_size=8", "min_gpu_memory_mb=2GiB",
                 "gpu_wait_timeout_minutes=90s", "auto_device=false", "gpu_check_interval_seconds=5"]
        text = self.brim("config", "--config-name", "robust", *words).out
        for word in words:
            self.assertIn(word.replace("=", ": "), text)

    def test_its_keys_are_checked(self):
        for word, text in (("min_batch_size=0", "must be in [1,1048576], got 0"), ("max_retries=many", "must be an integer, got many"),
                           ("wait_for_gpu=yes", "true or false"), ("gpu_check_interval_seconds=0", "must be in (0,inf)")):
            with self.subTest(word):
                result = self.brim("config", "--config-name", "robust", word, status=USAGE)
                self.assert_error(result, f"'{word.split('=')[0]}'", text, f"argument 1: {word}")

    def test_without_it_nothing_is_said(self):
        self.assertNotIn("in this build", self.train("run", *SMALL, "training.steps=1").err)

    def test_one_of_its_keys_alone_is_named_alone(self):
        result = self.train("run", *SMALL, "training.steps=1", "max_retries=5")
        self.assertIn("max_retries changes nothing in this build", result.err)

    def test_the_resolved_configuration_is_itself(self):
        (self.folder / "a.yaml").write_text(self.brim("config", "--config-name", "robust").out)
        self.assertEqual(self.brim("config", "--config-path", ".", "--config-name", "a").out, self.read("a.yaml"))


class Later(Case):
    def test_another_than_the_neutral_value_is_refused(self):
        for key, _, other in LATER:
            with self.subTest(key):
                result = self.brim("train", *SMALL, f"{key}={other}", status=USAGE)
                self.assert_error(result, f"'{key}' is not available in this build",
                                  f"argument {len(SMALL) + 1}: {key}={other}")

    def test_the_neutral_value_is_accepted(self):
        self.brim("config", *SMALL, *(f"{key}={neutral}" for key, neutral, _ in LATER))

    def test_they_are_in_the_schema_and_marked(self):
        lines = self.brim("config", "--schema").out.splitlines()
        for key in [key for key, _, _ in LATER] + [key for key in ROBUST if key not in HERE]:
            with self.subTest(key):
                found = [line for line in lines if line.split()[:1] == [key]]
                self.assertEqual(len(found), 1)
                self.assertIn("(not available in this build)", found[0])

    def test_nobody_sees_them_who_does_not_write_them(self):
        text = self.brim("config", *SMALL).out
        for key in ("max_retries", "dist", "headroom_mb", "total_clients"):
            self.assertNotIn(key, text)


class Options(Case):
    def test_every_file_of_a_group_can_be_chosen(self):
        for path in sorted(CONFIGS.glob("*/*.yaml")):
            group, option = path.parent.name, path.stem
            mandatory = [f"{group}.path=data"] if "???" in path.read_text() else []
            with self.subTest(f"{group}={option}"):
                self.brim("config", f"{group}={option}", *mandatory)

    def test_every_root_configuration_resolves(self):
        for path in sorted(CONFIGS.glob("*.yaml")):
            with self.subTest(path.stem):
                self.brim("config", "--config-name", path.stem)

    def test_one_cycle_is_the_default_configurations_schedule(self):
        self.assertEqual(self.brim("config", "schedule=one_cycle").out, self.brim("config").out)
        text = self.brim("config", "--config-name", "robust", "schedule=one_cycle").out
        self.assertIn("schedule:\n  id: cosine\n  warmup_fraction: 0.3\n", text)

    def test_datasets_without_a_package_ask_for_their_folder(self):
        for option in ("mnist", "kmnist", "emnist"):
            self.assert_error(self.brim("train", f"dataset={option}", status=USAGE), "'dataset.path'")


if __name__ == "__main__":
    main()
