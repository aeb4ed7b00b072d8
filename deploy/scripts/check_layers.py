#!/usr/bin/env python3
"""Who may include whom, read from the #include lines: usage check_layers.py [--picture [--write] | --arrows] [ROOT].

--arrows prints who includes whom in ROOT, of any commit: a line for each folder with its files, the folders that it
includes and how often, and a mark at those that include it, too (docs/adr/0017-rooms-with-an-order.md shows an old one).

--picture prints the rooms in order, lowest first, as docs/explanation/architecture.md shows them; with
--write that page is updated, and without options a page with another picture is a failure.

Arrows point down only. ALLOWED is the table of rooms: a room may include itself and the rooms listed for it, nothing
else of the repository. INSIDE says the same of the folders of one room. tests/ may include anything; nothing
includes tests/, and no target outside tests/ links the emulated GPU. One door leads there:
common/device/cuda/kernel.h includes what the macro TANDEM_KERNEL_LANGUAGE names, and tests/emulator/CMakeLists.txt
alone defines it.

Headers that cost more to compile than most sources (HEAVY) are for sources: a header that has one
must not be included by another header, or every source would pay for it.
"""
import collections
import pathlib
import re
import sys

from code_shape import TOPS, sources

BASE = ["common/base", "common/process", "common/types"]
# What every process may use, and what computes.
SHARED = BASE + ["common/config", "common/formats", "common/lora", "common/memory", "common/model_spec", "common/net",
                 "common/rollout_correction", "common/tcp", "common/text"]
COMPUTE = ["common/backend", "common/comm", "common/device", "common/model", "common/ops", "common/weights"]
TRAINER = ["trainer_worker/" + room for room in
           ("forward_backward", "layers", "losses", "shard", "trained_weights", "weight_sync")]
ROLLOUT = ["rollout_worker/generation", "rollout_worker/weights"]
CONTROLLER = ["controller/" + room for room in
              ("algorithm", "api", "data", "generation", "partial_rollout", "plan", "report", "reward", "rollouts", "run", "step",
               "store", "workers")]

