"""Tests command lines of the systems that brim replaces, as their users write them (docs/guide/other_systems.md): each
trains. A device with a limit stands in for a GPU; models and data sets that brim lacks are replaced by `cnn` and `mlp`
on synthetic data."""

import pathlib
import re

from support import NO_FIT, Case, main

DATA = ["dataset=synthetic", "dataset.shape=[1,12,12]", "dataset.train_count=512", "dataset.test_count=64",
        "training.steps=2", "backend.threads=1"]
# Two "GPUs" of 8000 MiB each, 8.4 GB.
GPUS = ["backend=cpu", "backend.devices=2", "backend.memory_mb=8000"]


class Systems(Case):
    """Each command line trains two steps, with its own effective batch."""

    def line(self, run, *words, effective, env=None, gpus=True):
        result = self.train(run, *DATA, *(GPUS if gpus else []), *words, env=env)
        self.assertEqual(self.summary(run)["steps"], 2, result)
        self.assertIn(f"effective batch {effective} = ", result.out)
        return result

    # ---- R: robust training ----

    def test_robust(self):
        for i, model in enumerate(("cnn", "mlp")):
            self.line(f"r{i}", "--config-name", "robust", f"model={model}", effective=128)

    def test_robust_with_dotted_overrides(self):
        self.line("r", "--config-name", "robust", "model=cnn", "training.batch_size=16",
                  "training.gradient_accumulation_steps=8", "training.num_workers=0", "device=cpu:1", effective=128)

    def test_robust_with_its_keys_at_the_top(self):
        self.line("r", "--config-name", "robust", "model=mlp", "wait_for_gpu=true", "max_retries=5", "min_batch_size=8",
                  "min_gpu_memory_mb=2000", effective=128)

    def test_robust_without_a_gpu_takes_the_processors_at_once(self):
        result = self.line("r", "--config-name", "robust", "model=cnn", effective=128, gpus=False)
        self.assertNotIn("waiting", result.err)

    def test_a_robust_run_stays_on_devices_smaller_than_the_preset_asks_for(self):
        words = ["--config-name", "robust", "model=cnn", "wait_for_gpu=false"]
        result = self.line("r", *words, "backend.memory_mb=2000", effective=128)
        self.assertIn("policy.robust: cpu:0: 2.0 GiB of 2.0 GiB are free, the most of 2 devices", result.err)
        result = self.train("typed", *DATA, *GPUS, *words, "min_gpu_memory_mb=16000", status=NO_FIT)
        self.assert_error(result, "no device of backend 'cpu' has 15.6 GiB free (min_gpu_memory_mb)")

    # ---- S: swarm ----

    def test_swarm(self):
        result = self.line("s", "model=cnn", "training.gradient_accumulation_steps=4",
                           "training.clear_cache_every_n_rounds=10", "training.auto_batch_size=true",
                           "training.num_train_samples=512", "training.gradient_checkpointing=true",
                           "policy=swarm", effective=256)
        self.assertIn("policy.swarm: micro-batch 2 x 128", result.err)

    def test_swarm_by_memory(self):
        """Below 8 GB micro-batch 1, below 12 GB 2; an effective batch of 8 gives the usual accumulation."""
        for memory, micro, accumulation in ((7000, 1, 8), (10000, 2, 4)):
            result = self.line(f"s{memory}", "model=cnn", "training.batch_size=auto", "policy=swarm",
                               "training.effective_batch_size=8", f"backend.memory_mb={memory}", effective=8)
            self.assertIn(f"effective batch 8 = {micro} x {accumulation}", result.out)

    def test_allocator_settings_are_not_needed(self):
        result = self.line("s", "model=mlp", effective=64, env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
        self.assertIn("PYTORCH_CUDA_ALLOC_CONF is set but has no effect", result.err)

    # ---- I: isolated clients ----

    def test_a_client_by_its_device(self):
        for device in (0, 1):
            result = self.line(f"i{device}", "model=mlp", "memory.limit_mb=8000", effective=64,
                               env={"GPU_DEVICE_ID": str(device)})
            self.assertIn(f"device=auto chooses cpu:{device} of 2, as GPU_DEVICE_ID says", result.err)

    def test_a_client_by_a_fraction(self):
        result = self.line("i", "model=cnn", effective=64, env={"TF_GPU_MEMORY_FRACTION": "0.9"})
        self.assertIn("TF_GPU_MEMORY_FRACTION=0.9 sets memory.limit=0.9", result.err)
        self.line("j", "model=cnn", "memory.limit=0.9", effective=64)

    def test_clients_by_a_table(self):
        table = "policy.capped.shares={cpu:0: {client1: 0.4, server: 0.4}, cpu:1: {client2: 8000MB}}"
        for client, device in (("client1", 0), ("client2", 1)):
            result = self.line(client, "model=cnn", "policy=capped", table, effective=64, env={"CLIENT_ID": client})
            self.assertIn(f"policy.capped: cpu:{device}, at most ", result.err)

    def test_the_emotion_use_case(self):
        self.line("e", "model=emotion_cnn", "optimizer=adam", "optimizer.lr=1e-4", "training.batch_size=16",
                  "training.epochs=20", "dataset.shape=[1,48,48]", "dataset.classes=7", effective=16)


class Table(Case):
    """docs/guide/other_systems.md lists exactly the existing options."""

    def test_every_key_that_it_names_exists(self):
        page = pathlib.Path(__file__).resolve().parents[2] / "docs/guide/other_systems.md"
        schema = self.brim("config", "--schema").out
        now = [row.split("|")[3] for row in page.read_text().splitlines() if row.count("|") == 4]
        keys = {key for cell in now for key in re.findall(r"`((?:policy|training|memory)\.[a-z_.]+)", cell)}
        self.assertGreater(len(keys), 12)
        for key in sorted(keys):
            self.assertRegex(schema, rf"(?m)^(policy\.\w+: |{re.escape(key)} )", key)


if __name__ == "__main__":
    main()
