#!/usr/bin/env python3
"""Checks Kubernetes manifests without a cluster.

  tandemctl manifests kubernetes CONFIG ... | deploy/kubernetes/validate.py [--kubernetes 1.34] [FILE ...]

Reads the files, or stdin, and prints what a cluster would refuse or take no notice of, one line each; exits
with 1 if there is anything, with 77 if a Python package is missing. Needs kubernetes-validate and
kubeflow-trainer-api (deploy/setup.sh --dev installs both beside LibTorch). Checked are the schema of the Kubernetes
version, strictly (an unknown field is an error); the schema of JobSet v1alpha2; values and combinations
that those schemas leave to the server, as far as they are listed here; and that what is referred to by name
within the documents is there. Not checked, as only a cluster can: admission webhooks, quotas, whether images,
claims and secrets exist, and whether anything runs.
"""
import argparse
import re
import sys

try:
    import kubernetes_validate
    import yaml
    from kubeflow_trainer_api import models
except ImportError as missing:
    print(f"the Python package of {missing.name} is missing: deploy/setup.sh --dev installs it")
    sys.exit(77)

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# Any text to the models of JobSet, and one of these to its server.
JOBSET_CHOICES = {
    ("failurePolicy", "restartStrategy"): {"Recreate", "BlockingRecreate", "InPlaceRestart"},
    ("startupPolicy", "startupPolicyOrder"): {"AnyOrder", "InOrder"},
    ("successPolicy", "operator"): {"All", "Any"},
}
FAILURE_ACTIONS = {"FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob",
                   "RestartJobAndIgnoreMaxRestarts"}
# Likewise of a Job.
JOB_CHOICES = {
    "completionMode": {"NonIndexed", "Indexed"},
    "podReplacementPolicy": {"TerminatingOrFailed", "Failed"},
}
RULE_ACTIONS = {"FailJob", "FailIndex", "Ignore", "Count"}


def forgotten(given, kept, path):
    """Fields that a model has dropped, as it does without a word where it does not know them."""
    if isinstance(given, dict):
        if not isinstance(kept, dict):
            return [f"{path} should be no object"]
        unknown = [f"{path}.{key} is no field" for key in given if key not in kept]
        return unknown + [problem for key in given if key in kept
                          for problem in forgotten(given[key], kept[key], f"{path}.{key}")]
    if isinstance(given, list):
        if not isinstance(kept, list) or len(kept) != len(given):
            return [f"{path} should be no list"]
        return [problem for i, pair in enumerate(zip(given, kept)) for problem in forgotten(*pair, f"{path}[{i}]")]
    return []


def names_of(items):
    return [item.get("name") for item in items]


def pod_problems(pod, where):
    """Of a pod's spec: volumes that are mounted and not there, or there twice."""
    volumes = names_of(pod.get("volumes", []))
    for name in sorted({name for name in volumes if volumes.count(name) > 1}):
        yield f"{where}: two volumes are named {name}"
    for container in pod.get("containers", []):
        for mount in container.get("volumeMounts", []):
            if mount.get("name") not in volumes:
                yield f"{where}: {mount.get('mountPath')} mounts the volume {mount.get('name')}, which is not there"
        paths = [mount.get("mountPath") for mount in container.get("volumeMounts", [])]
        for path in sorted({path for path in paths if paths.count(path) > 1}):
            yield f"{where}: two volumes are mounted at {path}"


def job_problems(spec, where):
    """Of a Job's spec: what the server refuses although the schema allows it."""
    template = spec.get("template", {})
    pod = template.get("spec", {})
    restart = pod.get("restartPolicy")
    if restart not in ("Never", "OnFailure"):
        yield f"{where}: restartPolicy of a Job's pods is Never or OnFailure, not {restart}"
    for field, choices in JOB_CHOICES.items():
        value = spec.get(field)
        if value is not None and value not in choices:
            yield f"{where}: {field} is one of {', '.join(sorted(choices))}, not {value}"
    rules = spec.get("podFailurePolicy", {}).get("rules", [])
    if rules and restart != "Never":
        yield f"{where}: a podFailurePolicy needs restartPolicy Never"
    if rules and spec.get("podReplacementPolicy") not in (None, "Failed"):
        yield f"{where}: beside a podFailurePolicy, podReplacementPolicy is Failed"
    containers = names_of(pod.get("containers", []))
    for rule in rules:
        if rule.get("action") not in RULE_ACTIONS:
            yield f"{where}: the podFailurePolicy has no such action: {rule.get('action')}"
        named = rule.get("onExitCodes", {}).get("containerName")
        if named is not None and named not in containers:
            yield f"{where}: the podFailurePolicy names the container {named}, which is not there"
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        yield f"{where}: Indexed needs completions"
    yield from pod_problems(pod, where)