ALLOWED = {
    "common/base": [],
    "common/process": ["common/base"],
    "common/types": ["common/base"],
    "common/tcp": BASE,
    "common/http": BASE,
    "common/model_spec": BASE,
    "common/memory": BASE + ["common/model_spec"],
    "common/rollout_correction": BASE,
    "common/config": BASE + ["common/memory", "common/rollout_correction"],
    "common/text": BASE,
    "common/lora": BASE + ["common/model_spec", "common/text"],
    "common/formats": BASE + ["common/lora", "common/model_spec"],
    "common/device": BASE + ["common/memory"],
    "common/comm": BASE + ["common/device", "common/tcp"],
    "common/ops": BASE + ["common/device", "common/memory"],
    "common/weights": BASE + ["common/device", "common/formats", "common/lora", "common/memory", "common/model_spec",
                              "common/ops", "common/tcp"],
    "common/model": BASE + ["common/memory", "common/model_spec", "common/ops", "common/weights"],
    "common/backend": BASE + ["common/comm", "common/device", "common/model_spec", "common/ops", "common/tcp", "common/weights"],
    "common/net": BASE + ["common/tcp", "common/weights"],
    # The rooms of the controller, each above those that it names.
    "controller/balance": BASE,
    "controller/algorithm": BASE + ["common/config"],
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
    "controller/step": BASE + ["common/formats", "common/rollout_correction", "controller/algorithm", "controller/balance",
                               "controller/data", "controller/partial_rollout", "controller/reward",
                               "controller/rollouts", "controller/store", "controller/workers"],
    "controller/generation": BASE + ["controller/data", "controller/partial_rollout", "controller/rollouts", "controller/step",
                                     "controller/workers"],
    "controller/run": BASE + ["common/config", "common/lora", "common/model_spec", "common/formats",
                              "controller/algorithm", "controller/data", "controller/generation",
                              "controller/partial_rollout", "controller/step", "controller/store", "controller/workers"],
    "controller/wire": BASE + ["common/net", "controller/store"],
    "controller/view": BASE + ["common/config", "common/text", "controller/reward", "controller/store", "controller/wire"],
    "controller/web": BASE + ["common/http", "controller/reward", "controller/store", "controller/view", "controller/wire"],
    "controller/api": BASE + ["common/net", "controller/plan", "controller/rollouts", "controller/run", "controller/step",
                              "controller/store", "controller/wire", "controller/workers"],
    # Chooses the parts of a run, and so knows every kind of each.
    "controller/assembly": SHARED + ["common/device", "controller/web"] + CONTROLLER,
    # The entry point: flags, signals, exit code.
    "controller": BASE + ["common/config", "common/net", "controller/algorithm", "controller/assembly",
                          "controller/report", "controller/reward", "controller/run"],
    # tandemctl is a client of the API and of files: nothing of what runs. It prints the manifest of a model, and
    # plans for the device of this host.
    "controller/cli": SHARED + ["common/device", "common/weights", "controller/algorithm", "controller/data", "controller/plan",
                                       "controller/report", "controller/reward", "controller/store", "controller/view",
                                       "controller/web", "controller/wire"],
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
    "deploy/launcher": BASE + ["common/config", "common/formats", "common/net", "common/tcp", "controller/algorithm",
                               "controller/reward"],
    "deploy/thread_sanitizer": [],
}
# Inside of a room: which of its folders a folder may include, besides itself. A room whose folder is not a key here
# includes none of its sub-folders, and each sub-folder is a key. No chain of them leads back to where it began.
INSIDE = {
    "common/comm/hosts": ["common/comm"],
    "common/comm/cuda": ["common/comm", "common/comm/hosts"],
    "common/config/verl": [],
    "common/config": ["common/config/verl"],
    "common/device/cuda": ["common/device"],
    "controller/cli/certs": [],
    "controller/cli/kubernetes": [],
    "controller/cli/runs": [],
    "controller/cli/status": [],
    "controller/cli/verl": [],
    "controller/cli": ["controller/cli/certs", "controller/cli/kubernetes", "controller/cli/runs", "controller/cli/status",
                       "controller/cli/verl"],
    "controller/report/transfers": ["controller/report"],
    "common/formats/gguf": ["common/formats"],
    "common/formats/peft": ["common/formats"],
    "common/model_spec/families": ["common/model_spec"],
    "common/net/security": [],
    "common/net/addresses": ["common/net/security"],
    "common/net": ["common/net/addresses", "common/net/security"],
    "common/net/membership": ["common/net", "common/net/security"],
    "common/weights/tcp": ["common/weights"],
    "common/ops/cpu/kernels": ["common/ops"],
    "common/ops/cpu": ["common/ops", "common/ops/cpu/kernels"],
    "common/ops/cpu/backward": ["common/ops", "common/ops/cpu", "common/ops/cpu/kernels"],
    "common/ops/cuda/attention": ["common/ops"],
    "common/ops/cuda/linear": ["common/ops"],
    "common/ops/cuda/rows": ["common/ops"],
    "common/ops/cuda": ["common/ops", "common/ops/cuda/attention", "common/ops/cuda/linear", "common/ops/cuda/rows"],
    "common/process/files": ["common/process"],
    "common/text/unicode": [],
    "common/text/jinja/value": ["common/text/unicode"],
    "common/text/jinja": ["common/text/jinja/value", "common/text/unicode"],
    "common/text": ["common/text/jinja", "common/text/unicode"],
    "common/weights/cuda": ["common/weights"],
    "controller/algorithm/advantages": ["controller/algorithm"],
    "controller/partial_rollout/buffer": [],
    "controller/partial_rollout": ["controller/partial_rollout/buffer"],
    "controller/workers/agents": [],
    "controller/workers": ["controller/workers/agents"],
    "controller/reward/scorers": ["controller/reward"],
    "controller/step/summary": [],
    "controller/step": ["controller/step/summary"],
    "controller/store/disk": ["controller/store"],
    "controller/store/trackers": ["controller/store"],
    "controller/store/post_mortem": ["controller/store", "controller/store/sqlite"],
    "controller/store/sqlite": ["controller/store"],
    "deploy/launcher/slurm": [],
    "deploy/launcher": ["deploy/launcher/slurm"],
    "trainer_worker/losses/policy": ["trainer_worker/losses"],
}
# One line for a reader of docs/explanation/architecture.md about each room.
PURPOSE = {
    "common/base": "status, log, clock, queue, Philox, integer arithmetic",
    "common/process": "threads and the thread pool, cores, signals, exit codes, Unix sockets, private files, injected faults",
    "common/types": "plain values that several rooms use: sample, tensor view, ledger snapshot, hash of bytes",
    "common/http": "HTTP/1.1: requests, answers, a server",
    "common/tcp": "data connections between hosts, plain or TLS; who a peer is by its certificate",
    "common/model_spec": "description of a model: sizes, names and shapes of tensors, architectures",
    "common/memory": "every byte formula; the memory plan and the workers call the same ones",
    "common/rollout_correction": "importance weights, rejection, off-policy metrics",
    "common/config": "schema, loading, checks and explanation of the configuration",
    "common/text": "tokenizer, chat templates, Unicode",
    "common/lora": "which weights get adapters; merging them",
    "common/formats": "safetensors, Hugging Face directories, training state, GGUF, PEFT",
    "common/device": "device interface, memory regions, ledger; CUDA driver calls in `cuda`",
    "common/comm": "collectives in rank order: shared memory, TCP between hosts (`hosts`), NCCL, staged copies",
    "common/ops": "the model's operations, forward and backward, for CPU and GPU",
    "common/weights": "used by both ends of a weight sync: layout, manifest, digests, slots, transports",
    "common/model": "the decoder layer that trainer and rollout both run",
    "common/backend": "the factory that chooses CPU or CUDA",
    "common/net": "gRPC server and channel, who may call, status mapping, conversion of messages, membership",
    "controller/balance": "assignment of samples to ranks",
    "controller/algorithm": "advantage estimators and other formulas over vectors",
    "controller/reward": "reward functions and the client of a remote reward service",
    "controller/data": "data files, prompts, chat format, order of rows",
    "controller/store": "what a run keeps: steps, samples, checkpoints, saved batches, trackers",
    "controller/plan": "memory plan and advice",
    "controller/report": "texts, tables and HTML for people",
    "controller/workers": "registered workers, their clients, calls to all of them, restart budget",
    "controller/rollouts": "dispatch of prompts, return of lost replicas, weight sync, parity probe",
    "controller/partial_rollout": "rounds, buffer of unfinished samples, journal, prediction of the saving",
    "controller/step": "one step's batch and its phases, one file each",
    "controller/generation": "how the samples of a step are generated: whole, in rounds, in the background",
    "controller/run": "the train loop, recovery, checkpoints, evaluation, pause and stop",
    "controller/wire": "the records of a run as messages of the users' API",
    "controller/view": "what users see of a run, from the files in its directory",
    "controller/web": "the dashboard: pages, their API, who may ask",
    "controller/api": "gRPC services for users and for workers",
    "controller/assembly": "reads the inputs, chooses the parts of a run, connects them",
    "controller": "`main.cc`: flags, signals, exit code",
    "controller/cli": "`tandemctl`",
    "trainer_worker/losses": "policy losses and their gradients; the only room with LibTorch",
    "trainer_worker/shard": "a rank's part of the weights: masters, moments, AdamW, offload",
    "trainer_worker/layers": "gathered layers, summed gradients",
    "trainer_worker/forward_backward": "packing, forward and backward over layers, comparison of log-probs",
    "trainer_worker/weight_sync": "sends weights to the rollout; the weight check",
    "trainer_worker/trained_weights": "what is trained: all weights, merged or separate adapters",
    "trainer_worker": "main, gRPC service, training session, checkpoint",
    "rollout_worker/generation": "scheduler, KV cache, model runner, generator",
    "rollout_worker/weights": "states of a rollout, its memory, receiving weights",
    "rollout_worker": "main, gRPC service, engine",
    "parity": "runs the code of both workers in one process and compares",
    "deploy/launcher": "starts and restarts the processes of one host, or agents on several; jobs of Slurm",
    "deploy/thread_sanitizer": "tells ThreadSanitizer what gRPC and Abseil, which are not instrumented, put in order",
}
# Generated protobuf and gRPC: these folders, and files that adapt a service, a client or a stream,
# or turn the controller's reply into a worker's options.
PROTO_FOLDERS = {"common/config", "common/net", "controller/view", "controller/web", "controller/wire", "deploy/thread_sanitizer"}
PROTO_FILE = re.compile(r"(_service|_clients?|_stream|^worker_options)\.(h|cc)$")
TORCH_FOLDERS = {"trainer_worker/losses"}
# What is made for one kind of device is seen by the factory, and by what is made for the same kind.
FACTORY = "common/backend/"

INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.M)
# The messages of the configuration: every file that reads them includes them, but see HEAVY.
CONFIG_MESSAGES = "tandem/v1/config.pb.h"
HEAVY = re.compile(r"(\.pb\.h$|^grpcpp/|^google/protobuf/|^nlohmann/json\.hpp$|^yaml-cpp/|^spdlog/|^CLI/"
                   r"|^(ATen|c10|torch|caffe2)/)")
# Losses are made of tensors, and so are their declarations.
HEAVY_FOLDERS = ("trainer_worker/losses/",)
PROTO = re.compile(r"(\.pb\.h$|^grpcpp/|^grpc/|^google/protobuf/)")
TORCH = re.compile(r"^(ATen|c10|torch|caffe2)/")
EMULATED = re.compile(r"tandem::\w*emulat|TANDEM_KERNEL_LANGUAGE=|tests/emulator/\w+\.")


PAGE = "docs/explanation/architecture.md"
BEGIN, END = "<!-- rooms: check_layers.py --picture --write -->\n", "<!-- rooms end -->\n"


def height_of(room):
    """How many rooms lie below a room on the longest way down."""
    return 1 + max((height_of(below) for below in ALLOWED[room]), default=-1)


def picture():
    """The table of rooms: for each top-level folder, from the rooms that need nothing to those that need most."""
    tops = list(dict.fromkeys(room.split("/")[0] for room in ALLOWED))
    lines = ["| room | height | contains | may include, besides base, process and types |", "|---|---|---|---|"]
    for room in sorted(ALLOWED, key=lambda room: (tops.index(room.split("/")[0]), height_of(room))):
        top, below = room.split("/")[0], [name for name in ALLOWED[room] if name not in BASE]
        named = []
        for group in ("common", "controller", "trainer_worker", "rollout_worker"):
            members = [name for name in below if name.split("/")[0] == group]
            everything = [name for name in ALLOWED if name.startswith(group + "/") and name not in BASE]
            if len(members) > 8 and set(everything) - set(members) - {room, "controller/cli", "controller/assembly"}:
                left = sorted(set(everything) - set(members) - {room, "controller/cli", "controller/assembly"})
                named.append(f"{group} (but not {', '.join(name.split('/')[-1] for name in left)})")
            elif len(members) > 8 or (members and set(everything) <= set(members)):
                named.append(f"all of {group}")
            else:
                named += [name.split("/")[-1] if group in ("common", top) else name for name in members]
        lines.append(f"| `{room}` | {height_of(room)} | {PURPOSE.get(room, '')} | {', '.join(named) or '–'} |")
    return "\n".join(lines) + "\n"


