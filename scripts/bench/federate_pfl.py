"""pfl-research, for federate.py: its FederatedAveraging, FedProx or SCAFFOLD on its SimulatedBackend, in one process or
several.

    federate_pfl.py JOB PROCESSES THREADS

Users are sampled in brim's order. FedAdam uses PyTorch's Adam as the central optimizer, as in pfl's own benchmarks, and
so has its bias correction.

pfl 0.6.0 computes SCAFFOLD's controls with option II from trained minus initial weights, where the paper has initial
minus trained: its controls are the paper's times -1. Its local step adds c - c_i all the same. `scaffold` swaps the two
for the local step, which gives the paper's step; `scaffold_pfl` leaves pfl as it is."""

import os
import socket
import subprocess
import sys
import time

if int(sys.argv[2]) > 1 and "PFL_WORKER_RANK" not in os.environ:
    ports = [socket.socket() for _ in range(int(sys.argv[2]))]
    for port in ports:
        port.bind(("localhost", 0))
    os.environ["PFL_WORKER_ADDRESSES"] = ",".join(f"localhost:{port.getsockname()[1]}" for port in ports)
    for port in ports:
        port.close()
    OTHERS = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "PFL_WORKER_RANK": str(rank)},
                               stdout=subprocess.DEVNULL) for rank in range(1, len(ports))]
    os.environ["PFL_WORKER_RANK"] = "0"
else:
    OTHERS = []

import torch  # noqa: E402
from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.algorithm.fedprox import FedProx, FedProxParams  # noqa: E402
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.data.dataset import Dataset  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.data.user_state import InMemoryUserStateStorage  # noqa: E402
from pfl.hyperparam.base import NNTrainHyperParams  # noqa: E402
from pfl.internal.bridge.pytorch.scaffold import PyTorchSCAFFOLDBridge  # noqa: E402
from pfl.metrics import Metrics, Weighted  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402
from pfl.privacy.adaptive_clipping import AdaptiveClippingGaussianMechanism  # noqa: E402
from pfl.privacy.gaussian_mechanism import GaussianMechanism  # noqa: E402
from torch.nn import functional  # noqa: E402

from federate_peer import Job  # noqa: E402


def with_loss(model):
    """Adds the methods that pfl needs to the model."""

    class WithLoss(type(model)):
        def loss(self, x, y):
            return functional.cross_entropy(self(x), y)

        def metrics(self, x, y):
            return {"loss": Weighted(functional.cross_entropy(self(x), y, reduction="sum").item(), len(y))}

    model.__class__ = WithLoss
    return model


class Ends(TrainingProcessCallback):
    def __init__(self):
        self.times = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.times.append(time.perf_counter())
        return False, Metrics()


def make_data(job):
    """Makes a user of each position in each round; users are sampled in this order."""
    turn = iter(range(10 ** 9))

    def dataset(user):
        step, place = divmod(user, job["cohort"])
        own = job.samples(step, place)
        assert len(own) == 1 or job["batch"] >= own.shape[1], "pfl goes through a user's samples in one order"
        return Dataset(job.pick(own[0]), user_id=str(job.client(step, place)))

    return FederatedDataset(dataset, lambda: next(turn))


def swap_controls():
    """Makes the local step add c_i - c instead of c - c_i."""
    step = PyTorchSCAFFOLDBridge.do_control_variate_sgd

    def swapped(model, user_dataset, train_params, local_c, server_c):
        step(model, user_dataset, train_params, local_c=server_c, server_c=local_c)

    PyTorchSCAFFOLDBridge.do_control_variate_sgd = staticmethod(swapped)


def make_algorithm(job):
    shape = {"central_num_iterations": job.rounds, "evaluation_frequency": 10 ** 9, "train_cohort_size": job["cohort"],
             "val_cohort_size": 0}
    if job["algorithm"] == "fedprox":
        return FedProx(), FedProxParams(**shape, mu=job["mu"])
    if job["algorithm"].startswith("scaffold"):
        if job["algorithm"] != "scaffold_pfl":
            swap_controls()
        return SCAFFOLD(), SCAFFOLDParams(**shape, population=job["clients"], use_gradient_as_control_variate=False,
                                          user_state_storage=InMemoryUserStateStorage())
    return FederatedAveraging(), NNAlgorithmParams(**shape)


def make_clipping(clip):
    """Makes adaptive clipping with next to no noise; pfl divides by its standard deviations, so they cannot be 0."""
    return AdaptiveClippingGaussianMechanism(lambda bound: GaussianMechanism(bound, 1e-12), clip["norm"], 1e-6,
                                             clip["quantile"], clip["rate"])


def main():
    job = Job(sys.argv[1])
    torch.set_num_threads(int(sys.argv[3]))
    model, data, ends = with_loss(job.new_model()), make_data(job), Ends()
    server = job["server"]
    central = torch.optim.SGD(model.parameters(), lr=1.0)
    if job["algorithm"] == "fedadam":
        central = torch.optim.Adam(model.parameters(), lr=server["lr"], betas=(server["beta1"], server["beta2"]),
                                   eps=server["eps"])
    train = NNTrainHyperParams(local_batch_size=job["batch"], local_num_epochs=job["epochs"],
                               local_learning_rate=job["rate"])
    algorithm, parameters = make_algorithm(job)
    after = [WeightByUser() if job["equal"] else WeightByDatapoints()]
    if job["algorithm"] == "clipped":
        after.append(make_clipping(job["clip"]))
    algorithm.run(parameters, SimulatedBackend(training_data=data, val_data=data, postprocessors=after),
                  PyTorchModel(model, torch.optim.SGD, central), train, callbacks=[ends],
                  send_metrics_to_platform=False)
    job.finish(model, ends.times)
    for other in OTHERS:
        assert other.wait() == 0


if __name__ == "__main__":
    main()
