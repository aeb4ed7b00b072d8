"""Where a cell's fault happens: a fault point of one of the processes (common/process/fault_injection.h).

A process that has a point of its own in the phase is hit there. One that has none, as a trainer while rollouts
generate, is hit when the controller begins the phase. The second visit or later: then there is something to lose.
"""

CONTROLLER = {"start": ("start", 1), "generate": ("generate", 2), "train": ("train", 2), "optimize": ("optimize", 2),
              "sync": ("sync", 2), "save": ("checkpoint", 2), "wake": ("wake", 2), "end": ("end", 1)}
OWN = {
    "controller": CONTROLLER,
    "trainer": {"start": ("start", 1), "train": ("layer", 12), "optimize": ("optimizer.window", 3),
                "sync": ("sync.bucket", 3), "save": ("save.export", 2), "end": ("end", 1)},
    "rollout": {"start": ("start", 1), "generate": ("generate", 30), "sync": ("apply bucket", 3),
                "wake": ("wake", 2), "end": ("end", 1)},
    "reward": {"start": ("start", 1), "generate": ("score", 2)},
    "launcher": {},
}
# The process of each role that is hit. Rank 1: rank 0 also exports the model and meets the others.
RANKS = {"controller": 0, "trainer": 1, "rollout": 1, "launcher": 0, "reward": 0}


def is_own(role, phase):
    """Whether the process of `role` has a point of its own in the phase."""
    return phase in OWN[role]


def place(role, phase):
    """(role, rank, point, nth) whose visit begins the fault."""
    at = role if is_own(role, phase) else "controller"
    point, nth = OWN[at][phase]
    return at, RANKS[at], point, nth
