"""Two hosts for tests, as network namespaces joined by a virtual cable: runs jobs over them, and cuts the cable.

Each has its own interfaces and its own name; files and processes are the machine's. That needs root, and a kernel
that permits it: see `problem`."""

import os
import pathlib
import shlex
import subprocess
import sys
import unittest

from jobs import MPIRUN, SKIPPED, Case, Job

ADDRESSES = ("192.0.2.1", "192.0.2.2")  # RFC 5737: not visible outside
INTERFACE = "eth0"

# mpirun's replacement for ssh: takes the host's address, and a line for its shell.
AGENT = """#!/bin/sh
shift
exec {enter} sh -c "$*"
"""


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _delete(names):
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def problem():
    """Returns the reason why this machine cannot have two hosts, in one line, or None."""
    name = f"brim{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
        try:
            _ip("-n", name, "link", "add", INTERFACE, "type", "veth", "peer", "name", "eth1")
            subprocess.run(["ip", "netns", "exec", name, "unshare", "--uts", "hostname", name], check=True,
                           capture_output=True, text=True)
        finally:
            _delete([name])
    except OSError as error:
        return f"no network namespaces: {error}"
    except subprocess.CalledProcessError as error:
        return f"no network namespaces: {error.stderr.strip()}"
    return None


class Hosts:
    """Hosts 0 and 1; close() removes them once their jobs have ended."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.names = [f"brim{os.getpid()}-{i}" for i in range(2)]
        made = []
        try:
            for name in self.names:
                _ip("netns", "add", name)
                made.append(name)
            _ip("-n", self.names[0], "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns",
                self.names[1])
            for name, address in zip(self.names, ADDRESSES):
                _ip("-n", name, "address", "add", f"{address}/24", "dev", INTERFACE)
                _ip("-n", name, "link", "set", INTERFACE, "up")
                _ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            _delete(made)
            raise
        self.agent = self.folder / "agent"
        self.agent.write_text(AGENT.format(enter=shlex.join(self.enter(1))), encoding="utf-8")
        self.agent.chmod(0o755)

    def enter(self, host):
        """Returns the prefix that makes a command run on a host, with that host's name."""
        name = self.names[host]
        return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "host"]

    def job(self, counts, *words, env=None):
        """Starts a job from host 0, with the same number of ranks on each host."""
        places = ",".join(f"{address}:{count}" for address, count in zip(ADDRESSES, counts) if count)
        settings = {"OMPI_MCA_plm_rsh_agent": str(self.agent), "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
                    "OMPI_MCA_oob_tcp_if_include": INTERFACE, "OMPI_MCA_btl_tcp_if_include": INTERFACE,
                    "OMPI_MCA_orte_keep_fqdn_hostnames": "1", **(env or {})}
        command = [MPIRUN[0], "--host", places, *MPIRUN[1:], str(sum(counts)), *map(str, words)]
        return Job(self.folder, command, settings, self.enter(0))

    def where(self, process):
        """Returns the host that a process runs on, or None if it runs on neither or has ended."""
        try:
            network = os.stat(f"/proc/{process}/ns/net").st_ino
        except OSError:
            return None
        inodes = [os.stat(f"/run/netns/{name}").st_ino for name in self.names]
        return inodes.index(network) if network in inodes else None

    def cut(self):
        _ip("-n", self.names[1], "link", "set", INTERFACE, "down")

    def mend(self):
        _ip("-n", self.names[1], "link", "set", INTERFACE, "up")

    def close(self):
        _delete(self.names)


class TwoHosts(Case):
    """A test with its own hosts."""

    def setUp(self):
        super().setUp()
        self.hosts = Hosts(self.folder)
        self.addCleanup(self.hosts.close)

    def over(self, counts, *words, env=None):
        job = self.hosts.job(counts, *words, env=env)
        self.addCleanup(job.kill)
        return job


def main():
    """Runs a file's tests if the machine permits them."""
    reason = problem()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
