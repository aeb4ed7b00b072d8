#!/usr/bin/env python3
"""Who may include whom, read from the #include lines: usage check_layers.py [ROOT].

Arrows point down only. ALLOWED is the whole table: a folder may include itself and the folders
listed for it, nothing else of the repository. tests/ may include anything; nothing includes tests/.

Headers that cost more to compile than most sources (HEAVY) are for sources: a header that has one
must not be included by another header, or every source would pay for it.
"""
import pathlib
import re
import sys

BASE = ["common/base", "common/process", "common/types"]
# What every process may use, and what computes.
SHARED = BASE + ["common/config", "common/formats", "common/lora", "common/memory", "common/model_spec", "common/net",
                 "common/rollout_correction", "common/text"]
COMPUTE = ["common/backend", "common/comm", "common/device", "common/model", "common/ops", "common/weights"]
TRAINER = ["trainer_worker/" + room for room in
           ("forward_backward", "layers", "losses", "shard", "trained_weights", "weight_sync")]
ROLLOUT = ["rollout_worker/generation", "rollout_worker/weights"]
CONTROLLER = ["controller/" + room for room in
              ("api", "data", "partial_rollout", "plan", "report", "reward", "rollouts", "run", "step", "store", "workers")]

ALLOWED = {
    "common/base": [],
    "common/process": ["common/base"],
    "common/types": ["common/base"],
    "common/model_spec": BASE,
    "common/memory": BASE + ["common/model_spec"],
    "common/rollout_correction": BASE,
    "common/config": BASE + ["common/memory", "common/rollout_correction"],
    "common/text": BASE,
    "common/lora": BASE + ["common/model_spec"],
    "common/formats": BASE + ["common/lora", "common/model_spec"],
    "common/device": BASE + ["common/memory"],
    "common/comm": BASE + ["common/device"],
    "common/ops": BASE + ["common/device", "common/memory"],
    "common/weights": BASE + ["common/device", "common/formats", "common/lora", "common/memory", "common/model_spec",
                              "common/ops"],
    "common/model": BASE + ["common/memory", "common/model_spec", "common/ops", "common/weights"],
    "common/backend": BASE + ["common/comm", "common/device", "common/model_spec", "common/ops", "common/weights"],
    "common/net": BASE + ["common/weights"],
    # The rooms of the controller, each above those that it names.
    "controller/balance": BASE,
    "controller/algorithm": BASE,
    "controller/reward": BASE + ["common/config", "common/net", "common/text"],  # the launcher checks with it
    "controller/data": BASE + ["common/config", "common/formats", "common/text", "controller/reward"],
    "controller/store": BASE + ["common/formats", "controller/data"],
    "controller/plan": BASE + ["common/config", "common/formats", "common/lora", "common/memory", "common/model_spec"],
    "controller/report": BASE + ["controller/plan", "controller/store"],
    "controller/workers": BASE + ["common/net", "common/rollout_correction"],
    "controller/rollouts": BASE + ["common/formats", "common/lora", "common/memory", "controller/store",
                                   "controller/workers"],
    "controller/partial_rollout": BASE + ["common/config", "common/formats", "controller/data", "controller/store",
                                          "controller/workers"],
    "controller/step": BASE + ["common/rollout_correction", "controller/algorithm", "controller/balance",
                               "controller/data", "controller/partial_rollout", "controller/reward",
                               "controller/rollouts", "controller/store", "controller/workers"],
    "controller/generation": BASE + ["controller/data", "controller/partial_rollout", "controller/rollouts"],
    "controller/run": BASE + ["common/config", "common/lora", "common/model_spec", "common/formats",
                              "controller/algorithm", "controller/generation", "controller/partial_rollout",
                              "controller/step", "controller/store", "controller/workers"],
    "controller/api": BASE + ["common/net", "controller/rollouts", "controller/run", "controller/step",
                              "controller/store", "controller/workers"],
    # Chooses the parts of a run, and so knows every kind of each.
    "controller/assembly": SHARED + ["common/device"] + CONTROLLER,
    # The entry point: flags, signals, exit code.
    "controller": BASE + ["common/config", "common/net", "controller/assembly", "controller/report", "controller/reward"],
    # tandemctl is a client of the API and of files: nothing of what runs. It prints the manifest of a model, and
    # plans for the device of this host.
    "controller/cli": SHARED + ["common/device", "common/weights", "controller/data", "controller/plan",
                                       "controller/report", "controller/reward", "controller/store"],
    # The rooms of a trainer worker.
    "trainer_worker/losses": BASE + ["common/comm", "common/rollout_correction"],
    "trainer_worker/shard": BASE + ["common/comm", "common/device", "common/formats", "common/memory",
                                    "common/model_spec", "common/ops", "common/weights"],
    "trainer_worker/layers": BASE + ["common/comm", "common/device", "common/memory", "common/model",
                                     "common/model_spec", "common/weights", "trainer_worker/shard"],
    "trainer_worker/forward_backward": BASE + ["common/comm", "common/device", "common/memory", "common/model",
                                               "common/model_spec", "common/ops", "common/rollout_correction",
                                               "trainer_worker/layers", "trainer_worker/losses",
                                               "trainer_worker/shard"],
    "trainer_worker/weight_sync": BASE + ["common/comm", "common/device", "common/formats", "common/lora",
                                          "common/model_spec", "common/net", "common/weights",
                                          "trainer_worker/shard"],
    "trainer_worker/trained_weights": BASE + ["common/comm", "common/device", "common/formats", "common/lora",
                                              "common/memory", "common/model_spec", "common/weights",
                                              "trainer_worker/layers",
                                              "trainer_worker/shard", "trainer_worker/weight_sync"],
    "trainer_worker": SHARED + COMPUTE + TRAINER,
    # The rooms of a rollout worker.
    "rollout_worker/generation": BASE + ["common/device", "common/memory", "common/model", "common/model_spec",
                                         "common/ops", "common/text", "common/weights"],
    "rollout_worker/weights": BASE + ["common/device", "common/formats", "common/model_spec", "common/weights",
                                      "rollout_worker/generation"],
    "rollout_worker": SHARED + COMPUTE + ROLLOUT,
    # Runs the code of both workers side by side to compare them; nobody includes it.
    "parity": SHARED + COMPUTE + ["trainer_worker", "rollout_worker"] + TRAINER + ROLLOUT,
    "deploy/launcher": BASE + ["common/config", "common/formats", "controller/reward"],
}
# Generated protobuf and gRPC: these folders, and files that adapt a service, a client or a stream,
# or turn the controller's reply into a worker's options.
PROTO_FOLDERS = {"common/config", "common/net"}
PROTO_FILE = re.compile(r"(_service|_clients?|_stream|^worker_options)\.(h|cc)$")
TORCH_FOLDERS = {"trainer_worker/losses"}
# What is made for one kind of device is seen by the factory, and by what is made for the same kind.
FACTORY = "common/backend/"

INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.M)
# The messages of the configuration: whoever looks into them includes them, but see HEAVY.
CONFIG_MESSAGES = "tandem/v1/config.pb.h"
HEAVY = re.compile(r"(\.pb\.h$|^grpcpp/|^google/protobuf/|^nlohmann/json\.hpp$|^yaml-cpp/|^spdlog/|^CLI/"
                   r"|^(ATen|c10|torch|caffe2)/)")
# Losses are made of tensors, and so are their declarations.
HEAVY_FOLDERS = ("trainer_worker/losses/",)
PROTO = re.compile(r"(\.pb\.h$|^grpcpp/|^grpc/|^google/protobuf/)")
TORCH = re.compile(r"^(ATen|c10|torch|caffe2)/")


def layer_of(path):
    """The key of ALLOWED that a path from the root belongs to, or None."""
    parts = path.split("/")
    for length in (2, 1):
        name = "/".join(parts[:length])
        if name in ALLOWED and len(parts) > length:
            return name
    return None


def problem_with(path, layer, included):
    """Why file `path` of `layer` must not include `included`, or None."""
    if included.startswith("tests/"):
        return "only tests include tests/"
    target = layer_of(included)
    if target and target != layer and target not in ALLOWED[layer]:
        return f"{layer} must not include {target}"
    if target and "/cuda/" in included and "/cuda/" not in path and not path.startswith(FACTORY):
        return f"cuda/ is seen only by {FACTORY} and by cuda/ itself"
    name = path.rsplit("/", 1)[-1]
    in_ctl = path.startswith("controller/cli/")
    reads_config = included == CONFIG_MESSAGES
    if PROTO.search(included) and layer not in PROTO_FOLDERS and not PROTO_FILE.search(name) \
            and not in_ctl and not reads_config:
        return "generated protobuf and gRPC belong in config, net, services, clients, streams and the commands of tandemctl"
    if TORCH.search(included) and layer not in TORCH_FOLDERS:
        return "LibTorch belongs in trainer_worker/losses"
    return None


def passed_on(texts):
    """Lines about headers with heavy includes that other headers include. texts: path -> text."""
    heavy = {}
    for path, text in texts.items():
        if path.endswith(".h") and not path.startswith(HEAVY_FOLDERS):
            found = [name for name in INCLUDE.findall(text) if HEAVY.search(name)]
            if found:
                heavy[path] = found[0]
    return [f'{path}: #include "{name}", which includes <{heavy[name]}>: declare what is needed of it '
            f"there, and include it in sources"
            for path, text in texts.items() if path.endswith(".h")
            for name in INCLUDE.findall(text) if name in heavy]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__ + "/../../..").resolve()
    files, bad, texts = 0, 0, {}
    for top in ("common", "controller", "trainer_worker", "rollout_worker", "parity", "deploy"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".h", ".cc", ".cu"):
                continue
            path = str(file.relative_to(root))
            layer = layer_of(path)
            files += 1
            if layer is None:
                bad += 1
                print(f"{path}: this folder is in no layer; add it to {__file__}")
                continue
            texts[path] = text = file.read_text(errors="replace")
            for match in INCLUDE.finditer(text):
                why = problem_with(path, layer, match.group(1))
                if why:
                    bad += 1
                    line = text.count("\n", 0, match.start(1)) + 1
                    print(f'{path}:{line}: #include "{match.group(1)}": {why}')
    for line in passed_on(texts):
        bad += 1
        print(line)
    print(f"layers: {files} files, {bad} includes against the layers")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
