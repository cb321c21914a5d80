#!/usr/bin/env python3
"""Sends a run of brim to MLflow with MLflow's own client, as a hook or by hand:

    pip install mlflow-skinny
    brim train 'hooks.on_end=python3 /path/to/mlflow_run.py'
    python3 mlflow_run.py RUN

MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME choose the store and the experiment, as in every program with MLflow. A
store of its own, such as sqlite:////path/to/mlflow.db, also needs: pip install sqlalchemy alembic
Numbers of metrics.jsonl become metrics such as test_loss with their steps, and keys of the configuration parameters;
summary.json, config.yaml and report.html become artifacts. A run that was sent before is replaced."""

import json
import math
import os
import pathlib
import sys
import time

import mlflow
import yaml
from mlflow.entities import Metric, Param, RunTag

BATCH = 500  # MLflow takes 1000 metrics and 100 parameters at a time
STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


def flatten(node, path=""):
    """The keys of a configuration, dotted, with their values as text."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from flatten(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, str(node)


def records(path):
    """The records of a JSON lines file; a killed run leaves a part of a line, which is left out."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "step" in record and "split" in record:
            yield record


def metrics(run):
    """Every number of every record, at its step; MLflow stores infinities and NaN too."""
    now = int(time.time() * 1000)
    for record in records(run / "metrics.jsonl"):
        for key, value in record.items():
            if key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool):
                yield Metric(f"{record['split']}_{key}", float(value), now, int(record["step"]))


def remove_earlier(client, experiment, run):
    """A resumed run ends again: its new figures replace those sent before."""
    for old in client.search_runs([experiment], f"tags.`brim.run` = '{run}'"):
        client.delete_run(old.info.run_id)


def send(run):
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "brim")).experiment_id
    client = mlflow.MlflowClient()
    remove_earlier(client, experiment, run)
    sent = client.create_run(experiment, run_name=run.name, tags={"brim.run": str(run)}).info.run_id
    every = list(metrics(run))
    for i in range(0, len(every), BATCH):
        client.log_batch(sent, metrics=every[i:i + BATCH])
    last = [Metric(f"summary_{key}", float(value), int(time.time() * 1000), int(summary["steps"]))
            for key, value in summary.items() if isinstance(value, (int, float)) and math.isfinite(value)]
    client.log_batch(sent, metrics=last, tags=[RunTag("brim.status", summary["status"])])
    params = [Param(key, value[:500]) for key, value in flatten(config)]
    for i in range(0, len(params), 100):
        client.log_batch(sent, params=params[i:i + 100])
    for name in ("config.yaml", "summary.json", "report.html"):
        if (run / name).exists():
            client.log_artifact(sent, str(run / name))
    client.set_terminated(sent, STATUS.get(summary["status"], "FAILED"))
    print(f"sent {run} to MLflow as run {sent}: {len(every)} values")


if __name__ == "__main__":
    send(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else os.environ["BRIM_RUN"]).resolve())
