#include "tests/emulator/fibers.h"

#include <cstring>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "common/base/check.h"

// Saves the callee's registers on this stack, its pointer at [rdi], and continues where the stack
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

constexpr size_t kStackBytes = 128 << 10;
constexpr int kMaxThreads = 1024;
constexpr int kSavedRegisters = 6;

struct Fiber {
  void* stack = nullptr;  // while another one runs
  bool finished = false;
};

// The fibers of a host thread, which every block reuses. ThreadSanitizer is not told of
// them: the threads of a block run one after the other, and to it they are one thread with one
// stack of calls, on which each fiber takes back no more than it put there. That holds as long as
// fibers never end: one that began anew with every block would leave a call behind. Told of each
// switch it needs several times as long.
struct FiberBlock {
  const std::function<void(int)>* body = nullptr;
  Fiber scheduler;  // RunFibers
  std::vector<Fiber> fibers;
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

Fiber& CurrentThread() { return fiber_block.fibers[static_cast<size_t>(fiber_block.current)]; }

void SwitchTo(Fiber& from, const Fiber& to) { tandem_switch_stack(&from.stack, to.stack); }

// A fiber's entry point; it continues with the thread of the same number of the next block.
void Enter() {
  while (true) {
    (*fiber_block.body)(fiber_block.current);
    CurrentThread().finished = true;
    fiber_block.progress = true;
    SwitchTo(CurrentThread(), fiber_block.scheduler);
  }
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

void MakeFibers(int threads) {
  for (int thread = static_cast<int>(fiber_block.fibers.size()); thread < threads; ++thread) {
    fiber_block.fibers.push_back({.stack = FreshStack(thread)});
  }
}

}  // namespace

void RunFibers(int threads, Order order, const char* name, const std::function<void(int)>& body) {
  TANDEM_CHECK(threads > 0 && threads <= kMaxThreads, name);
  MakeFibers(threads);
  fiber_block.body = &body;
  for (int thread = 0; thread < threads; ++thread) {
    fiber_block.fibers[static_cast<size_t>(thread)].finished = false;
  }
  bool all_finished = false;
  while (!all_finished) {
    all_finished = true;
    fiber_block.progress = false;
    for (int turn = 0; turn < threads; ++turn) {
      fiber_block.current = order == Order::kForward ? turn : threads - 1 - turn;
      if (CurrentThread().finished) continue;
      all_finished = false;
      SwitchTo(fiber_block.scheduler, CurrentThread());
    }
    TANDEM_CHECK(all_finished || fiber_block.progress,
                 std::string(name) + ": some threads wait at a barrier that others never reach");
  }
}

void Yield() { SwitchTo(CurrentThread(), fiber_block.scheduler); }

void NoteProgress() { fiber_block.progress = true; }

}  // namespace tandem::emulator
