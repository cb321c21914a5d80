"""Configurations that come with brim."""

import pathlib

from support import BINARY, NETWORK, SMALL, USAGE, Case, main

# The configurations of the installation or of the build: both lie next to the program.
CONFIGS = pathlib.Path(BINARY).resolve().parent.parent / "share/brim/configs"

ROBUST = {"auto_device": "true", "wait_for_gpu": "true", "min_gpu_memory_mb": "4000", "gpu_wait_timeout_minutes": "60",
          "gpu_check_interval_seconds": "30", "min_batch_size": "4", "max_retries": "3"}


class Robust(Case):
    def test_it_trains(self):
        result = self.brim("train", "--config-name", "robust", "model=mlp", "dataset=synthetic", "training.steps=2",
                           "run.dir=run")
        self.assertEqual(self.summary("run")["steps"], 2)
        self.assertIn("effective batch 128 = 32 x 4", result.out)

    def test_its_values_are_as_documented(self):
        text = self.brim("config", "--config-name", "robust").out
        for key, value in ROBUST.items():
            self.assertRegex(text, rf"(?m)^{key}: {value}$")
        for key, value in (("epochs", 1), ("batch_size", 32), ("gradient_accumulation_steps", 4), ("num_workers", 4)):
            self.assertRegex(text, rf"(?m)^  {key}: {value}$")
        self.assertRegex(text, r"(?m)^optimizer:\n  id: adam\n  lr: 1e-3$")
        self.assertRegex(text, r"(?m)^policy:\n  id: \[robust, auto_plan\]\n  robust:\n    allow_cpu: true$")

    def test_its_keys_are_overridden_at_the_top(self):
        words = ["wait_for_gpu=false", "max_retries=5", "min_batch_size=8", "min_gpu_memory_mb=2GiB",
                 "gpu_wait_timeout_minutes=90s", "auto_device=false", "gpu_check_interval_seconds=5"]
        text = self.brim("config", "--config-name", "robust", *words).out
        for word in words:
            self.assertIn(word.replace("=", ": "), text)

    def test_its_keys_are_checked(self):
        for word, text in (("min_batch_size=0", "must be in [1,1048576], got 0"),
                           ("max_retries=many", "must be an integer, got many"),
                           ("wait_for_gpu=yes", "true or false"),
                           ("gpu_check_interval_seconds=0", "must be in (0,inf)")):
            with self.subTest(word):
                result = self.brim("config", "--config-name", "robust", word, status=USAGE)
                self.assert_error(result, f"'{word.split('=')[0]}'", text, f"argument 1: {word}")

    def test_a_single_one_of_its_keys_is_accepted(self):
        self.train("run", *SMALL, "training.steps=1", "max_retries=5", "min_batch_size=2")
        self.assertRegex(self.read("run", "config.yaml"), r"(?m)^min_batch_size: 2\nmax_retries: 5$")

    def test_the_resolved_configuration_is_itself(self):
        (self.folder / "a.yaml").write_text(self.brim("config", "--config-name", "robust").out)
        self.assertEqual(self.brim("config", "--config-path", ".", "--config-name", "a").out, self.read("a.yaml"))


class Clients(Case):
    def test_keys_of_federations_are_hidden_by_default(self):
        text = self.brim("config", *SMALL).out
        for key in ("clients_per_round", "total_clients", "protocol", "world", "network"):
            self.assertNotIn(key, text)


class Lists(Case):
    """The group `policy` may have several options; and a user's folder may have options of its own."""

    TABLE = "shares: {'cpu:0': {alice: 0.5, server: 100MB}}\nclient: alice\n"

    def setUp(self):
        super().setUp()
        (self.folder / "my/policy").mkdir(parents=True)
        (self.folder / "my/policy/lab.yaml").write_text(f"id: capped\n{self.TABLE}")
        (self.folder / "my/team.yaml").write_text(
            "defaults:\n  - config\n  - policy: [lab, robust]\n  - _self_\n"
            "policy:\n  robust: {allow_cpu: false}\n  swarm: {small_below_gb: 4}\n")

    def config(self, *words, name="config"):
        return self.brim("config", "--config-path", "my", "--config-name", name, *words)

    def test_a_users_file_is_an_option(self):
        text = self.config("policy=lab").out
        self.assertRegex(text, r"(?m)^policy:\n  id: \[capped\]\n  capped:\n"
                               r"    shares:\n      cpu:0:\n        alice: 0.5\n        server: 100MB\n"
                               r"    client: alice$")
        self.assertIn("  id: [capped, robust]\n", self.config("policy=[lab,robust]").out)
        self.assertIn("  id: [auto_plan, capped]\n", self.config("policy+=lab").out)

    def test_a_defaults_list_names_several(self):
        result = self.config(name="team")
        self.assertIn("policy:\n  id: [capped, robust]\n", result.out)
        self.assertIn("    allow_cpu: false\n", result.out)

    def test_settings_of_options_not_chosen_are_dropped_with_one_line(self):
        result = self.config(name="team")
        self.assertEqual(result.err,
                         "'policy.swarm' of my/team.yaml has no effect: 'swarm' is not in the list of 'policy'\n")
        self.assertNotIn("swarm", result.out)
        result = self.config("policy=swarm", name="team")
        self.assertIn("    small_below_gb: 4\n", result.out)
        self.assertEqual(result.err,
                         "'policy.robust' of my/team.yaml has no effect: 'robust' is not in the list of 'policy'\n")

    def test_the_resolved_configuration_resolves_to_itself(self):
        for words in ([], ["policy=lab"], ["policy+=periodic"], ["policy=[]"]):
            with self.subTest(words):
                (self.folder / "my/a.yaml").write_text(self.config(*words, name="team").out)
                self.assertEqual(self.config(name="a").out, self.read("my/a.yaml"))

    def test_the_chosen_options_train(self):
        """A map on the command line is merged into the file's map."""
        result = self.brim("train", "--config-path", "my", "--config-name", "team", *SMALL, "backend=cpu",
                           "backend.devices=2", "backend.memory_mb=256", "policy.capped.shares={cpu:1: {bob: 0.25}}",
                           "policy.capped.client=bob", "training.steps=1", "run.dir=run")
        self.assertIn("policy.capped: cpu:1, at most 64.0 MiB: the share of client 'bob', of 256.0 MiB\n", result.err)
        self.assertIn("        server: 100MB\n      cpu:1:\n        bob: 0.25\n", self.read("run", "config.yaml"))


class Options(Case):
    def test_every_file_of_a_group_can_be_chosen(self):
        for path in sorted(CONFIGS.glob("*/*.yaml")):
            group, option = path.parent.name, path.stem
            # These groups are name maps, networks of config.json and simulated worlds.
            if group in ("weights", "family", "scenario"):
                continue
            mandatory = [f"{group}.path=data"] if "???" in path.read_text() else []
            if option in ("hf", "hf_lora"):
                mandatory = [f"model.weights={NETWORK}"]
            if group == "server_optimizer":  # this group has an effect only in federations
                mandatory = ["total_clients=20", "method=random"]
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