def stale_picture(root, write):
    """A line about a page whose picture is not that of ALLOWED; with `write` the page is updated."""
    page = root / PAGE
    if not page.exists():
        return []
    if set(PURPOSE) != set(ALLOWED):
        return [f"{pathlib.Path(__file__).name}: PURPOSE and ALLOWED differ in {sorted(set(PURPOSE) ^ set(ALLOWED))}"]
    before, _, rest = page.read_text().partition(BEGIN)
    shown, end, after = rest.partition(END)
    if not end or shown == picture():
        return [] if end else [f"{PAGE}: the lines that mark the picture of rooms are missing"]
    if write:
        page.write_text(before + BEGIN + picture() + END + after)
        return []
    return [f"{PAGE}: the picture of rooms is not that of {pathlib.Path(__file__).name}: run it with --picture --write"]


def arrows(root):
    """The table of folders of `root`, two levels deep, with what each includes of the others, whatever may be included."""
    texts = sources(root, TOPS)

    def place(path):
        return "/".join(path.split("/")[:2 if path.count("/") > 1 else 1])

    counts = collections.Counter((place(path), place(name)) for path, text in texts.items()
                                 for name in INCLUDE.findall(text) if name in texts)
    files = collections.Counter(place(path) for path in texts)
    lines = ["| folder | | files | includes |", "|---|---|---|---|"]
    for here in sorted(files, key=lambda name: (TOPS.index(name.split("/")[0]), name)):
        groups = collections.defaultdict(list)
        for there in sorted(files):
            if there != here and (here, there) in counts:
                top, _, name = there.partition("/")
                both = " ⇄" if (there, here) in counts else ""
                groups[top].append(f"{name or 'its own'}{both} {counts[here, there]}")
        below = "; ".join(f"{top}: {', '.join(names)}" for top, names in groups.items())
        lines.append(f"| {here.replace('/', ' | ') if '/' in here else here + ' |'} | {files[here]} | {below or '–'} |")
    return "\n".join(lines) + "\n"


