"""Tests federate.mode=processes: each client is a process of its own, with its own device and limit. The result has the
bits of the simulation, no process exceeds its limit, and none is left running."""

import json
import os
import pathlib
import random
import signal
import threading
import time

from support import FAILED, FULL, HANG_SECONDS, INTERRUPTED, NO_FIT, USAGE, Case, main
from test_federate import KINDS

CHECKPOINT = ["model.safetensors", "optimizer.safetensors"]
PROCESSES = "federate.mode=processes"
TWO = ["backend=cpu", "backend.devices=2", "backend.memory_mb=64"]
SMALL = ["dataset=synthetic", "dataset.shape=[1,8,8]", "dataset.train_count=240", "dataset.test_count=40",
         "dataset.classes=4", "total_clients=3", "clients_per_round=2", "rounds=4", "model=lightcnn", "model.width=4",
         "partition=dirichlet", "federate.checkpoint_every_rounds=2", "memory.timing=false", *TWO]
TABLE = ["policy=capped", "policy.capped.shares={cpu:0: {server: 0.2, client_1: 16MB, client_3: 0.4}, "
                          "cpu:1: {client_2: 30MB}}"]
REFUSED = "median", "krum", "edge rounds"  # refused: aggregators that compare all updates, and rounds at edges
# For these kinds of federations, processes exchange nothing that other kinds do not exchange too.
ALIKE = "mlp", "dirichlet", "remainders", "fedprox", "async mlp"


def of_three_clients(words):
    """Returns the words of a kind of federation, changed to three clients."""
    few = {"total_clients": 3, "clients_per_round": 2}
    more = {"method.d": 2, "federate.concurrency": 3}  # replaces these values if the words set them
    keep = [word for word in words if word.split("=")[0] not in {*few, *more}]
    few.update({key: value for key, value in more.items() if any(word.startswith(f"{key}=") for word in words)})
    if "privacy.noise_multiplier=0.3" in words:
        few["privacy.count_stddev"] = 0.5
    if "federate.async=true" in words:
        few["rounds"] = 3  # with three clients the loss is not a number after round 4
    return [*keep, *(f"{key}={value}" for key, value in few.items())]


class Processes(Case):
    def launch(self, run, *words, env=None):
        return self.start("federate", f"run.dir={self.folder / run}", PROCESSES, *words, env=env)

    def last(self, run):
        return [(self.folder / run / "checkpoints" / "last" / name).read_bytes() for name in CHECKPOINT]

    def assert_same(self, run, other):
        self.assertEqual(self.last(run), self.last(other))
        self.assertEqual(self.read(run, "participants.jsonl"), self.read(other, "participants.jsonl"))

    def processes(self, run):
        """Returns the processes of a run other than the launcher: {name: process}."""
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                environment = dict(word.split("=", 1) for word in
                                   (path / "environ").read_bytes().decode(errors="replace").split("\0") if "=" in word)
            except OSError:
                continue
            if f"run.dir={self.folder / run}" in words and "BRIM_RANK" in environment:
                found[environment["CLIENT_ID"]] = int(path.name)
        return found

    def until_nothing_runs(self, run):
        self.until(lambda: not self.processes(run), what="the end of all processes")


