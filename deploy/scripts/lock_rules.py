"""Which locks clang can check, for check_shape.py: every lock is a Mutex of common/base/mutex.h, and something is said to be
guarded by it.

Clang's analysis (-Wthread-safety, by run_tidy.py) knows what a mutex guards from annotations alone. It says nothing of the
standard library's mutexes, which have none, and nothing of a Mutex that no member names.
"""
import re

# Standard or Abseil types where a Mutex cannot stand, with the reason.
FOREIGN = {
    "common/base/mutex.h": "Mutex and ConditionVariable wrap them",
    "common/base/log.cc": "spdlog's base class takes the type of a mutex and locks it itself",
}
# A Mutex that guards no variable, with what it guards.
WITHOUT_VARIABLE = {
    "common/net/server.cc: umask_mutex": "the umask, which belongs to the process",
    "common/comm/shared_memory_group.h: own_reason_mutex_": "a part of a memory segment, which is no member",
    "controller/store/post_mortem/event_log.h: write_mutex_": "the order of writes into the store, which others use as well",
}
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
FOREIGN_TYPE = re.compile(r"\b(?:std::(?:\w+_)?mutex|std::condition_variable(?:_any)?|absl::(?:Mutex|CondVar))\b")
MUTEX = re.compile(r"^[ \t]*(?:(?:static|mutable|inline|constinit)\s+)*(?:tandem::)?Mutex\s+(\w+)\s*(?:ABSL_\w+\([^)]*\)\s*)?;", re.M)
GUARDED = re.compile(r"(?:GUARDED_BY|EXCLUSIVE_LOCKS_REQUIRED)\(\s*(?:\w+(?:\.|->))*(\w+)\s*\)")


def wrong_locks(texts):
    """Lines about the locks in {path: text of a C++ source} that clang could not check."""
    lines = []
    for path, text in sorted(texts.items()):
        plain = COMMENT.sub("", text)
        if path not in FOREIGN:
            lines += [f"{path}: {name} has no annotations, so that clang checks no use of it: take Mutex and "
                      "ConditionVariable of common/base/mutex.h" for name in sorted(set(FOREIGN_TYPE.findall(plain)))]
        guards = set(GUARDED.findall(plain))
        lines += [f"{path}: nothing is ABSL_GUARDED_BY({name}): annotate what it guards (of local variables, make the "
                  "members of a struct), or name it in lock_rules.py with the reason"
                  for name in MUTEX.findall(plain)
                  if name not in guards and f"{path}: {name}" not in WITHOUT_VARIABLE]
    return lines