def layer_of(path):
    """The key of ALLOWED that a path from the root belongs to, or None."""
    parts = path.split("/")
    for length in (2, 1):
        name = "/".join(parts[:length])
        if name in ALLOWED and len(parts) > length:
            return name
    return None


def folder_of(path):
    return path.rsplit("/", 1)[0]


def has_place(path, layer):
    """Whether the folder of a file of `layer` is the room's own or one that INSIDE has."""
    return folder_of(path) == layer or folder_of(path) in INSIDE


def problem_inside(path, included):
    """Why a file must not include another one of its room, or None."""
    here, there = folder_of(path), folder_of(included)
    return None if here == there or there in INSIDE.get(here, []) else f"{here} must not include {there}"


def problem_with(path, layer, included):
    """Why file `path` of `layer` must not include `included`, or None."""
    if included.startswith("tests/"):
        return "only tests include tests/"
    target = layer_of(included)
    if target and target != layer and target not in ALLOWED[layer]:
        return f"{layer} must not include {target}"
    if target and "/cuda/" in included and "/cuda/" not in path and not path.startswith(FACTORY):
        return f"cuda/ is seen only by {FACTORY} and by cuda/ itself"
    if target == layer and (why := problem_inside(path, included)):
        return why
    name = path.rsplit("/", 1)[-1]
    in_ctl = path.startswith("controller/cli/")
    reads_config = included == CONFIG_MESSAGES
    if PROTO.search(included) and layer not in PROTO_FOLDERS and not PROTO_FILE.search(name) \
            and not in_ctl and not reads_config:
        return "generated protobuf and gRPC belong in config, net, view, web, wire, services, clients, streams and the commands of tandemctl"
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
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    root = pathlib.Path(words[0] if words else __file__ + "/../../..").resolve()
    if "--arrows" in sys.argv:
        print(arrows(root), end="")
        return 0
    if "--picture" in sys.argv and "--write" not in sys.argv:
        print(picture(), end="")
        return 0
    files, bad, texts = 0, 0, {}
    for top in TOPS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".h", ".cc", ".cu"):
                continue
            path = str(file.relative_to(root))
            layer = layer_of(path)
            files += 1
            if layer is None or not has_place(path, layer):
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
        for file in sorted((root / top).rglob("CMakeLists.txt")):
            found = EMULATED.search(file.read_text())
            if found:
                bad += 1
                print(f"{file.relative_to(root)}: {found.group()}: only tests link the emulated GPU")
    for line in passed_on(texts) + stale_picture(root, "--write" in sys.argv):
        bad += 1
        print(line)
    if files == 0:
        bad += 1
        print(f"{root} has no C++ file in {', '.join(TOPS)}: nothing was checked")
    print(f"layers: {files} files, {bad} includes against the layers")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
