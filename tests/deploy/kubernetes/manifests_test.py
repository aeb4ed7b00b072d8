#!/usr/bin/env python3
"""Manifests of tandemctl against the schemas of Kubernetes and JobSet, and defects that have to be found."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
HOME = pathlib.Path(os.environ.get("TANDEM_HOME", ROOT))
PYTHON = HOME / ".deps" / "venv" / "bin" / "python"  # where deploy/setup.sh --dev installs the schemas
BUILD = pathlib.Path(os.environ.get("TANDEM_TEST_BUILD", ROOT / "build"))

# Again in the Python that has the schemas.
if PYTHON.exists() and pathlib.Path(sys.prefix).resolve() != PYTHON.parents[1].resolve():
    os.execv(PYTHON, [str(PYTHON), *sys.argv])
sys.path.insert(0, str(ROOT / "deploy" / "kubernetes"))
try:
    import yaml  # noqa: F401
    import kubernetes_validate  # noqa: F401
except ImportError as missing:
    print(f"skipped: the Python package of {missing.name} is missing; deploy/setup.sh --dev installs it")
    sys.exit(77)
import validate  # noqa: E402

CONFIG = "configs/gsm8k_7b_4x80gb.yaml"
COMMON = ["--model-dir", "configs/models/qwen2-7b", "--device-memory", "80GiB",
          "--mount", "runs=/runs", "--mount", "models=/models:ro",
          "--set", "trainer.device=cuda", "model.path=/models/qwen", "data.train_files=[/models/t.jsonl]",
          "data.val_files=[/models/v.jsonl]", "cluster.run_dir=/runs/demo", "trainer.nnodes=2"]
APART = ["cluster.hybrid_engine=false", "rollout.nnodes=3", "cluster.rollouts=3", "rollout.free_cache_engine=false"]


def manifests(kind, placement=()):
    command = [str(BUILD / "bin" / "tandemctl"), "manifests", "kubernetes", CONFIG, "--format", kind, *COMMON, *placement]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


class Documents:
    """Manifests that a test changes in one place."""

    def __init__(self, kind):
        self.documents = list(yaml.safe_load_all(manifests(kind)))

    def of(self, kind):
        return next(document for document in self.documents if document["kind"] == kind)

    def jobset(self):
        return self.of("JobSet")["spec"]

    def job(self, name):
        """A Job's spec, by its group."""
        for document in self.documents:
            for job_name, spec in validate.jobs_in(document):
                if job_name.endswith("-" + name):
                    return spec
        raise KeyError(name)

    def pod(self, name):
        return self.job(name)["template"]["spec"]

    def problems(self):
        return validate.problems(yaml.safe_dump_all(self.documents))


class ManifestsTest(unittest.TestCase):
    def test_what_is_written_is_valid(self):
        for kind in ("jobset", "jobs"):
            for placement in ((), APART):
                self.assertEqual(validate.problems(manifests(kind, placement)), [], (kind, placement))

    def test_the_commands_for_the_certificates_run_as_they_are_printed(self):
        for kind in ("jobset", "jobs"):
            comments = [line.lstrip("# ") for line in manifests(kind, APART).splitlines() if line.startswith("#")]
            script = "\n".join(comments[comments.index("tandemctl certs init certs"):comments.index("cd certs")])
            with tempfile.TemporaryDirectory() as folder:
                programs = {"PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}"}
                done = subprocess.run(["sh", "-e", "-c", script], cwd=folder, env=programs, text=True, capture_output=True,
                                      check=False)
                self.assertEqual(done.returncode, 0, f"{script}: {done.stderr}")
                for role in ("controller", "agent", "trainer", "rollout"):
                    self.assertTrue((pathlib.Path(folder) / "certs" / f"{role}.pem").exists(), role)

    def test_the_agents_command_is_one_that_a_shell_reads(self):
        for kind, host in (("jobset", "tandem-rollouts-0-1"), ("jobs", "tandem-rollouts-1")):
            documents = list(yaml.safe_load_all(manifests(kind, APART)))
            specs = [spec for document in documents for name, spec in validate.jobs_in(document) if "rollouts" in name]
            command = specs[0]["template"]["spec"]["containers"][0]["command"]
            self.assertEqual(command[:2], ["sh", "-c"])
            script = f"hostname() {{ echo {host}; }}; tandem_agent() {{ printf '%s\\n' \"$@\"; }}; " + command[2].replace(
                "exec tandem-agent", "tandem_agent")
            done = subprocess.run(["sh", "-c", script], env={"JOB_COMPLETION_INDEX": "1", "PATH": os.environ["PATH"]},
                                  text=True, capture_output=True, check=True)
            words = done.stdout.split("\n")
            self.assertEqual(words[words.index("--host-index") + 1], "3")
            self.assertEqual(words[words.index("--node") + 1], host)
            self.assertEqual(words[words.index("--advertise") + 1], f"{host}.tandem.default.svc")


