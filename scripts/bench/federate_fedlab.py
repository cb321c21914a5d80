"""FedLab, for federate.py: its SCAFFOLD (option II) with its serial trainer.

    federate_fedlab.py JOB WORKERS THREADS

Clients train in brim's order of a round. FedLab gives all clients the same weight."""

import sys
import time

import torch
from fedlab.contrib.algorithm.scaffold import ScaffoldSerialClientTrainer, ScaffoldServerHandler

from federate_peer import Job


class Batches:
    """Stands in for FedLab's data set. The batches of an epoch depend on the round."""

    def __init__(self, job):
        self.job, self.step, self.epoch = job, 0, 0

    def get_dataloader(self, client, batch_size):
        self.samples = self.job.samples(self.step, (client - self.step * self.job["cohort"]) % self.job["clients"])
        self.batch, self.epoch = batch_size, 0
        return self

    def __len__(self):
        return -(-self.samples.shape[1] // self.batch)

    def __iter__(self):
        self.epoch += 1
        return map(self.job.pick, self.samples[self.epoch - 1].split(self.batch))


def main():
    job, ends = Job(sys.argv[1]), []
    torch.set_num_threads(int(sys.argv[3]))
    model, data = job.new_model(), Batches(job)
    server = ScaffoldServerHandler(model, job.rounds, job["cohort"] / job["clients"])
    server.num_clients = job["clients"]
    server.setup_optim(lr=1.0)
    trainer = ScaffoldSerialClientTrainer(model, job["clients"])
    trainer.setup_dataset(data)
    trainer.setup_optim(job["epochs"], job["batch"], job["rate"])
    for data.step in range(job.rounds):
        trainer.local_process(server.downlink_package, [job.client(data.step, p) for p in range(job["cohort"])])
        for update in trainer.uplink_package:
            server.load(update)
        ends.append(time.perf_counter())
    job.finish(server.model, ends)


if __name__ == "__main__":
    main()
