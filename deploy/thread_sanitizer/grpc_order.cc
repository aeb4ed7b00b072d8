// Linked into every program under ThreadSanitizer only, in front of gRPC's C interface.
// Debian's gRPC is not instrumented: ThreadSanitizer does not see that what a thread did before it
// gave gRPC work comes before what another one does when gRPC hands it the result, and reports the
// accesses on both sides as races. Here it is told:
// - what a thread did before it starts a batch comes before the completion of that batch;
// - what a client's thread did before it starts a batch comes before what a server's handler does
//   that begins or goes on later, and the reverse. Which client and which server is not told apart:
//   the two may be in other threads, and only the network connects them.
// Two handlers, or two clients, are not ordered among themselves: their races are reported. But
// what is told holds for whole sides, so it orders two handlers between which a client did
// something (the first handler, then any client, then the second one), and two clients between
// which a handler did. A race of such two may go unreported.
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <grpc/grpc.h>
#include <link.h>
#include <sanitizer/tsan_interface.h>

#include "deploy/thread_sanitizer/real_function.h"

namespace {

using Functor = grpc_completion_queue_functor;

// A side's address stands for what its threads did before they gave gRPC work.
enum class Side : char { kClient, kServer };
char sides[2];
char executor;  // the same for the threads that give it work
char* Given(Side side) { return &sides[static_cast<int>(side)]; }
Side Other(Side side) { return side == Side::kClient ? Side::kServer : Side::kClient; }
Side SideOf(grpc_call* call) {
  using IsClient = bool(grpc_call*);
  static IsClient* const is_client =
      tandem::RealFunction(static_cast<IsClient*>(nullptr), "_Z19grpc_call_is_clientP9grpc_call");
  return is_client(call) ? Side::kClient : Side::kServer;
}

struct Batch {
  Side side = Side::kServer;
  void (*run)(Functor*, int) = nullptr;  // of a callback
};

// Not a std::mutex, by which ThreadSanitizer would take all threads that pass here for ordered.
// This file is not instrumented, so it does not see an atomic.
class SpinLock {
 public:
  void lock() {
    while (locked_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  }
  void unlock() { locked_.clear(std::memory_order_release); }

 private:
  std::atomic_flag locked_;
};
SpinLock batches_lock;
// By tag, from their start to their completion. Never destroyed: gRPC's threads outlive main.
std::map<void*, Batch>& Batches() {
  static auto* const batches = new std::map<void*, Batch>;
  return *batches;
}

Batch Complete(void* tag) {
  Batch batch;  // of a server's next call, unless it is found
  {
    const std::lock_guard lock(batches_lock);
    const auto found = Batches().find(tag);
    if (found != Batches().end()) {
      batch = found->second;
      Batches().erase(found);
    }
  }
  __tsan_acquire(tag);
  __tsan_acquire(Given(Other(batch.side)));
  return batch;
}

void RunCallback(Functor* functor, int ok) {
  const Batch batch = Complete(functor);
  functor->functor_run = batch.run;
  batch.run(functor, ok);  // which may end the functor
  __tsan_release(Given(batch.side));
}

using Range = std::pair<uintptr_t, uintptr_t>;

std::vector<Range> CodeRanges() {
  std::vector<Range> ranges;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* out) {
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& part = object->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
          const uintptr_t begin = object->dlpi_addr + part.p_vaddr;
          static_cast<std::vector<Range>*>(out)->emplace_back(begin, begin + part.p_memsz);
        }
        return 0;
      },
      &ranges);
  return ranges;
}

