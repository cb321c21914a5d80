"""Tests the justfile, run with the real `just`: $BRIM_JUST or the one on the path. Without `just` the test ends with
exit status 77 (skipped)."""

import os
import pathlib
import shutil
import subprocess
import sys

from support import BINARY, LOAD, SMALL, USAGE, Case, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
JUST = os.environ.get("BRIM_JUST") or shutil.which("just")
RECIPES = ["setup", "build", "test", "lint", "docs", "bench", "train", "plan", "check", "sweep",
           "train-linear-flowers-robust", "train-lora-flowers-robust", "train-all-robust", "train-dist", "train-nodes",
           "train-seeds", "sbatch"]


class Justfile(Case):
    def just(self, *argv, status=0, env=None):
        result = subprocess.run([JUST, "--justfile", ROOT / "justfile", "--working-directory", self.folder, *argv],
                                env={**os.environ, "BRIM": BINARY, "NO_COLOR": "1", **(env or {})}, text=True,
                                cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        self.assertEqual(result.returncode, status, f"$ just {argv}\n{result.stdout}{result.stderr}")
        return result

    def test_the_list_describes_every_recipe(self):
        lines = self.just("--list", "--unsorted").stdout.splitlines()
        listed = {line.split()[0]: line for line in lines if line.startswith("    ") and "[" not in line}
        self.assertEqual(list(listed), RECIPES)
        for name, line in listed.items():
            self.assertRegex(line, r"# \S.{15,}", name)
            self.assertLessEqual(len(line), 120)
        self.assertEqual(self.just().stdout.splitlines()[0], "Available recipes:")

    def test_train_passes_overrides_on_as_they_are(self):
        self.just("train", *SMALL, "training.steps=2", "run.dir=my run")
        self.assertEqual(self.summary("my run")["steps"], 2)
        self.assertIn("error: unknown key 'nonsense'", self.just("train", "nonsense=1", status=USAGE).stderr)

    def test_plan_is_brims(self):
        def lines(text):  # leaves out the memory that is free at the moment, which is not part of the plan
            return text[:text.index("\n  device ")].splitlines()

        plan = lines(self.brim("plan", *SMALL).out)
        self.assertGreater(len(plan), 10)
        self.assertEqual(lines(self.just("plan", *SMALL).stdout), plan)

    def test_check_shows_devices_and_the_robust_plan(self):
        out = self.just("check", "dataset=synthetic", "backend.threads=1").stdout
        self.assertIn("reference:0", out)
        self.assertIn("adam, micro-batch 32 x 4", out)
        self.just("check", "dataset=synthetic", "memory.limit_mb=1", status=4)

    def test_sweep_trains_every_combination(self):
        self.just("sweep", *SMALL, "training.steps=1", "run.dir=sweep", "seed=1,2", "optimizer.lr=1e-2,1e-3")
        self.assertEqual(len(list((self.folder / "sweep").rglob("summary.json"))), 4)

    def test_robust_recipes_want_the_pictures(self):
        for recipe in ("linear", "lora"):
            result = self.just(f"train-{recipe}-flowers-robust", status=LOAD)
            self.assertIn("error: no file 'data/flowers-102'", result.stderr)

    def test_all_robust_is_four_jobs(self):
        lines = self.just("train-all-robust", status=LOAD).stdout.splitlines()
        for model in ("linear_probe", "lora"):
            for dataset, folder in (("flowers102", "data/flowers-102"), ("cub200", "data/CUB_200_2011")):
                self.assertIn(f"{model}-{dataset}: error: no file '{folder}'", lines)

    def test_all_robust_waits_for_its_jobs(self):
        self.just("models=mlp cnn", "datasets=synthetic", "train-all-robust", "dataset.train_count=256",
                  "dataset.test_count=64", "training.steps=2", "backend.threads=1")
        runs = list((self.folder / "runs").iterdir())
        self.assertEqual(sorted(path.name.rsplit("-", 2)[0] for path in runs), ["cnn-synthetic", "mlp-synthetic"])
        for path in runs:
            self.assertEqual(self.summary(path)["status"], "finished")

    def test_all_robust_fails_if_one_job_fails_and_lets_the_others_end(self):
        result = self.just("models=mlp", "datasets=mnist synthetic", "train-all-robust", "++dataset.path=/nowhere",
                           "training.steps=2", "backend.threads=1", status=LOAD)
        self.assertIn("mlp-mnist: error: cannot open the dataset's folder '/nowhere'", result.stdout)
        finished = [path for path in (self.folder / "runs").iterdir() if path.name.startswith("mlp-synthetic")]
        self.assertEqual([self.summary(path)["status"] for path in finished], ["finished"])

    def stand_in(self, name):
        """Makes a program that prints its arguments and the BRIM and NCCL variables that it received."""
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        (tools / name).write_text("#!/bin/bash\nprintf '<%s>' \"$@\"\necho\n"
                                  "env | grep -E '^(BRIM|NCCL)_?[A-Z]*=' | sort\n")
        (tools / name).chmod(0o755)
        return {"PATH": f"{tools}:{os.environ['PATH']}"}

    def test_dist_asks_for_all_devices(self):
        self.assertIn("error: unknown key 'nonsense'", self.just("train-dist", "nonsense=1", status=USAGE).stderr)
        out = self.just("--dry-run", "train-dist").stderr
        self.assertIn("train dist.ranks=auto", out)

    def test_nodes_starts_mpirun_with_the_ranks_environment(self):
        env = {**self.stand_in("mpirun"), "NCCL_SOCKET_IFNAME": "ib0", "BRIM_MPIRUN": "--map-by ppr:4:numa"}
        words = self.just("train-nodes", "my hosts", "model=mlp", "run.dir=a b", env=env).stdout.splitlines()[0]
        self.assertTrue(words.startswith("<--hostfile><my hosts><--map-by><ppr:4:numa><-x>"), words)
        self.assertIn("<-x><NCCL_SOCKET_IFNAME>", words)
        self.assertTrue(words.endswith(f"<{BINARY}><train><model=mlp><run.dir=a b>"), words)

    def test_seeds_are_trained_side_by_side(self):
        self.just("seeds=3 5", "train-seeds", *SMALL, "training.steps=2")
        runs = sorted(path.name.rsplit("-", 2)[0] for path in (self.folder / "runs").iterdir())
        self.assertEqual(runs, ["seed-3", "seed-5"])

    def test_sbatch_queues_one_of_the_scripts(self):
        out = self.just("sbatch", "--nodes=4", "--time=2:00:00", "nodes", "model=mlp", "run.dir=a b",
                        env=self.stand_in("sbatch")).stdout.splitlines()
        script = ROOT / "scripts/slurm/nodes.sbatch"
        self.assertEqual(out[0], f"<--nodes=4><--time=2:00:00><{script}><model=mlp><run.dir=a b>")
        self.assertIn(f"BRIM={BINARY}", out)
        for words in ((), ("model=mlp",), ("--nodes=4",)):
            self.assertIn("usage: just sbatch", self.just("sbatch", *words, status=2).stderr)


if __name__ == "__main__":
    if not JUST:
        print("skipped: there is no `just` on the path, and $BRIM_JUST is not set (scripts/just.sh installs one)")
        sys.exit(77)
    main()
