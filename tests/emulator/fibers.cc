#include "tests/emulator/fibers.h"

#include <cstring>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "common/base/check.h"

#ifdef _GLIBCXX_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// Saves the callee's registers on this stack, its pointer at [rdi], and goes on where the stack
// that rsi points into was left.
extern "C" void tandem_switch_stack(void** save, void* load);
asm(R"(
.text
.globl tandem_switch_stack
.type tandem_switch_stack, @function
tandem_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tandem_switch_stack, .-tandem_switch_stack
)");

namespace tandem::emulator {
namespace {

// ThreadSanitizer follows calls by what it believes to be one stack: it is told of each switch.
#ifdef _GLIBCXX_TSAN
void* NewFiber() { return __tsan_create_fiber(0); }
void DeleteFiber(void* fiber) { __tsan_destroy_fiber(fiber); }
void* CurrentFiber() { return __tsan_get_current_fiber(); }
void AnnounceFiber(void* fiber) { __tsan_switch_to_fiber(fiber, 0); }
#else
void* NewFiber() { return nullptr; }
void DeleteFiber(void* /*fiber*/) {}
void* CurrentFiber() { return nullptr; }
void AnnounceFiber(void* /*fiber*/) {}
#endif

constexpr size_t kStackBytes = 128 << 10;
constexpr int kMaxThreads = 1024;
constexpr int kSavedRegisters = 6;

// Of the block that runs on this thread of the host.
struct FiberBlock {
  const std::function<void(int)>* body = nullptr;
  void* scheduler = nullptr;  // the stack of RunFibers
  std::vector<void*> stacks;  // of each thread while it waits
  std::vector<bool> finished;
  void* scheduler_fiber = nullptr;
  std::vector<void*> fibers;
  int current = 0;
  bool progress = false;
};
thread_local FiberBlock fiber_block;

char* Stacks() {
  thread_local char* stacks = [] {
    void* memory = mmap(nullptr, kStackBytes * kMaxThreads, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TANDEM_CHECK(memory != MAP_FAILED, "no address space for the stacks of emulated threads");
    return static_cast<char*>(memory);
  }();
  return stacks;
}

void Enter() {
  (*fiber_block.body)(fiber_block.current);
  fiber_block.finished[static_cast<size_t>(fiber_block.current)] = true;
  fiber_block.progress = true;
  void* unused = nullptr;
  AnnounceFiber(fiber_block.scheduler_fiber);
  tandem_switch_stack(&unused, fiber_block.scheduler);
}

void* FreshStack(int thread) {
  char* const top = Stacks() + (thread + 1) * kStackBytes;
  // What tandem_switch_stack pops: the registers, then the address that it returns to. Enter finds
  // the stack as after a call: 8 bytes beyond a multiple of 16.
  auto** slot = reinterpret_cast<void**>(top) - 2;
  *slot = reinterpret_cast<void*>(&Enter);
  slot -= kSavedRegisters;
  std::memset(slot, 0, kSavedRegisters * sizeof(void*));
  return slot;
}

}  // namespace

void RunFibers(int threads, Order order, const char* name, const std::function<void(int)>& body) {
  TANDEM_CHECK(threads > 0 && threads <= kMaxThreads, name);
  fiber_block.body = &body;
  fiber_block.stacks.resize(static_cast<size_t>(threads));
  fiber_block.finished.assign(static_cast<size_t>(threads), false);
  for (int thread = 0; thread < threads; ++thread) {
    fiber_block.stacks[static_cast<size_t>(thread)] = FreshStack(thread);
  }
  fiber_block.scheduler_fiber = CurrentFiber();
  fiber_block.fibers.resize(static_cast<size_t>(threads));
  for (void*& fiber : fiber_block.fibers) fiber = NewFiber();
  bool all_finished = false;
  while (!all_finished) {
    all_finished = true;
    fiber_block.progress = false;
    for (int turn = 0; turn < threads; ++turn) {
      const int thread = order == Order::kForward ? turn : threads - 1 - turn;
      if (fiber_block.finished[static_cast<size_t>(thread)]) continue;
      all_finished = false;
      fiber_block.current = thread;
      AnnounceFiber(fiber_block.fibers[static_cast<size_t>(thread)]);
      tandem_switch_stack(&fiber_block.scheduler, fiber_block.stacks[static_cast<size_t>(thread)]);
    }
    TANDEM_CHECK(all_finished || fiber_block.progress,
                 std::string(name) + ": some threads wait at a barrier that others never reach");
  }
  for (void* const fiber : fiber_block.fibers) DeleteFiber(fiber);
}

void Yield() {
  AnnounceFiber(fiber_block.scheduler_fiber);
  tandem_switch_stack(&fiber_block.stacks[static_cast<size_t>(fiber_block.current)],
                      fiber_block.scheduler);
}

void NoteProgress() { fiber_block.progress = true; }

}  // namespace tandem::emulator
