"""FedAvg, FedProx, FedAdam and SCAFFOLD as a plain PyTorch loop, for federate.py: one client after another.

    federate_torch.py JOB WORKERS THREADS"""

import sys
import time

import torch

from federate_peer import Job


class Server:
    """Applies the mean of the clients' models or, for FedAdam, a step of Adam along the mean of their updates (Reddi et
    al., 2021, algorithm 2), optionally with Adam's bias correction."""

    def __init__(self, job, parameters):
        self.job, self.step = job, 0
        self.m, self.v = ([torch.zeros_like(p) for p in parameters] for _ in range(2))

    def next(self, i, value, mean):
        if self.job["algorithm"] != "fedadam":
            return mean
        server, update = self.job["server"], mean - value
        self.m[i].mul_(server["beta1"]).add_(update, alpha=1 - server["beta1"])
        self.v[i].mul_(server["beta2"]).addcmul_(update, update, value=1 - server["beta2"])
        m, v = self.m[i], self.v[i]
        if self.job["corrected"]:
            m, v = m / (1 - server["beta1"] ** self.step), v / (1 - server["beta2"] ** self.step)
        return value + server["lr"] * m / (v.sqrt() + server["eps"])


class Controls:
    """The control variates of SCAFFOLD, option II (Karimireddy et al., 2020, algorithm 1)."""

    def __init__(self, job, parameters):
        self.job, self.parameters = job, parameters
        self.server, self.change = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
        self.clients = [[torch.zeros_like(p) for p in parameters] for _ in range(job["clients"])]

    def correction(self, client):
        return [c - own for c, own in zip(self.server, self.clients[client])]

    def learn(self, client, anchor, steps):
        """Updates the control variates after a client's training, which began with the weights `anchor`."""
        for i, (start, end) in enumerate(zip(anchor, self.parameters)):
            change = (start - end.detach()) / (steps * self.job["rate"]) - self.server[i]
            self.clients[client][i] += change
            self.change[i] += change

    def end_round(self):
        for c, change in zip(self.server, self.change):
            c.add_(change / self.job["clients"])
            change.zero_()


def main():
    job = Job(sys.argv[1])
    torch.set_num_threads(int(sys.argv[3]))
    model = job.new_model()
    parameters, ends = list(model.parameters()), []
    server = Server(job, parameters)
    controls = Controls(job, parameters) if job["algorithm"].startswith("scaffold") else None
    for step in range(job.rounds):
        anchor = [p.detach().clone() for p in parameters]
        counts = [job.samples(step, place).shape[1] for place in range(job["cohort"])]
        shares = [1 / len(counts) if job["equal"] else count / sum(counts) for count in counts]
        mean = [torch.zeros_like(p) for p in parameters]
        for place in range(job["cohort"]):
            with torch.no_grad():
                for parameter, value in zip(parameters, anchor):
                    parameter.copy_(value)
            client = job.client(step, place)
            job.train(model, step, place, job["mu"], controls.correction(client) if controls else ())
            if controls:
                controls.learn(client, anchor, job["epochs"] * -(-counts[place] // job["batch"]))
            with torch.no_grad():
                for m, parameter in zip(mean, parameters):
                    m.add_(parameter, alpha=shares[place])
        if controls:
            controls.end_round()
        server.step = step + 1
        with torch.no_grad():
            for i, parameter in enumerate(parameters):
                parameter.copy_(server.next(i, anchor[i], mean[i]))
        ends.append(time.perf_counter())
    job.finish(model, ends)


if __name__ == "__main__":
    main()
