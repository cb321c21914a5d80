"""Federated averaging and FedProx as a plain PyTorch loop, for federate.py: one client after another.

    federate_torch.py JOB WORKERS THREADS"""

import sys
import time

import torch

from federate_peer import Job


def main():
    job = Job(sys.argv[1])
    torch.set_num_threads(int(sys.argv[3]))
    model = job.new_model()
    parameters, ends = list(model.parameters()), []
    for step in range(job.rounds):
        anchor = [p.detach().clone() for p in parameters]
        total = sum(job.samples(step, place).shape[1] for place in range(job["cohort"]))
        mean = [torch.zeros_like(p) for p in parameters]
        for place in range(job["cohort"]):
            with torch.no_grad():
                for parameter, value in zip(parameters, anchor):
                    parameter.copy_(value)
            count = job.train(model, step, place, job["mu"])
            with torch.no_grad():
                for m, parameter in zip(mean, parameters):
                    m.add_(parameter, alpha=count / total)
        with torch.no_grad():
            for parameter, value in zip(parameters, mean):
                parameter.copy_(value)
        ends.append(time.perf_counter())
    job.finish(model, ends)


if __name__ == "__main__":
    main()
