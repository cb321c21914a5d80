"""Flower's simulation, for federate.py: run_simulation with its own FedAvg, FedProx or FedAdam on Ray.

    federate_flower.py JOB ACTORS THREADS

Flower samples the nodes; the message to each says which client of brim's round it is. Flower's FedAdam corrects the
bias with a round number that is one too high, unlike the paper and all peers: a round number so large that the
correction vanishes gives the paper's form."""

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
from flwr.serverapp.strategy import FedAdam, FedAvg, FedProx  # noqa: E402
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
                              "metrics": MetricRecord({"num-examples": count})})
        return Message(content=content, reply_to=message)

    return app


def placed(base):
    """The strategy, extended by a position in the round for each sampled node, and by the times of its rounds."""

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


def make_strategy(job, nodes):
    common = {"fraction_train": job["cohort"] / nodes, "min_train_nodes": job["cohort"], "fraction_evaluate": 0.0,
              "min_available_nodes": nodes}
    if job["algorithm"] == "fedadam":
        server = job["server"]
        return placed(FedAdam)(**common, eta=server["lr"], beta_1=server["beta1"], beta_2=server["beta2"],
                             tau=server["eps"])
    if job["algorithm"] == "fedprox":
        return placed(FedProx)(**common, proximal_mu=job["mu"])
    return placed(FedAvg)(**common)


def main():
    path, actors, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    job, found = job_of(path), {}
    nodes = job["clients"]
    server = ServerApp()

    @server.main()
    def run(grid: Grid, context: Context):
        model, strategy = job.new_model(), make_strategy(job, nodes)
        result = strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=job.rounds)
        model.load_state_dict(result.arrays.to_torch_state_dict())
        found.update(model=model, ends=strategy.ends)

    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(server_app=server, client_app=make_client(path, threads), num_supernodes=nodes,
                   backend_config={"client_resources": {"num_cpus": threads, "num_gpus": 0.0},
                                   "init_args": {"num_cpus": actors * threads, "include_dashboard": False}})
    job.finish(found["model"], found["ends"])


if __name__ == "__main__":
    main()
