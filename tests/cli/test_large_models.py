"""Tests plans of large language models, for which config.json is enough: peaks on the emulated GPU, whose kernels need
the same memory as those of a real one, and the table of GPU sizes."""

import json
import os
import random

from support import NO_FIT, USAGE, Case, main

EMULATED = os.environ["BRIM_EMULATED"]
GIB = 1 << 30
LLAMA = {"model_type": "llama", "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8,
         "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "head_dim": 128,
         "tie_word_embeddings": False}
MODELS = {  # config.json, and the largest GiB allowed for a plan
    "Qwen3-0.6B": ({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
                    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
                    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
                    "tie_word_embeddings": True}, 1.65),
    "Llama-3.2-1B": ({**LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
                      "head_dim": 64, "tie_word_embeddings": True}, 2.9),
    "Llama-3.2-3B": ({**LLAMA, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
                      "num_attention_heads": 24, "tie_word_embeddings": True}, 7.1),
    "Llama-3.1-8B": ({**LLAMA, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}, 16.7),
}
SMALL = {**LLAMA, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 500, "max_position_embeddings": 3000}


class LargeModels(Case):
    def plan(self, config, *words, context=2048, status=None, **env):
        """Makes a plan. The file of weights does not exist, and this machine may have less than the planned memory."""
        (self.folder / "model").mkdir(exist_ok=True)
        (self.folder / "model" / "config.json").write_text(json.dumps(config))
        (self.folder / "text.txt").write_text("In the beginning was the Word. " * 20000)
        out = self.brim("--plugin-path", EMULATED, "plan", "--no-timing", "--json", "model=hf_lora",
                        "model.weights=model", "dataset=text", "dataset.path=text.txt", "dataset.test_fraction=0",
                        f"dataset.context={context}",
                        "training.effective_batch_size=1", "training.batch_size=1", "memory.recompute=auto", *words,
                        status=status, env={"EMULATED_DEVICES": "1", **env}).out
        return json.loads(out)

    def test_lora_in_bf16_needs_little(self):
        """The plans have context 2048, micro-batch 1 and rank 16. The device is too small for them, and brim reports
        that."""
        for name, (config, most) in MODELS.items():
            with self.subTest(name):
                plan = self.plan(config, "backend=cuda", "precision=bf16", "memory.recompute_budget_mb=1",
                                 status=NO_FIT)
                self.assertLess(plan["peak_bytes"], most * GIB)
                # A much smaller plan would belong to another model.
                self.assertGreater(plan["peak_bytes"], 0.8 * most * GIB)

    def test_what_fits_on_a_card_is_exact(self):
        config = {**MODELS["Qwen3-0.6B"][0], "num_hidden_layers": 3, "max_position_embeddings": 1 << 20}
        words = ["backend=cpu", "memory.recompute_budget_mb=1"]
        cards = self.plan(config, *words)["cards"]
        self.assertEqual((cards["besides_bytes"], cards["measured"]), (GIB, False))
        self.assertEqual([row["card_bytes"] // GIB for row in cards["rows"]], [8, 12, 16, 24, 48, 80])
        row = cards["rows"][0]
        self.assertEqual(row["room_bytes"], 7 * GIB)
        context, peak = row["longest"]["context"], row["longest"]["peak_bytes"]
        self.assertLessEqual(peak, row["room_bytes"])
        self.assertEqual(self.plan(config, *words, context=context)["peak_bytes"], peak)
        longer = self.plan(config, *words, context=context + context // 16)["peak_bytes"]
        self.assertGreater(longer, row["room_bytes"])
        batch, peak = row["largest"]["batch_size"], row["largest"]["peak_bytes"]
        words += ["training.effective_batch_size=4096"]
        self.assertEqual(self.plan(config, *words, f"training.batch_size={batch}")["peak_bytes"], peak)
        self.assertLessEqual(peak, row["room_bytes"])
        self.assertGreater(self.plan(config, *words, f"training.batch_size={2 * batch}")["peak_bytes"],
                           row["room_bytes"])

    def test_a_described_card_needs_no_gpu(self):
        """The plan uses the kernels of cuda and lists all sizes of cards. brim times and runs nothing."""
        words = ["backend=cuda", "precision=bf16"]
        plan = self.plan(SMALL, *words, "backend.card=h100", EMULATED_DEVICES="0")
        self.assertEqual(plan["devices"][0]["name"],
                         "NVIDIA H100 80GB HBM3 (described; scratch of cuBLASLt and cuDNN is assumed)")
        self.assertEqual((plan["cards"]["described"], plan["cards"]["measured"]), (True, False))
        other = self.plan(SMALL, *words, "backend.card=rtx3060", EMULATED_DEVICES="0")
        self.assertEqual(plan["cards"]["rows"], other["cards"]["rows"])  # a card's size changes no plan
        real = self.plan(SMALL, *words)
        self.assertFalse(real["cards"]["described"])
        self.assertLessEqual(real["peak_bytes"], plan["peak_bytes"])
        run = self.brim("--plugin-path", EMULATED, "train", "model=mlp", *words, "backend.card=h100", status=NO_FIT,
                        env={"EMULATED_DEVICES": "0"})
        self.assertIn("which backend.card only describes", run.err)
        none = self.brim("--plugin-path", EMULATED, "plan", "model=mlp", *words, status=NO_FIT,
                         env={"EMULATED_DEVICES": "0"})
        self.assertIn("backend.card=h100", none.err)

    def test_the_traffic_of_a_step_on_a_card(self):
        """The times follow from the card's data sheet. Launches are those that the device gets: one for all updates,
        and several for some nodes."""
        words = ["backend=cuda", "--traffic"]
        traffic = self.plan(SMALL, *words, "precision=bf16", "backend.card=h100", EMULATED_DEVICES="0")["traffic"]
        rates = traffic["rates"]
        self.assertEqual((rates["products_16"], rates["products_f32"], rates["flops"], rates["bytes"]),
                         (989e12, 67e12, 67e12, 3350e9))
        self.assertFalse(rates["measured"])
        of = {row["class"]: row for row in traffic["classes"]}
        self.assertLess(of["optimizer"]["launches"], of["optimizer"]["nodes"] / 4)
        self.assertTrue(any(row["launches"] > row["nodes"] for row in traffic["operations"]))
        for row in traffic["operations"]:
            flops = row["flops"] / (rates["flops"] if not row["product"] else
                                    rates["products_16" if row["dtype"] == "BF16" else "products_f32"])
            least = max(flops, row["bytes"] / rates["bytes"])
            self.assertAlmostEqual(row["least_seconds"], least, delta=1e-6 * least)
            self.assertAlmostEqual(row["launch_seconds"], row["launches"] * rates["launch_seconds"], delta=1e-9)
        tf32 = self.plan(SMALL, *words, "backend.card=a100", "backend.tf32=true", EMULATED_DEVICES="0")["traffic"]
        self.assertEqual(tf32["rates"]["products_f32"], 156e12)
        other = self.plan(SMALL, *words, "precision=bf16", "backend.card=rtx4090", EMULATED_DEVICES="0")["traffic"]
        self.assertEqual(other["step"]["flops"], traffic["step"]["flops"])
        self.assertGreater(other["step"]["least_seconds"], traffic["step"]["least_seconds"])
        unknown = self.plan(SMALL, *words)["traffic"]  # a device that no data sheet describes
        self.assertEqual((unknown["rates"]["bytes"], unknown["step"]["least_seconds"]), (None, None))
        self.assertEqual(unknown["step"]["bytes"], tf32["step"]["bytes"])

    def test_an_unknown_card_lists_the_known_ones(self):
        result = self.brim("--plugin-path", EMULATED, "plan", "--traffic", "backend=cuda", "backend.card=h101",
                           status=USAGE)
        self.assertIn("h100", result.err)
        self.assertIn("rtx4090", result.err)

    def test_the_model_limits_the_context(self):
        rows = self.plan(SMALL, "backend=cpu", context=100)["cards"]["rows"]
        self.assertTrue(all(2900 < row["longest"]["context"] <= 3000 for row in rows))

    def test_a_budget_between_a_peak_and_its_own_gives_the_same_plan(self):
        """The planner relies on this property when it caches peaks."""
        drawn = random.Random(7)
        whole = self.plan(SMALL, "backend=cpu", "memory.recompute=none", context=256)["peak_bytes"] >> 20
        for _ in range(6):
            budget = drawn.randint(whole // 3, whole)
            peak = self.plan(SMALL, "backend=cpu", f"memory.recompute_budget_mb={budget}", context=256)["peak_bytes"]
            least, most = sorted((budget, -(-peak >> 20)))
            other = drawn.randint(least, most)
            if (peak > budget << 20) != (peak > other << 20):
                continue
            again = self.plan(SMALL, "backend=cpu", f"memory.recompute_budget_mb={other}", context=256)["peak_bytes"]
            self.assertEqual(peak, again, (budget, other))


if __name__ == "__main__":
    main()