class Bits(Processes):
    def test_processes_change_no_bit(self):
        """Two of three clients are selected. The cases cover everything that processes exchange: losses for selectors
        and aggregators, sketches, client states, controls, compressed updates, noise."""
        for name, words in KINDS.items():
            if name in REFUSED or name in ALIKE and not FULL:
                continue
            with self.subTest(name):
                words = of_three_clients(words)
                self.federate(f"{name} simulated", *words)
                self.federate(f"{name} apart", *words, PROCESSES)
                self.assert_same(f"{name} simulated", f"{name} apart")
                self.assertEqual(self.summary(f"{name} simulated").get("client_accuracy_mean"),
                                 self.summary(f"{name} apart").get("client_accuracy_mean"))
                self.assertEqual([record["accuracy"] for record in self.records(f"{name} simulated")],
                                 [record["accuracy"] for record in self.records(f"{name} apart")])

    def test_all_clients_of_a_world_with_dropouts(self):
        words = [*SMALL, "clients_per_round=3", "network=moderate", "world.dropout=0.3", "federate.min_clients=1"]
        self.federate("simulated", *words)
        result = self.federate("apart", *words, *TABLE, PROCESSES)
        self.assert_same("simulated", "apart")
        self.assertIn("the server, and a process for each of 3 clients", result.out)
        self.assertRegex(result.out, r"processes: server \S+ KiB of cpu:0, at most 12\.8 MiB; client_1 \S+ KiB of cpu:0"
                                     r", at most 15\.3 MiB; client_2 \S+ KiB of cpu:1, at most 28\.6 MiB; client_3 ")
        self.assertIn("dropout", self.read("apart", "participants.jsonl"))

    def test_validation_data_are_the_servers(self):
        words = [*SMALL, "dataset.validation_fraction=0.25", "federate.target_accuracy=0.99"]
        self.federate("simulated", *words)
        self.federate("apart", *words, PROCESSES)
        self.assert_same("simulated", "apart")

    def test_a_client_that_runs_out_of_memory_is_trained_again(self):
        words = of_three_clients(KINDS["kept norms"])  # the selector asks for losses
        self.federate("whole", *words)
        for fault in "rank:1:step:1:client:1", "rank:2:step:2:begin", "rank:0:step:3:begin", "rank:3:step:2:update":
            with self.subTest(fault):
                run = fault.replace(":", " ")
                self.federate(run, *words, PROCESSES, env={"BRIM_FAULT": fault})
                self.assert_same("whole", run)

    def test_a_sweep_over_networks(self):
        words = [*SMALL, "rounds=2", PROCESSES, "network=good,moderate"]
        result = self.brim("federate", "-m", "run.dir=sweep", *words)
        self.assertIn("2 finished", result.out, result)
        self.assertEqual(self.last("sweep/0"), self.last("sweep/1"))
        good, moderate = (self.summary(f"sweep/{job}") for job in (0, 1))
        self.assertLess(good["simulated_seconds"], moderate["simulated_seconds"])


