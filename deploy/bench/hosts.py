#!/usr/bin/env python3
"""Measures what crosses between hosts, which are network namespaces of this machine.

  deploy/bench.sh --only hosts [--mib N] [--gbit N] [--model DIR]

Two hosts: collectives of two ranks beside iperf3 between the same namespaces, in turns. Then one host
with a trainer and three with a rollout each, whose links carry --gbit (default 1) each way: seconds of
a weight sync where the trainer sends to each rollout in turn (star), and where each passes the weights on to
the next (chain), with real processes and TLS. Beside them the least time that the bytes need. Needs root, ip and tc
(iproute2), and iperf3. Nothing is asserted.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from machine import ROOT, commit, machine

TURNS = 8  # of iperf3: as many as tandem-comm-bench takes
ROLLOUTS = 3
STEPS = 4
PORT = 7001
LIMIT_SECONDS = 900  # of a run
PROGRAMS = ("tandem-comm-bench", "tandem-controller", "tandem-trainer", "tandem-rollout", "tandem-agent", "tandemctl")


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True)


class Hosts:
    """Namespaces on one bridge, 10.98.0.1 and so on; gone at the end of the `with`."""

    def __init__(self, count, gbit=0):
        self.names = [f"tandem-bench-{os.getpid()}-{i}" for i in range(count)]
        self.switch = f"tandem-bench-{os.getpid()}-switch"
        self.gbit = gbit

    def address(self, host):
        return f"10.98.0.{host + 1}"

    def __enter__(self):
        try:
            ip("netns", "add", self.switch)
            ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge", "up")
            for i, name in enumerate(self.names):
                self.attach(i, name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def attach(self, i, name):
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}", "netns", self.switch)
        ip("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.switch, "link", "set", f"port{i}", "master", "bridge", "up")
        if self.gbit:
            for network, device in ((name, "eth0"), (self.switch, f"port{i}")):
                subprocess.run(["tc", "-n", network, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{self.gbit}gbit",
                                "burst", "256kb", "latency", "50ms"], check=True)

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def inside(self, host, command):
        return ["ip", "netns", "exec", self.names[host], *map(str, command)]


def iperf3(hosts, mib):
    """Bytes a second from host 0 to host 1."""
    with subprocess.Popen(hosts.inside(1, ["iperf3", "-s", "-1"]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(50):
                done = subprocess.run(hosts.inside(0, ["iperf3", "-c", hosts.address(1), "-n", f"{mib}M", "-J"]),
                                      capture_output=True, text=True, check=False)
                received = json.loads(done.stdout or "{}").get("end", {}).get("sum_received")
                if done.returncode == 0 and received:
                    return received["bits_per_second"] / 8
                time.sleep(0.1)  # the server does not listen yet
        finally:
            server.terminate()
    raise RuntimeError(f"iperf3: {done.stdout}")


def collectives(bench, mib):
    with Hosts(2) as hosts:
        rates = [iperf3(hosts, mib) for _ in range(TURNS // 2)]
        done = subprocess.run([bench, "tcp", str(mib), hosts.names[0], hosts.address(0), hosts.names[1], hosts.address(1)],
                              stdout=subprocess.PIPE, text=True, check=True)
        rates += [iperf3(hosts, mib) for _ in range(TURNS // 2)]
    best = max(rates)
    print(done.stdout, end="")
    print(f"{'iperf3 -n ' + str(mib) + 'M':<34} {best / 1e9:6.2f} GB/s")
    plain = done.stdout.split("TLS")[0]
    for what in ("all-gather", "reduce-scatter"):
        rate = float(re.search(rf"^{what} +([\d.]+) GB/s", plain, re.M)[1])
        print(f"{what}, plain: {rate * 1e9 / best:.2f} of iperf3 (target 0.70)")


def configuration(folder, model, fan_out, hosts):
    """A run of one trainer and ROLLOUTS rollouts, each on a host of its own."""
    certs = folder / "certs"
    run_dir = folder / fan_out
    settings = {
        "model.path": model, "data.train_files": folder / "data" / "train.jsonl", "cluster.run_dir": run_dir, "cluster.hybrid_engine": "false",
        "trainer.default_local_dir": run_dir / "checkpoints", "trainer.nnodes": 1, "trainer.n_gpus_per_node": 1,
        "cluster.trainers": 1, "cluster.rollouts": ROLLOUTS, "rollout.nnodes": ROLLOUTS, "rollout.n_gpus_per_node": 1,
        "cluster.listen": f"{hosts.address(0)}:{PORT}", "trainer.total_training_steps": STEPS, "weight_sync.fan_out": fan_out,
        "data.train_batch_size": ROLLOUTS, "rollout.n": 2, "data.max_response_length": 8, "rollout.max_num_seqs": 8,
        "cluster.tls.cert": certs / "controller.pem", "cluster.tls.key": certs / "controller.key",
        "cluster.tls.ca": certs / "ca.pem", "weight_sync.check": "first", "cluster.compute_threads": 1}
    return ["--config", ROOT / "configs" / "bench.yaml", "--set", *(f"{key}={value}" for key, value in settings.items())]


@contextlib.contextmanager
def started(command, log):
    with open(log, "ab") as output, subprocess.Popen(list(map(str, command)), stdout=output, stderr=output,
                                                     start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)


def seconds_of_syncs(binaries, folder, model, fan_out, hosts):
    """Of each step's sync but the first, whose check comes on top."""
    logs = folder / f"{fan_out}-logs"
    logs.mkdir()
    with contextlib.ExitStack() as stack:
        controller = stack.enter_context(started(
            hosts.inside(0, [binaries / "tandem-controller", *configuration(folder, model, fan_out, hosts), "--node", "host0"]),
            logs / "controller"))
        for i in range(1 + ROLLOUTS):
            stack.enter_context(started(
                hosts.inside(i, [binaries / "tandem-agent", "--controller", f"{hosts.address(0)}:{PORT}", "--host-index", i,
                                 "--hosts", 1 + ROLLOUTS, "--node", f"host{i}", "--tls-dir", folder / "certs", "--log-dir", logs]),
                logs / f"agent-{i}"))
        code = controller.wait(LIMIT_SECONDS)
    if code != 0:
        sys.exit(f"the run ended with {code}:\n" + (logs / "controller").read_text()[-4000:])
    lines = (folder / fan_out / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["data"] for line in lines][1:]


