"""FedLab, for federate.py: its SCAFFOLD (option II), FedDyn and Ditto with their serial trainers.

    federate_fedlab.py JOB WORKERS THREADS

Clients train in brim's order of a round. FedLab gives all clients the same weight. FedDyn is corrected in two places,
except as `feddyn_fedlab`; the job's weights of Ditto are the personal models."""

import sys
import time
import types

import torch
from fedlab.contrib.algorithm.ditto import DittoSerialClientTrainer, DittoServerHandler
from fedlab.contrib.algorithm.feddyn import FedDynSerialClientTrainer, FedDynServerHandler
from fedlab.contrib.algorithm.scaffold import ScaffoldSerialClientTrainer, ScaffoldServerHandler

from federate_peer import Job


class Batches:
    """Stands in for FedLab's data set. The batches of an epoch depend on the round. Ditto passes over them twice."""

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
        return map(self.job.pick, self.samples[(self.epoch - 1) % len(self.samples)].split(self.batch))


class CorrectedServer(FedDynServerHandler):
    """The published server subtracts the global model only once from the sum of the clients' models; it must do so once
    for each client."""

    def global_update(self, buffer):
        self.h = self.h + self.alpha / self.num_clients * (len(buffer) - 1) * self.model_parameters
        super().global_update(buffer)


class CorrectedTrainer(FedDynSerialClientTrainer):
    """The published trainer computes its regularizer from copies of the parameters, which have no gradient."""

    @property
    def model_parameters(self):
        return torch.cat([p.view(-1) for p in self._model.parameters()])

    def train(self, id, model_parameters, train_loader):
        sent = [p.detach().clone() for p in super().train(id, model_parameters, train_loader)]
        self.L[id] = self.L[id].detach()
        return sent


def open_programs(job, model):
    """Makes FedLab's server and trainer."""
    rounds, share, optim = job.rounds, job["cohort"] / job["clients"], [job["epochs"], job["batch"], job["rate"]]
    if job["algorithm"] == "scaffold":
        server, trainer = (ScaffoldServerHandler(model, rounds, share),
                           ScaffoldSerialClientTrainer(model, job["clients"]))
        server.setup_optim(lr=1.0)
    elif job["algorithm"] == "ditto":
        server, trainer = DittoServerHandler(model, rounds, share), DittoSerialClientTrainer(model, job["clients"])
        trainer.args = types.SimpleNamespace(epochs=job["epochs"], lr=job["rate"], mu=job["lambda"])
    else:
        corrected = job["algorithm"] == "feddyn"
        server = (CorrectedServer if corrected else FedDynServerHandler)(model, rounds, share)
        trainer = (CorrectedTrainer if corrected else FedDynSerialClientTrainer)(model, job["clients"])
        server.setup_optim(job["alpha"])
        optim.append(job["alpha"])
    server.num_clients = job["clients"]
    trainer.setup_optim(*optim)
    return server, trainer


def train_ditto(trainer, payload, clients, data, personal):
    """FedLab's own loop over clients calls functions that it does not have. As in brim, a personal model begins as the
    global model of the client's first round."""
    for client in clients:
        before = personal.get(client, payload[0])
        personal[client], sent = trainer.train(payload[0], before, data.get_dataloader(client, trainer.batch_size))
        yield [sent]


def main():
    job, ends, personal = Job(sys.argv[1]), [], {}
    torch.set_num_threads(int(sys.argv[3]))
    model, data = job.new_model(), Batches(job)
    server, trainer = open_programs(job, model)
    trainer.setup_dataset(data)
    for data.step in range(job.rounds):
        clients = [job.client(data.step, p) for p in range(job["cohort"])]
        if job["algorithm"] == "ditto":
            updates = list(train_ditto(trainer, server.downlink_package, clients, data, personal))
        else:
            trainer.local_process(server.downlink_package, clients)
            updates = trainer.uplink_package
        for update in updates:
            server.load(update)
        ends.append(time.perf_counter())
    job.finish(server.model, ends)
    if personal:
        job.write_weights(torch.cat([personal[client] for client in sorted(personal)]))


if __name__ == "__main__":
    main()