def schema_problems(document, version):
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{'.'.join(str(part) for part in error.path) or 'document'}: {error.message.splitlines()[0]}"
    except Exception as error:  # the package has errors of its own for unknown kinds and versions
        yield str(error).splitlines()[0]


def jobset_problems(document, where):
    try:
        kept = models.JobsetV1alpha2JobSet.from_dict(document).to_dict()
    except ValueError as error:
        yield f"{where}: {' '.join(str(error).split())}"
        return
    yield from (f"{where}: {problem}" for problem in forgotten(document, kept, "JobSet"))
    spec = document.get("spec", {})
    for (part, field), choices in JOBSET_CHOICES.items():
        value = spec.get(part, {}).get(field)
        if value is not None and value not in choices:
            yield f"{where}: {part}.{field} is one of {', '.join(sorted(choices))}, not {value}"
    for rule in spec.get("failurePolicy", {}).get("rules", []):
        if rule.get("action") not in FAILURE_ACTIONS:
            yield f"{where}: the failure rule {rule.get('name')} has no such action: {rule.get('action')}"
    jobs = names_of(spec.get("replicatedJobs", []))
    for name in spec.get("successPolicy", {}).get("targetReplicatedJobs", []):
        if name not in jobs:
            yield f"{where}: successPolicy waits for the job {name}, which is not there"


def jobs_in(document):
    """Pairs of a name and a Job's spec."""
    name = document.get("metadata", {}).get("name", "?")
    if document.get("kind") == "Job":
        return [(name, document.get("spec", {}))]
    if document.get("kind") != "JobSet":
        return []
    return [(f"{name}-{job.get('name', '?')}", job.get("template", {}).get("spec", {}))
            for job in document.get("spec", {}).get("replicatedJobs", [])]


def problems_of(document, version):
    kind, metadata = document.get("kind"), document.get("metadata", {})
    where = f"{kind} {metadata.get('name')}"
    if not DNS_LABEL.fullmatch(str(metadata.get("name"))):
        yield f"{where}: the name is no DNS label"
    if kind == "JobSet":
        yield from jobset_problems(document, where)
    else:
        yield from (f"{where}: {problem}" for problem in schema_problems(document, version))
    for name, spec in jobs_in(document):
        if kind == "JobSet":
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
            yield from (f"{where}, {name}: {problem}" for problem in schema_problems(job, version))
        # The longest name of a pod: an index of four digits, and five letters that the Job adds.
        if not DNS_LABEL.fullmatch(f"{name}-0-9999-abcde"):
            yield f"{where}: the names of {name}'s pods are too long, or no DNS labels"
        yield from job_problems(spec, f"{where}, {name}")


def reference_problems(documents):
    """What is used by name, and is in none of the documents although it has to be."""
    config_maps = {d["metadata"]["name"] for d in documents if d.get("kind") == "ConfigMap"}
    services = {d["metadata"]["name"]: d for d in documents if d.get("kind") == "Service"}
    for document in documents:
        for name, spec in jobs_in(document):
            template = spec.get("template", {})
            pod = template.get("spec", {})
            for volume in pod.get("volumes", []):
                wanted = volume.get("configMap", {}).get("name")
                if wanted is not None and wanted not in config_maps:
                    yield f"{name}: the ConfigMap {wanted} is not there"
            subdomain = pod.get("subdomain")
            if subdomain is None:
                continue
            if subdomain not in services:
                yield f"{name}: the Service {subdomain}, which would name its pods, is not there"
                continue
            labels = template.get("metadata", {}).get("labels", {})
            selector = services[subdomain]["spec"].get("selector", {})
            if not selector.items() <= labels.items():
                yield f"{name}: the Service {subdomain} does not select its pods"


def problems(text, version="1.34"):
    documents = [document for document in yaml.safe_load_all(text) if document is not None]
    if not documents:
        return ["there is no document"]
    found = [problem for document in documents for problem in problems_of(document, version)]
    return found + list(reference_problems(documents))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--kubernetes", default="1.34", help="version of the schema (default: %(default)s)")
    arguments = parser.parse_args()
    texts = {name: open(name, encoding="utf-8").read() for name in arguments.files} or {"stdin": sys.stdin.read()}
    found = [f"{name}: {problem}" for name, text in texts.items() for problem in problems(text, arguments.kubernetes)]
    print("\n".join(found) if found else "valid")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