class Limits(Processes):
    """The case of system I has two clients on two devices and a server, the task emotion, the scenario moderate and 3
    rounds."""

    EMOTION = ["+experiment=emotion", "dataset=synthetic", "dataset.shape=[1,48,48]", "dataset.classes=7",
               "transform=none", "dataset.train_count=32", "dataset.test_count=16", "federate.local_epochs=1",
               "total_clients=2", "clients_per_round=2", "rounds=3", "network=moderate", "memory.timing=false",
               "backend.threads=1"]
    DEVICES = ["backend=cpu", "backend.devices=2", "backend.memory_mb=250"]
    CAPS = {"server": 100 << 20, "client_1": 150 << 20, "client_2": 120 << 20}
    SHARES = ["policy=capped", "policy.capped.shares={cpu:0: {server: 0.4, client_1: 0.6}, cpu:1: {client_2: 120MiB}}"]

    def watch(self, process, seen):
        """Collects the state that other programs see: the bytes of each process on each device."""
        while process.poll() is None:
            found = self.brim("devices", "--json", "backend=cpu", *self.DEVICES[1:]).json
            for device in found["devices"]:
                users = [(user["pid"], user["bytes"]) for user in device["users"] or []]
                if device["backend"] == "cpu" and users:
                    seen.append((device["index"], users))
            time.sleep(0.1)  # because a look takes as much processor time as many steps

    def write_csv(self, name, columns, label, value):
        """Writes columns of sensor values, and one computed from each row's number."""
        draw = random.Random(7)
        lines = [",".join([*(f"x{k}" for k in range(columns)), label])]
        lines += [",".join([*(f"{draw.gauss(0, 1):.4f}" for _ in range(columns)), str(value(i))]) for i in range(400)]
        (self.folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def test_the_cases_with_sensor_data_have_the_same_bits_apart(self):
        self.write_csv("mental.csv", 32, "Label", lambda i: i % 3)
        self.write_csv("room.csv", 3, "temperature", lambda i: 20 + i % 24 / 10)
        for case, file, network in ("mental_state", "mental", "satellite"), ("temperature", "room", "congested_heavy"):
            with self.subTest(case):
                words = [f"experiment={case}", f"dataset.path={self.folder / file}.csv", f"network={network}",
                         "total_clients=2", "clients_per_round=2", "rounds=2", "federate.local_epochs=1",
                         "memory.timing=false", *self.DEVICES]
                self.federate(f"{case} simulated", *words)
                self.federate(f"{case} apart", *words, PROCESSES)
                self.assert_same(f"{case} simulated", f"{case} apart")
                self.assertGreater(self.summary(f"{case} apart")["simulated_seconds"], 0)

    def test_a_sweep_compares_all_scenarios(self):
        """Nothing is trained, so that only the simulated world takes time."""
        networks = ["excellent", "good", "moderate", "poor", "very_poor", "satellite", "congested_light",
                    "congested_moderate", "congested_heavy", "dynamic"]
        words = [word for word in self.EMOTION if not word.startswith(("network=", "rounds="))]
        self.federate("all", "-m", *words, "rounds=2", "federate.train=false", "backend=cpu",
                      f"network={','.join(networks)}")
        jobs = json.loads(self.read("all", "sweep.json"))["jobs"]
        self.assertEqual([job["status"] for job in jobs], ["finished"] * len(networks))
        seconds = {name: self.summary(f"all/{i}")["simulated_seconds"] for i, name in enumerate(networks)}
        self.assertLess(seconds["excellent"], seconds["good"])
        self.assertLess(seconds["good"], seconds["poor"])
        self.assertLess(seconds["poor"], seconds["very_poor"])

    def test_two_clients_on_two_devices_keep_to_their_limits(self):
        self.federate("simulated", *self.EMOTION, "backend=cpu")
        process = self.launch("apart", *self.EMOTION, *self.DEVICES, *self.SHARES)
        names, seen = {}, []
        self.until(lambda: names.update(self.processes("apart")) or len(names) == 3, process)
        watcher = threading.Thread(target=self.watch, args=(process, seen))
        watcher.start()
        out, err = process.communicate(timeout=HANG_SECONDS)
        watcher.join()
        self.assertEqual(process.returncode, 0, out + err)
        self.assert_same("simulated", "apart")
        self.assertEqual(self.summary("simulated")["simulated_seconds"], self.summary("apart")["simulated_seconds"])
        owner = {pid: name for name, pid in names.items()}
        places = {"server": 0, "client_1": 0, "client_2": 1}
        most = {}
        for device, users in seen:
            self.assertLessEqual(sum(taken for _, taken in users), 250 << 20)
            for pid, taken in users:
                name = owner[pid]
                self.assertEqual(device, places[name], name)
                self.assertLessEqual(taken, self.CAPS[name], name)
                most[name] = max(taken, most.get(name, 0))
        self.assertEqual(set(most), set(places), "all three were seen")
        self.assertLess(most["server"], most["client_1"], "the server has no memory for training")
        self.until_nothing_runs("apart")

    def test_each_process_has_its_name_and_its_device(self):
        process = self.launch("run", *SMALL, *TABLE, "rounds=100000", "federate.eval_every_rounds=100000")
        self.until(lambda: len(self.processes("run")) == 4 and self.has_begun("run"), process)
        for name, pid in self.processes("run").items():
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            device = "cpu:1" if name == "client_2" else "cpu:0"
            self.assertIn(f"BRIM_SHARE_DEVICE={device}", environment, name)
        process.send_signal(signal.SIGTERM)
        self.finish(process, INTERRUPTED)
        self.until_nothing_runs("run")

    def test_the_plan_shows_client_and_server(self):
        plan = self.brim("--config-name", "federate", "plan", *SMALL, *TABLE, PROCESSES, "--json").json
        self.assertLess(plan["server_process_bytes"], plan["peak_bytes"])
        self.assertEqual([row["parallel_clients"] for row in plan["table"]], [1])
        out = self.brim("--config-name", "federate", "plan", *SMALL, *TABLE, PROCESSES).out
        self.assertIn("in the process of each of 3 clients; the server's process needs", out)
        self.assertIn("of a client's process, the global model and the sums of updates take", out)
        self.assertNotIn("the server takes", out)


class Refusals(Processes):
    def refuse(self, table, *parts, words=(), status=USAGE, env=None):
        shares = ["policy=capped", f"policy.capped.shares={table}"] if table else []
        result = self.federate("run", *SMALL, PROCESSES, *shares, *words, status=status, env=env)
        self.assert_error(result, *parts)
        self.assertEqual(result.err.count("error: "), 1, result)
        self.assertFalse((self.folder / "run").exists(), "nothing was begun")
        return result

    def test_a_table_without_a_client_or_with_others(self):
        self.refuse("{cpu:0: {server: 0.2, client_1: 0.2, client_3: 1MB}}",
                    "policy.capped gives 'client_2' no share of a device of backend 'cpu'",
                    "the table has: server of cpu:0, client_1 of cpu:0, client_3 of cpu:0")
        self.refuse("{cpu:0: {client_1: 0.2, client_2: 0.2, client_3: 0.2}}", "gives 'server' no share")
        self.refuse("{cpu:0: {server: 0.2, client_1: 0.2, client_2: 0.2, client_3: 0.2, alice: 0.1}}",
                    "policy.capped gives 'alice' a share of cpu:0, but no process has this name",
                    "the processes are server and client_1 and so on")
        self.refuse("{cpu:7: {server: 0.2, client_1: 0.2, client_2: 0.2, client_3: 0.2}}",
                    "policy.capped gives 'server' a share of cpu:7, but there is no such device", "numbered from 0")

    def test_a_table_that_gives_away_more_than_a_device_has(self):
        self.refuse("{cpu:0: {server: 0.4, client_1: 0.4, client_2: 0.4}, cpu:1: {client_3: 0.1}}",
                    "the shares of cpu:0 add up to 120 % of it: 76.8 MiB of 64.0 MiB",
                    "25.6 MiB server + 25.6 MiB client_1 + 25.6 MiB client_2")

    def test_a_cap_below_the_plan(self):
        self.refuse("{cpu:0: {server: 0.2, client_1: 0.2, client_2: 0.2}, cpu:1: {client_3: 70kB}}",
                    "rank 3: the run needs ", ", but the policy allows 68.4 KiB", status=NO_FIT)
        self.refuse("{cpu:0: {server: 10kB, client_1: 0.2, client_2: 0.2}, cpu:1: {client_3: 0.5}}",
                    "the run needs ", ", but the policy allows 9.8 KiB", status=NO_FIT)

    def test_clients_that_collide(self):
        """Each plan fits the device, but both together do not, so the clients would wait for each other for ever."""
        large = ["model.width=64", "training.batch_size=64", "backend.devices=1", "backend.memory_mb=7"]
        for wait in "false", "true":
            self.refuse(None, "the processes on cpu:0 need ", " together, but it has 7.0 MiB", " server + ",
                        " client_1 + ", "give some of them another device", status=NO_FIT,
                        words=[*large, f"wait_for_gpu={wait}"])

    def test_another_device_than_the_tables(self):
        table = "{cpu:0: {server: 0.2, client_1: 0.2, client_2: 0.2}, cpu:1: {client_3: 0.5}}"
        self.refuse(table, "policy.capped gives 'client_3' a share only of cpu:1, but GPU_DEVICE_ID asks for cpu:0",
                    env={"GPU_DEVICE_ID": "0"})
        self.refuse(table, "gives 'server' a share only of cpu:0, but device asks for cpu:1", words=["device=cpu:1"])

    def test_keys_without_meaning(self):
        for word, part in (("parallel_clients=2", "each client has a process, which trains it alone"),
                           ("comm=mpi", "the processes exchange messages with the process that starts them"),
                           ("aggregator=median", "it compares the updates of all clients"),
                           ("dist.ranks=3", "a process for each of the 3 clients and one for the server: 4"),
                           ("total_clients=2000", "would start 2001 processes; the limit is 1024")):
            with self.subTest(word):
                self.refuse(None, part, words=[word])
        self.refuse("{cpu:0: {server: 0.2, client_1: 0.2, client_2: 0.2, client_3: 0.2}}",
                    "'policy.capped.client' cannot be combined", words=["policy.capped.client=bob"])

    def test_without_clients_it_has_no_effect(self):
        self.train("run", "federate.mode=processes", "model=mlp", "dataset=synthetic", "training.steps=1")


class Queue(Processes):
    def test_processes_wait_for_memory_that_another_run_holds(self):
        # Plans: 3.5 to 4.5 by instruction set, and 1.6.
        devices = ["backend=cpu", "backend.devices=1", "backend.memory_mb=5"]
        words = [*SMALL, *devices, "model.width=16"]
        holder = self.hold_still("holder", "model=mlp", "model.hidden=[384]", "dataset=synthetic",
                                 "dataset.shape=[1,16,16]", "training.batch_size=32", *devices)
        self.federate("refused", *words, PROCESSES, status=NO_FIT)
        process = self.launch("run", *words, "wait_for_gpu=true")
        self.until(lambda: self.waiting(devices) > 0, process)
        holder.kill()
        self.finish(process, 0)

    def waiting(self, devices):
        found = self.brim("devices", "--json", "backend=cpu", *devices[1:]).json
        return sum(ticket["claimed"] is None for ticket in found["queue"])


class Ends(Processes):
    LONG = [*SMALL, "network=moderate", "rounds=200", "federate.checkpoint_every_rounds=3",
            "federate.eval_every_rounds=200", "method=power_of_choice", "method.d=3"]

    def whole(self):
        """Returns the folder of an undisturbed run."""
        run = self.shared / "whole"
        if not run.exists():
            self.federate(run, *self.LONG)
        return run

    def launch_long(self, run, table=()):
        process = self.launch(run, *self.LONG, *table)
        self.until(lambda: self.steps(run) or process.poll() is not None)
        self.assertIsNone(process.poll())
        return process

    def test_a_killed_process_ends_all_and_the_run_resumes_to_the_same_bytes(self):
        whole = self.whole()
        for name in "client_2", "server":
            with self.subTest(name):
                process = self.launch_long(name, TABLE)
                os.kill(self.processes(name)[name], signal.SIGKILL)
                result = self.finish(process, FAILED)
                self.assert_error(result, "was killed by signal 9",
                                  f"with: brim federate --resume {self.folder / name}")
                self.assertEqual(result.err.count("error: "), 1, result)
                self.until_nothing_runs(name)
                self.brim("federate", "--resume", name)
                self.assert_same(whole, name)

    def test_a_killed_launcher_leaves_nothing(self):
        process = self.launch_long("run")
        process.kill()
        self.finish(process)
        self.until_nothing_runs("run")

    def test_interrupted_and_resumed_in_either_mode(self):
        whole = self.whole()
        process = self.launch_long("run")
        process.send_signal(signal.SIGINT)
        self.finish(process, INTERRUPTED)
        self.until_nothing_runs("run")
        self.brim("federate", "--resume", "run", "federate.mode=simulate")
        self.assert_same(whole, "run")


class Containers(Case):
    """The compose file of docs/examples, which cannot be run here."""

    PATH = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/isolated_clients/compose.yaml"

    def test_brim_accepts_the_command(self):
        words = self.PATH.read_text(encoding="utf-8").split("brim federate ")[1].split("deploy:")[0].split()
        self.assertIn(PROCESSES, words)
        out = self.brim("--config-name", "federate", "config", *words, "backend=cpu").out
        self.assertIn("total_clients: 2\n", out)

    def test_it_is_yaml_with_a_gpu_for_each_service(self):
        try:
            import yaml  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("needs PyYAML")
        services = yaml.safe_load(self.PATH.read_text(encoding="utf-8"))["services"]
        self.assertEqual(set(services), {"server", "client_1", "client_2"})
        gpus = [service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
                for service in services.values()]
        self.assertEqual(sorted(map(tuple, gpus)), [("0",), ("1",), ("2",)])
        self.assertTrue(services["server"]["command"].startswith("mpirun -n 3 "))


if __name__ == "__main__":
    main()
