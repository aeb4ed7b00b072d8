"""What mutations.py changes: rooms of sources with the tests that are to notice, and barriers of the CUDA kernels."""
import random
import re

from mutation_builds import ROOT
from mutation_sites import sites_of

KERNELS_ROOM = "kernels"
# By room, its sources, and the tests that are to notice a change, those that are built and run fastest first.
ROOMS = {
    "losses": (["trainer_worker/losses/*.cc", "trainer_worker/losses/policy/*.cc"],
               ["losses_test", "policy_loss_committed_golden_test",
                "bypass_loss_committed_golden_test"]),
    "advantages": (["controller/algorithm/*.cc", "controller/algorithm/advantages/*.cc"],
                   ["algorithm_test", "advantages_committed_golden_test", "kl_committed_golden_test"]),
    "scheduler": (["rollout_worker/generation/scheduler.cc", "rollout_worker/generation/kv_cache.cc"],
                  ["rollout_core_test", "rollout_generation_test"]),
    "weights": (["common/weights/*.cc", "trainer_worker/weight_sync/*.cc", "rollout_worker/weights/*.cc"],
                ["weights_test", "weight_pair_test", "update_client_test", "rollout_engine_test"]),
    "workers": (["controller/workers/*.cc"], ["workers_test", "rollouts_test"]),
    "run": (["controller/run/*.cc"], ["run_control_test", "train_loop_test", "assembly_test"]),
    "store": (["controller/store/*.cc", "controller/store/*/*.cc"], ["store_test", "train_loop_test"]),
    "api": (["controller/api/*.cc"], ["controller_api_test"]),
    "net": (["common/net/*.cc", "common/net/security/*.cc"],
            ["net_test", "codec_test", "roles_test", "membership_test", "tls_roles_test"]),
    "tcp": (["common/tcp/*.cc", "common/comm/hosts/*.cc"],
            ["tcp_test", "tcp_tls_test", "tcp_group_test", "tls_roles_test", "roles_test"]),
}
# Kernels: by source, the tests on the emulator that are to notice a barrier that is missing.
KERNELS = {
    "common/ops/cuda/attention/*.cu": ["cuda_attention_test"],
    "common/ops/cuda/linear/*.cu": ["cuda_linear_test"],
    "common/ops/cuda/rows/*.cu": ["cuda_row_ops_test", "cuda_ops_test"],
    "common/ops/cuda/rows/row_shape.h": ["cuda_row_ops_test"],
    "common/ops/cuda/*.cu": ["cuda_ops_test"],
    "common/weights/cuda/*.cu": ["weights_cuda_test"],
}
BARRIER = re.compile(r"^(?!\s*//).*\b(?:__syncthreads|__syncwarp|SyncWarp)\(\);")


def sources_of(room):
    """The room's sources, from the root."""
    return sorted(str(path.relative_to(ROOT)) for pattern in ROOMS[room][0] for path in ROOT.glob(pattern))


def shuffled(rows, room, seed):
    """Equal seeds draw equally, and a run that is cut off, or of a smaller sample, has looked at the first of them."""
    rows = list(rows)
    random.Random(f"{seed} {room}").shuffle(rows)
    return rows


def sampled(room, count, seed, most_files=None):
    """(name, file, the file's mutated text, tests) of `count` of all small changes to the room's sources, in the order in
    which they are drawn; with `most_files` of the first so many files alone, as each must be compiled."""
    drawn = shuffled([(file, site) for file in sources_of(room) for site in sites_of((ROOT / file).read_text())],
                     room, seed)
    if most_files is not None:
        files = list(dict.fromkeys(file for file, _ in drawn))[:most_files]
        drawn = [row for row in drawn if row[0] in files]
    for file, site in drawn[:count]:
        name = f"{file}:{site.line}:{site.column} {site.describe()}"
        yield name, file, site.mutate((ROOT / file).read_text()), ROOMS[room][1]


def barriers():
    """The same for each barrier of a kernel; its line in place of a mutated text."""
    for pattern, tests in KERNELS.items():
        for path in sorted(ROOT.glob(pattern)):
            file = str(path.relative_to(ROOT))
            for line, text in enumerate(path.read_text().splitlines(), 1):
                if BARRIER.match(text):
                    yield f"{file}:{line} without {text.strip()}", file, line, tests