class DefectsTest(unittest.TestCase):
    """Each defect is the only one, and the first problem that is found names it."""

    def found(self, kind, plant, word):
        documents = Documents(kind)
        plant(documents)
        problems = documents.problems()
        self.assertTrue(problems, word)
        self.assertTrue(any(word in problem for problem in problems), f"{word}: {problems}")

    def test_defects_of_jobs(self):
        defects = [
            (lambda d: d.job("workers").update(completionz=2), "completionz"),
            (lambda d: d.job("workers").update(completionMode="indexed"), "indexed"),
            (lambda d: d.job("workers").update(completions="two"), "two"),
            (lambda d: d.job("controller")["podFailurePolicy"]["rules"][0].update(action="Skip"), "action: Skip"),
            (lambda d: d.job("workers").pop("completions"), "Indexed needs completions"),
            (lambda d: d.pod("workers").update(restartPolicy="Always"), "not Always"),
            (lambda d: d.pod("workers").pop("containers"), "containers"),
            (lambda d: d.pod("workers")["volumes"].pop(0), "/etc/tandem mounts the volume config"),
            (lambda d: d.pod("workers")["volumes"].append({"name": "config", "emptyDir": {}}), "two volumes are named"),
            (lambda d: d.pod("workers")["volumes"][0]["configMap"].update(name="other"), "the ConfigMap other"),
            (lambda d: d.pod("workers").update(subdomain="other"), "the Service other"),
            (lambda d: d.of("Service")["spec"]["selector"].update(app="other"), "does not select its pods"),
            (lambda d: d.job("controller").update(podReplacementPolicy="TerminatingOrFailed"), "is Failed"),
            (lambda d: d.pod("controller").update(restartPolicy="OnFailure"), "needs restartPolicy Never"),
            (lambda d: d.job("controller")["podFailurePolicy"]["rules"][1]["onExitCodes"].update(containerName="x"),
             "the container x"),
            (lambda d: d.pod("controller")["containers"][0]["ports"][0].update(containerPort="7001"), "7001"),
            (lambda d: d.of("Job")["metadata"].update(name="Tandem"), "no DNS label"),
        ]
        for plant, word in defects:
            self.found("jobs", plant, word)

    def test_defects_of_a_jobset(self):
        defects = [
            (lambda d: d.jobset().update(replicatedJob=[]), "JobSet.spec.replicatedJob is no field"),
            (lambda d: d.jobset()["network"].update(enableDnsHostnames=True), "enableDnsHostnames is no field"),
            (lambda d: d.jobset()["failurePolicy"].update(restartStrategy="Recreat"), "restartStrategy"),
            (lambda d: d.jobset()["failurePolicy"]["rules"][0].update(action="Fail"), "no such action"),
            (lambda d: d.jobset()["successPolicy"].update(operator="Every"), "successPolicy.operator"),
            (lambda d: d.jobset()["successPolicy"].update(targetReplicatedJobs=["boss"]), "the job boss"),
            (lambda d: d.jobset()["replicatedJobs"][0].update(replicas="one"), "replicas"),
            (lambda d: d.job("workers").update(podReplacementPolicy="Sometimes"), "Sometimes"),
            (lambda d: d.pod("workers")["containers"][0]["resources"]["limits"].update(memory={}), "memory"),
            (lambda d: d.of("JobSet")["metadata"].update(name="t" * 50), "too long"),
        ]
        for plant, word in defects:
            self.found("jobset", plant, word)

    def test_no_document_is_a_problem(self):
        self.assertEqual(validate.problems("# nothing\n"), ["there is no document"])


if __name__ == "__main__":
    unittest.main()
