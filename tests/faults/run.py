"""One run of the tiny model in a folder of its own, with the real programs, and what can be asked of it."""
import os
import pathlib
import shutil
import signal
import subprocess

import control
import processes
import relay

LIMIT_SECONDS = 300  # of one run; only what hangs takes so long
DISK_MIB = 64  # of a small disk: a whole run has room on it
# Two pairs, three steps of two updates, partial rollouts whose pool is part of a checkpoint, rewards by a service.
# The limits are short, so that what waits for one of them takes seconds.
CONFIG = """\
data: {max_prompt_length: 112, max_response_length: 32, train_batch_size: 4}
rollout:
  n: 2
  max_num_seqs: 8
  max_num_batched_tokens: 256
  gpu_memory_utilization: 0.05
  free_cache_engine: true
  stop: [a, b, c, d, e, f, g, h, i, k, l, m, n, o, p, r, s, t, u, w]
  partial: {max_tokens_per_round: 6, groups_per_round: 6}
actor:
  ppo_mini_batch_size: 2
  ppo_max_token_len_per_gpu: 512
  optim: {lr: 5.0e-4}
reward: {function: remote, timeout_seconds: 4, retries: 1}
trainer:
  total_training_steps: 3
  save_freq: 1
  max_actor_ckpt_to_keep: 0
  val_before_train: false
  disk_retry_seconds: 0.3
cluster:
  trainers: 2
  rollouts: 2
  compute_threads: 1
  heartbeat_seconds: 0.1
  heartbeat_timeout_seconds: 4
  progress_timeout_seconds: 10
  watchdog_seconds: 10
  controller_lost_seconds: 60
  rpc_timeout_seconds: 20
  register_timeout_seconds: 240
  max_restarts: 20
"""


class Inputs:
    """The model and the data of all runs, and where the programs are."""

    def __init__(self, folder, build):
        self.folder, self.build = folder, build
        folder.mkdir(exist_ok=True)
        self.config = folder / "config.yaml"
        self.config.write_text(CONFIG, encoding="utf-8")
        for command in ([build / "tests" / "tandem-tiny-model", folder / "model"],
                        [build / "bin" / "tandemctl", "data", "make", "addition", folder / "data", "--max", "9"]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Run:
    """A launcher with its processes and a reward service. Ends what it started when it is left."""

    def __init__(self, inputs, folder, *, relayed=None, namespace=False, small_disk=False):
        self.inputs, self.folder, self.namespace, self.small_disk = inputs, folder, namespace, small_disk
        self.run_dir = folder / "run"
        self.reward_socket = folder / "reward.sock"
        folder.mkdir(parents=True)
        self.run_dir.mkdir(mode=0o700)
        if small_disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=0700", "tmpfs", self.run_dir], check=True)
        self.controls = control.make_controls(folder / "control")
        self.relay = relay.Relay(folder / "control" / f"{relayed[0]}~{relayed[1].name}", relayed[1]) if relayed else None
        self.launcher = self.rewards = None
        self.starts = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in processes.running(self.folder):
            processes.send(pid, signal.SIGKILL)
        for process in (self.launcher, self.rewards):
            if process is not None:
                process.wait()
        if self.small_disk:  # what it held stays, for who looks for the cause of a failure
            shutil.copytree(self.run_dir, self.folder / "run-copy", ignore=shutil.ignore_patterns("*.sock", "filler"))
            subprocess.run(["umount", "--lazy", self.run_dir], check=True)
        if self.relay is not None:
            self.relay.close()
        for each in self.controls.values():
            each.close()

    def environment(self, fault):
        preload = str(self.inputs.build / "tests" / "libtandem_faults.so")
        return {**os.environ, processes.MARK: str(self.folder), "TANDEM_FAULT": fault, "LD_PRELOAD": preload,
                "TANDEM_FAULTS_CONTROL": str(self.folder / "control"), "TANDEM_FAULTS_DRIVER": str(os.getpid())}

    def start_rewards(self, fault=""):
        """Starts the reward service, unless it runs."""
        if self.rewards is not None and self.rewards.poll() is None:
            return
        command = [self.inputs.build / "tests" / "tandem-letter-rewards", f"unix:{self.reward_socket}"]
        with (self.folder / "reward.log").open("a", encoding="utf-8") as log:
            self.rewards = subprocess.Popen(command, env=self.environment(fault), stdout=log, stderr=log)

    def start(self, fault="", more=None):
        """Starts the launcher; `more`: settings of this start alone."""
        self.starts += 1
        settings = {"model.path": self.inputs.folder / "model", "data.train_files": self.inputs.folder / "data/train.jsonl",
                    "reward.service_address": f"unix:{self.reward_socket}", "cluster.run_dir": self.run_dir, **(more or {})}
        command = [self.inputs.build / "bin" / "tandem-launcher", "--config", self.inputs.config, "--grace", "5"]
        if self.namespace:
            settings["cluster.listen"] = "127.0.0.1:7001"
            command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        with self.log_path().open("w", encoding="utf-8") as log:
            self.launcher = subprocess.Popen([str(word) for word in command], env=self.environment(fault), stdout=log,
                                             stderr=log, start_new_session=True)

    def log_path(self):
        return self.folder / f"launcher-{self.starts}.log"

    def ended(self):
        return self.launcher.poll() is not None

    def wait(self, limit=LIMIT_SECONDS):
        """The launcher's exit code, None if it does not end."""
        return self.launcher.returncode if processes.wait_until(self.ended, limit) else None

    def find(self, role, rank):
        return processes.find(self.folder, role, rank)

    def said(self):
        """All that the run has logged."""
        paths = sorted(self.folder.glob("launcher-*.log")) + sorted(pathlib.Path(self.run_dir / "logs").glob("*"))
        return "\n".join(path.read_text(errors="replace") for path in paths if path.is_file())

    def left_behind(self):
        """What does not end although the launcher has. The reward service is not the launcher's."""
        if self.rewards is not None:
            processes.send(self.rewards.pid, signal.SIGCONT)
            self.rewards.kill()
            self.rewards.wait()
        return processes.left_behind(self.folder)
