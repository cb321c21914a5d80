"""BlazeFL, for federate.py: its FedAvg on a pool of threads, its fastest mode even with Python's global lock.

    federate_blazefl.py JOB WORKERS THREADS

Its trainers take batches from a loader, which here splits a client's samples in brim's order, without processes."""

import sys
import time

import torch
from blazefl.contrib.fedavg import FedAvgBaseServerHandler, FedAvgThreadPoolClientTrainer

from federate_peer import MODELS, Job


class Models:
    def __init__(self, job):
        self.job = job

    def select_model(self, model_name):
        return MODELS[model_name]().to(self.job.dtype)


class Data:
    def __init__(self, job):
        self.job, self.step = job, 0

    def get_dataloader(self, type_, cid, batch_size, generator):
        return Batches(self.job, self.step, (cid - self.step * self.job["cohort"]) % self.job["clients"])


class Batches:
    """Holds the batches of a client; training iterates over them once an epoch."""

    def __init__(self, job, step, place):
        self.job, self.epochs = job, iter(job.samples(step, place))

    def __iter__(self):
        for part in next(self.epochs).split(self.job["batch"]):
            yield self.job.pick(part)


class Server(FedAvgBaseServerHandler):
    def sample_clients(self):
        first = self.round * self.num_clients_per_round
        return [(first + place) % self.num_clients for place in range(self.num_clients_per_round)]


def main():
    job, workers = Job(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(int(sys.argv[3]))
    data, ends = Data(job), []
    common = {"model_selector": Models(job), "model_name": job["model"], "dataset": data, "num_clients": job["clients"],
              "device": "cpu", "batch_size": job["batch"], "seed": 0}
    server = Server(global_round=job.rounds, sample_ratio=1.0, **common)
    server.num_clients_per_round = job["cohort"]
    server.model = job.new_model()
    trainer = FedAvgThreadPoolClientTrainer(**common, epochs=job["epochs"], lr=job["rate"], num_parallels=workers)
    while not server.if_stop():
        data.step = server.round
        trainer.local_process(server.downlink_package(), server.sample_clients())
        for package in trainer.uplink_package():
            server.load(package)
        ends.append(time.perf_counter())
    job.finish(server.model, ends)


if __name__ == "__main__":
    main()
