"""Tests `brim plan dist.ranks=N`: each rank's share of a step, and the exact memory of its plan."""

import json

from support import SMALL, SMALL_CNN, USAGE, Case, main

VIT = ["model=vit", "model.depth=2", "model.width=32", "model.heads=2", "dataset=synthetic", "dataset.shape=[1,12,12]",
       "model.patch=4", "dataset.train_count=256", "dataset.test_count=64", "training.batch_size=128",
       "backend.threads=1", "memory.timing=false"]
# a network with batch norm, in groups of 16
NORM = ["model=lightcnn", "dataset=synthetic", "dataset.shape=[3,16,16]", "dataset.train_count=256",
        "dataset.test_count=64", "training.batch_size=96", "training.norm_group=16", "backend.threads=1",
        "memory.timing=false"]


class PlanRanks(Case):
    def plan(self, *words, status=0):
        return self.brim("plan", "--json", *words, status=status).json

    def rows(self, *words):
        """Returns (ranks, samples, micro-batch, micro-batches) of each row, and the peaks."""
        rows = self.plan(*words)["ranks"]
        return ([(r["ranks"], r["samples"], r["batch_size"], r["gradient_accumulation_steps"]) for r in rows],
                [r["peak_bytes"] for r in rows])

    def test_a_rank_takes_exactly_the_memory_of_a_run_of_its_share(self):
        for model in (SMALL, SMALL_CNN, VIT):
            for backend in ("cpu", "reference"):
                with self.subTest(model=model[0], backend=backend):
                    words = [word for word in model if not word.startswith("backend.")] + [f"backend={backend}"]
                    whole = self.plan(*words, "dist.ranks=4")
                    quarter = self.plan(*words, "training.batch_size=32", "dataset.train_count=64",
                                        "dataset.test_count=16")
                    self.assertEqual(whole["peak_bytes"], quarter["peak_bytes"])
                    self.assertEqual(whole["programs"], quarter["programs"])
                    self.assertEqual(whole["ranks"], [{"ranks": [0, 1, 2, 3], "samples": 32, "batch_size": 32,
                                                       "gradient_accumulation_steps": 1,
                                                       "peak_bytes": quarter["peak_bytes"]}])

    def test_shares_that_differ_are_planned_each(self):
        for model in (SMALL, SMALL_CNN):
            with self.subTest(model=model[0]):
                rows, peaks = self.rows(*model, "dist.ranks=3")
                self.assertEqual(rows, [([0], 42, 42, 1), ([1, 2], 43, 43, 1)])  # the test samples are 21, 21 and 22
                for peak, samples, test in zip([*peaks, peaks[1]], (42, 43, 43), (21, 21, 22)):
                    alone = self.plan(*model, f"training.batch_size={samples}", f"dataset.train_count={2 * samples}",
                                      f"dataset.test_count={test}")
                    self.assertEqual(peak, alone["peak_bytes"])

    def test_norm_groups_stay_whole(self):
        rows, _ = self.rows(*NORM, "dist.ranks=4")
        self.assertEqual([row for row in rows if 0 in row[0]], [([0, 2], 16, 16, 1)])
        self.assertEqual([row for row in rows if 1 in row[0]], [([1, 3], 32, 32, 1)])

    def test_micro_batches_cover_the_share(self):
        words = [*SMALL, "training.effective_batch_size=96", "training.batch_size=32", "dist.ranks=2"]
        rows, _ = self.rows(*words)
        self.assertEqual(rows, [([0, 1], 48, 32, 2)])
        out = self.brim("plan", *words).out
        self.assertIn("rank 0 of 2, micro-batch 32 x 1 + 16", out)
        self.assertRegex(out, r"(?m)^  0-1 +48 +32 x 1 \+ 16 +\d")

    def test_one_rank_is_as_without(self):
        one, without = (self.plan(*SMALL, *words) for words in (["dist.ranks=1"], []))
        for plan in (one, without):  # leaves out the host's other memory
            del plan["devices"], plan["host"], plan["frontier"]["limit_bytes"]
        self.assertEqual(one, without)
        self.assertNotIn("ranks", one)

    def test_an_idle_rank_is_named(self):
        result = self.brim("plan", *NORM, "training.batch_size=48", "dist.ranks=4")
        self.assertIn("rank 0 of 4 has nothing to do: a step has 48 samples in 3 norm groups", result.err)
        self.assertIn("set a smaller training.norm_group or a larger training.effective_batch_size", result.err)
        rows, _ = self.rows(*NORM, "training.batch_size=48", "dist.ranks=4")
        self.assertEqual(rows[0], ([0], 0, 16, 0))
        result = self.brim("plan", *SMALL, "training.batch_size=2", "dist.ranks=4")
        self.assertIn("2 of 4 ranks have nothing to do: a step has 2 samples", result.err)

    def test_updates_in_the_backward_pass_are_of_one_rank(self):
        result = self.brim("plan", *SMALL, "dist.ranks=2", "optimizer.update=fused_backward", status=USAGE)
        self.assert_error(result, "optimizer.update=fused_backward cannot be used with 2 ranks",
                          "or set optimizer.update=step")

    def test_sharded_gradients_take_less_at_the_default_bucket_size(self):
        """A rank keeps half of the gradients and two buckets. The largest parameters decide the size of buckets;
        buckets with a quarter of all gradients would take another half."""
        words = [*SMALL, f"model.hidden={[256] * 16}", "dist.ranks=2"]
        none, some, least = (self.plan(*words, *more)["classes"]["gradients"] for more in (
            [], ["dist.shard=gradients"], ["dist.shard=gradients", "dist.bucket_mb=0"]))
        self.assertLess(some, 0.7 * none)
        self.assertLess(some, least + 0.03 * none)

    def test_the_ranks_reduction_is_timed_once_and_predicted(self):
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        words = [*[word for word in SMALL if word != "memory.timing=false"], "dist.ranks=2", "dist.shard=gradients",
                 "training.batch_size=auto", "training.effective_batch_size=128", "training.steps=2", "backend=cpu"]
        self.train("run", *words, env=cache)
        path, = (self.folder / "cache" / "brim").glob("cpu-*.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        timed = {(line["what"], line["n"]): line for line in lines[1:] if "ranks" in line["what"]}
        for kind in ("all_reduce", "reduce_scatter", "all_gather"):
            self.assertIn((f"{kind} mpi 2 ranks 1 hosts", 1024), timed)
        self.train("again", *words, env=cache)
        after = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([line for line in after if "ranks" in line.get("what", "")], list(timed.values()))

        def predicted():
            plan = self.brim("plan", "--json", "--no-timing", *words, env=cache).json
            return [choice["step_seconds"] for choice in plan["frontier"]["choices"] if choice["chosen"]][0]
        before = predicted()
        for line in timed.values():
            line["seconds"] += 1
        path.write_text("".join(json.dumps(line) + "\n" for line in [lines[0], *[
            timed.get((line["what"], line["n"]), line) for line in lines[1:]]]))
        self.assertGreater(predicted(), before + 1.9)  # adds the time of a bucket's sum, and of the new parameters

    def test_a_micro_batch_is_found_for_the_share(self):
        rows, _ = self.rows(*SMALL, "training.batch_size=auto", "training.effective_batch_size=128", "dist.ranks=4")
        (ranks, samples, batch, micros), = rows
        self.assertEqual((ranks, samples), ([0, 1, 2, 3], 32))
        self.assertEqual(batch * micros, 32)


if __name__ == "__main__":
    main()
