"""Flower's simulation, for federate.py: run_simulation with one of its own strategies on Ray.

    federate_flower.py JOB ACTORS THREADS

Flower samples the nodes; the message to each says which client of brim's round it is. Flower's FedAdam corrects the
bias with a round number that is one too high, unlike the paper and all peers: a round number so large that the
correction vanishes gives the paper's form.

Flower's adaptive clipping counts the updates that are longer than the clip norm, and Andrew et al. (2021) those that
are not, but both move the norm by exp(-rate * (share - target)). `clipped` counts as the paper does; `clipped_flower`
leaves Flower as it is."""

import logging
import os
import pathlib
import sys
import time

PATH = str(pathlib.Path(__file__).resolve().parent)
sys.path.insert(0, PATH)
os.environ["PYTHONPATH"] = PATH + os.pathsep + os.environ.get("PYTHONPATH", "")  # for Ray's workers
os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0")

import torch  # noqa: E402
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import (DifferentialPrivacyServerSideAdaptiveClipping, FedAdam, FedAvg,  # noqa: E402
                                     FedMedian, FedProx, FedTrimmedAvg, Krum, MultiKrum)
from flwr.simulation import run_simulation  # noqa: E402

from federate_peer import job_of  # noqa: E402

ROUNDS_WITHOUT_BIAS = 10 ** 6


def make_client(path, threads):
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context):
        import federate_peer
        job = federate_peer.job_of(path)
        torch.set_num_threads(threads)
        if not hasattr(job, "own_model"):
            job.own_model = job.new_model()
        config = message.content["config"]
        job.own_model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        count = job.train(job.own_model, config["server-round"] - 1, config["place"], config.get("proximal-mu", 0.0))
        content = RecordDict({"arrays": ArrayRecord(job.own_model.state_dict()),
                              "metrics": MetricRecord({"num-examples": 1 if job["equal"] else count})})
        return Message(content=content, reply_to=message)

    return app


def placed(base):
    """Extends the strategy by a position in the round for each sampled node, and by the times of its rounds."""

    class Placed(base):
        ends = []

        def configure_train(self, server_round, arrays, config, grid):
            messages = []
            for place, m in enumerate(super().configure_train(server_round, arrays, config, grid)):
                own = ConfigRecord({**m.content["config"], "place": place})
                messages.append(Message(content=RecordDict({"arrays": m.content["arrays"], "config": own}),
                                        message_type=m.metadata.message_type, dst_node_id=m.metadata.dst_node_id))
            return messages

        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            failed = [m.error.reason for m in replies if m.has_error()]
            if failed:
                raise RuntimeError(f"{len(failed)} clients failed: {failed[0]}")
            out = super().aggregate_train(ROUNDS_WITHOUT_BIAS if base is FedAdam else server_round, replies)
            self.ends.append(time.perf_counter())
            return out

    return Placed


class AsPaper(DifferentialPrivacyServerSideAdaptiveClipping):
    def _geometric_update(self, clipped_fraction):
        super()._geometric_update(1 - clipped_fraction)


def make_robust(job, common):
    """Returns a strategy that sees all updates of a round, or None."""
    name, byzantine = job["algorithm"], job["byzantine"]
    if name == "median":
        return placed(FedMedian)(**common)
    if name == "trimmed_mean":
        return placed(FedTrimmedAvg)(**common, beta=(byzantine + 0.5) / job["cohort"])
    if name == "krum":
        return placed(Krum)(**common, num_malicious_nodes=byzantine)
    if name == "multi_krum":
        return placed(MultiKrum)(**common, num_malicious_nodes=byzantine,
                                 num_nodes_to_select=job["cohort"] - byzantine)
    return None


def make_strategy(job, nodes):
    """Returns the strategy, and the part of it that knows the times of rounds."""
    common = {"fraction_train": job["cohort"] / nodes, "min_train_nodes": job["cohort"], "fraction_evaluate": 0.0,
              "min_available_nodes": nodes}
    if job["algorithm"] == "fedadam":
        server = job["server"]
        inner = placed(FedAdam)(**common, eta=server["lr"], beta_1=server["beta1"], beta_2=server["beta2"],
                                tau=server["eps"])
    elif job["algorithm"] == "fedprox":
        inner = placed(FedProx)(**common, proximal_mu=job["mu"])
    else:
        inner = make_robust(job, common) or placed(FedAvg)(**common)
    if not job["algorithm"].startswith("clipped"):
        return inner, inner
    clip, kind = job["clip"], AsPaper if job["algorithm"] == "clipped" else AsPaper.__base__
    return kind(inner, 0.0, job["cohort"], clip["norm"], clip["quantile"], clip["rate"], 0.0), inner


def main():
    path, actors, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    job, found = job_of(path), {}
    nodes = job["clients"]
    server = ServerApp()

    @server.main()
    def run(grid: Grid, context: Context):
        model = job.new_model()
        strategy, inner = make_strategy(job, nodes)
        result = strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=job.rounds)
        model.load_state_dict(result.arrays.to_torch_state_dict())
        found.update(model=model, ends=inner.ends)

    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(server_app=server, client_app=make_client(path, threads), num_supernodes=nodes,
                   backend_config={"client_resources": {"num_cpus": threads, "num_gpus": 0.0},
                                   "init_args": {"num_cpus": actors * threads, "include_dashboard": False}})
    job.finish(found["model"], found["ends"])


if __name__ == "__main__":
    main()
