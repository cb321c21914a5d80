"""Tests whole runs with many threads under ThreadSanitizer: the loader's and the backend's, with signals in between."""

import signal

from support import INTERRUPTED, SMALL, SMALL_CNN, Case, main

THREADS = ["training.num_workers=4", "backend.threads=4", "training.batch_size=32",
           "observe.log_every_steps=1"]


class Threads(Case):
    def test_cnn(self):
        self.train("run", *SMALL_CNN, *THREADS, "training.epochs=2", "dataset.validation_fraction=0.2",
                   "augment.flip=true", "augment.crop_padding=1")

    def test_mlp_with_accumulation(self):
        self.train("run", *SMALL, *THREADS, "training.epochs=2", "training.gradient_accumulation_steps=3")

    def test_stopped_and_resumed(self):
        process = self.start("train", "run.dir=run", *SMALL, *THREADS, "training.steps=100000")
        self.until((self.folder / "run" / "metrics.jsonl").exists, process)
        process.send_signal(signal.SIGINT)
        self.finish(process, INTERRUPTED)
        steps = self.summary("run")["steps"]
        for name in ("config.yaml", "sources.yaml"):  # changes both files, because a difference would be refused
            config = self.folder / "run" / name
            config.write_text(config.read_text().replace("steps: 100000", f"steps: {steps + 5}"))
        self.brim("train", "--resume", "run")
        self.assertEqual(self.summary("run")["steps"], steps + 5)

    def test_clients_side_by_side(self):
        self.brim("federate", "run.dir=run", "model=lightcnn", "model.width=4", "model.norm=batch", "dataset=synthetic",
                  "dataset.shape=[1,8,8]", "dataset.train_count=120", "dataset.test_count=20", "total_clients=10",
                  "clients_per_round=6", "rounds=3", "parallel_clients=3", "backend.threads=6", "memory.timing=false")

    def test_a_run_that_fails_ends_its_threads(self):
        # The loss becomes NaN while threads decode the next samples.
        self.train("run", *SMALL, *THREADS, "optimizer=sgd", "optimizer.lr=1e30", "schedule=constant",
                   "training.steps=50", status=5)


if __name__ == "__main__":
    main()