def syncs(binaries, model, gbit):
    with tempfile.TemporaryDirectory() as name, Hosts(1 + ROLLOUTS, gbit) as hosts:
        folder = pathlib.Path(name)
        ctl = binaries / "tandemctl"
        subprocess.run([ctl, "data", "make", "addition", folder / "data"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([ctl, "certs", "init", folder / "certs"], check=True, stdout=subprocess.DEVNULL)
        named = [word for i in range(1 + ROLLOUTS) for word in ("--host", hosts.address(i))]
        for role in ("controller", "trainer", "rollout", "agent", "operator"):
            subprocess.run([ctl, "certs", "issue", folder / "certs", "--role", role, *named], check=True, stdout=subprocess.DEVNULL)
        for fan_out in ("star", "chain"):
            found = seconds_of_syncs(binaries, folder, model, fan_out, hosts)
            seconds = min(one["timing_s/update_weights"] for one in found)
            sent = found[-1]["perf/weights_sent_bytes"]
            print(f"{fan_out:<6} {seconds:7.2f} s a sync of {ROLLOUTS} rollouts; {sent / 1e6:7.1f} MB left the trainer, which takes "
                  f"{sent * 8e-9 / gbit:5.2f} s at {gbit} Gbit/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--mib", type=int, default=64, help="that two ranks exchange (default 64)")
    parser.add_argument("--gbit", type=float, default=1, help="of each host's link, each way (default 1)")
    parser.add_argument("--model", type=pathlib.Path, required=True, help="default: that of deploy/fetch_model.sh")
    args = parser.parse_args()
    if not (args.model / "config.json").exists():
        sys.exit(f"no model in {args.model}: run deploy/fetch_model.sh, or name one with --model")
    lacks = [name for name in ("ip", "tc", "iperf3") if shutil.which(name) is None]
    if lacks:
        sys.exit(f"{', '.join(lacks)} not found: apt-get install iproute2 iperf3")
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    if subprocess.run([ROOT / "deploy" / "build.sh", *PROGRAMS], check=False).returncode != 0:
        sys.exit("what is measured could not be built")
    about = machine()
    print(f"commit {commit()}, {about['cpu']}, {about['usable_cores']} cores, load {about['load_before']}")
    collectives(args.bin / "tandem-comm-bench", args.mib)
    syncs(args.bin, args.model, args.gbit)


if __name__ == "__main__":
    main()