// A tag is a callback, which begins with its function, or an object with a table of functions.
bool IsCallback(void* tag) {
  static const auto* const code = new std::vector<Range>(CodeRanges());
  const uintptr_t first = *static_cast<uintptr_t*>(tag);
  for (const auto& [begin, end] : *code) {
    if (begin <= first && first < end) return true;
  }
  return false;
}

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(
    grpc_call* call, const grpc_op* ops, size_t count, void* tag, void* reserved) {
  TANDEM_REAL(grpc_call_start_batch, "grpc_call_start_batch");
  const Side side = SideOf(call);
  if (tag != nullptr) {
    Batch batch{side};
    if (IsCallback(tag)) {
      batch.run = std::exchange(static_cast<Functor*>(tag)->functor_run, &RunCallback);
    }
    __tsan_release(tag);
    const std::lock_guard lock(batches_lock);
    Batches()[tag] = batch;
  }
  __tsan_release(Given(side));
  return real(call, ops, count, tag, reserved);
}

grpc_call_error grpc_call_cancel_with_status(grpc_call* call,
                                             grpc_status_code code,
                                             const char* why,
                                             void* reserved) {
  TANDEM_REAL(grpc_call_cancel_with_status, "grpc_call_cancel_with_status");
  __tsan_release(Given(SideOf(call)));
  return real(call, code, why, reserved);
}

grpc_call_error grpc_call_cancel(grpc_call* call, void* reserved) {
  TANDEM_REAL(grpc_call_cancel, "grpc_call_cancel");
  __tsan_release(Given(SideOf(call)));
  return real(call, reserved);
}

// The first that a callback handler calls.
void grpc_call_ref(grpc_call* call) {
  TANDEM_REAL(grpc_call_ref, "grpc_call_ref");
  if (SideOf(call) == Side::kServer) __tsan_acquire(Given(Side::kClient));
  real(call);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue,
                                      gpr_timespec deadline,
                                      void* reserved) {
  TANDEM_REAL(grpc_completion_queue_next, "grpc_completion_queue_next");
  const grpc_event event = real(queue, deadline, reserved);
  // libgrpc++ takes callbacks out of a queue, too, and runs them.
  if (event.type == GRPC_OP_COMPLETE && !IsCallback(event.tag)) (void)Complete(event.tag);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue,
                                       void* tag,
                                       gpr_timespec deadline,
                                       void* reserved) {
  TANDEM_REAL(grpc_completion_queue_pluck, "grpc_completion_queue_pluck");
  const grpc_event event = real(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) (void)Complete(tag);
  return event;
}

// Handlers begin after it, also those of calls by other processes.
void grpc_server_start(grpc_server* server) {
  TANDEM_REAL(grpc_server_start, "grpc_server_start");
  __tsan_release(Given(Side::kClient));
  real(server);
}

// No handler runs any more.
void grpc_server_destroy(grpc_server* server) {
  TANDEM_REAL(grpc_server_destroy, "grpc_server_destroy");
  real(server);
  __tsan_acquire(Given(Side::kServer));
}

// What libgrpc++ gives gRPC's executor to do, as a reactor's OnDone, runs on a thread of it. The
// names are grpc_core::Executor::Run's and RunClosures'.
#define TANDEM_EXECUTOR "_ZN9grpc_core8Executor"
#define TANDEM_RUN \
  TANDEM_EXECUTOR  \
  "3RunEP12grpc_closureN4absl7debian36StatusENS_12ExecutorTypeENS_15ExecutorJobTypeE"
#define TANDEM_RUN_CLOSURES TANDEM_EXECUTOR "11RunClosuresEPKc17grpc_closure_list"

struct grpc_closure_list {
  void *head, *tail;
};

void GiveExecutor(void* closure, void* status, int type, int job) asm(TANDEM_RUN);
void GiveExecutor(void* closure, void* status, int type, int job) {
  TANDEM_REAL(GiveExecutor, TANDEM_RUN);
  __tsan_release(&executor);
  real(closure, status, type, job);
}

size_t RunGiven(const char* name, grpc_closure_list closures) asm(TANDEM_RUN_CLOSURES);
size_t RunGiven(const char* name, grpc_closure_list closures) {
  TANDEM_REAL(RunGiven, TANDEM_RUN_CLOSURES);
  __tsan_acquire(&executor);
  return real(name, closures);
}

}  // extern "C"
