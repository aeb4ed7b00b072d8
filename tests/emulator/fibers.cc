#include "tests/emulator/fibers.h"

#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <utility>

#include <sys/mman.h>

#include "common/base/check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

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
constexpr int kSavedRegisters = 6;
constexpr int kLanes = 32;
constexpr int kMaxWarps = kMaxFibers / kLanes;
constexpr uint64_t kTurnsInAnOrder = 64;  // on average

struct Fiber {
  void* stack = nullptr;  // while another one runs
  // What AddressSanitizer knows of it: where its stack lies, and its locals that outlive a switch.
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* fake_stack = nullptr;
};

// The fibers of a host thread, which every block reuses. AddressSanitizer is told of each switch.
// ThreadSanitizer is not: the threads of a block run one after the other, and to it they are one
// thread with one stack of calls, on which each fiber takes back no more than it put there. That
// holds as long as fibers never end: one that began anew with every block would leave a call
// behind. Told of each switch it needs several times as long.
struct FiberBlock {
  const std::function<void(int)>* body = nullptr;
  Fiber scheduler;           // RunFibers
  std::deque<Fiber> fibers;  // their places stay: a fiber that is parked has its own at hand
  int current = 0;
  int unfinished = 0;
  int warps = 0;
  // Warps as drawn: by place in the order, the warp, and by warp, its place. A place's bit is set
  // where the warp has lanes that can go on.
  std::array<uint8_t, kMaxWarps> warp_at, place_of;
  uint64_t ready_places = 0;
  std::array<uint32_t, kMaxWarps> ready_lanes;
};
thread_local FiberBlock fiber_block;
static_assert(kMaxWarps == 64, "a bit of ready_places each");

char* Stacks() {
  thread_local char* stacks = [] {
    void* memory = mmap(nullptr, kStackBytes * kMaxFibers, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TANDEM_CHECK(memory != MAP_FAILED, "no address space for the stacks of emulated threads");
    return static_cast<char*>(memory);
  }();
  return stacks;
}

Fiber& Running() { return fiber_block.fibers[static_cast<size_t>(fiber_block.current)]; }

void SwitchTo(Fiber& from, const Fiber& to) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.bytes);
  tandem_switch_stack(&from.stack, to.stack);
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#else
  tandem_switch_stack(&from.stack, to.stack);
#endif
}

void MakeReady(int fiber) {
  const auto warp = static_cast<size_t>(fiber / kLanes);
  fiber_block.ready_lanes[warp] |= uint32_t{1} << fiber % kLanes;
  fiber_block.ready_places |= uint64_t{1} << fiber_block.place_of[warp];
}

// A fiber's entry point; it continues with the thread of the same number of the next block.
void Enter() {
#ifdef __SANITIZE_ADDRESS__
  Fiber& scheduler = fiber_block.scheduler;  // whose stack nobody has named yet
  __sanitizer_finish_switch_fiber(nullptr, &scheduler.bottom, &scheduler.bytes);
#endif
  while (true) {
    (*fiber_block.body)(fiber_block.current);
    --fiber_block.unfinished;
    SwitchTo(Running(), fiber_block.scheduler);
  }
}

Fiber FreshFiber(int index) {
  char* const bottom = Stacks() + static_cast<size_t>(index) * kStackBytes;
  // What tandem_switch_stack pops: the registers, then the address that it returns to. Enter finds
  // the stack as after a call: 8 bytes beyond a multiple of 16.
  auto** slot = reinterpret_cast<void**>(bottom + kStackBytes) - 2;
  *slot = reinterpret_cast<void*>(&Enter);
  slot -= kSavedRegisters;
  std::memset(slot, 0, kSavedRegisters * sizeof(void*));
  return {.stack = slot, .bottom = bottom, .bytes = kStackBytes, .fake_stack = nullptr};
}

void DrawOrder(Numbers& numbers) {
  FiberBlock& block = fiber_block;
  for (int i = block.warps - 1; i > 0; --i) {
    std::swap(block.warp_at[static_cast<size_t>(i)],
              block.warp_at[numbers.Below(static_cast<uint64_t>(i) + 1)]);
  }
  block.ready_places = 0;
  for (int place = 0; place < block.warps; ++place) {
    const uint8_t warp = block.warp_at[static_cast<size_t>(place)];
    block.place_of[warp] = static_cast<uint8_t>(place);
    if (block.ready_lanes[warp] != 0) block.ready_places |= uint64_t{1} << place;
  }
}

void PutAllInOrder(int fibers) {
  FiberBlock& block = fiber_block;
  for (int i = static_cast<int>(block.fibers.size()); i < fibers; ++i) {
    block.fibers.push_back(FreshFiber(i));
  }
  block.unfinished = fibers;
  block.warps = fibers / kLanes;
  for (int warp = 0; warp < block.warps; ++warp) {
    block.warp_at[static_cast<size_t>(warp)] = static_cast<uint8_t>(warp);
    block.ready_lanes[static_cast<size_t>(warp)] = ~uint32_t{0};
  }
}

// A lane, no longer ready, of the first warp that has one.
int TakeNext(uint64_t number) {
  FiberBlock& block = fiber_block;
  const int place = std::countr_zero(block.ready_places);
  const uint8_t warp = block.warp_at[static_cast<size_t>(place)];
  uint32_t& lanes = block.ready_lanes[warp];
  const int from = static_cast<int>(number % kLanes);
  const int lane = (std::countr_zero(std::rotr(lanes, from)) + from) % kLanes;
  lanes &= ~(uint32_t{1} << lane);
  if (lanes == 0) block.ready_places &= ~(uint64_t{1} << place);
  return warp * kLanes + lane;
}

}  // namespace

bool RunFibers(int fibers, Numbers& numbers, const std::function<void(int)>& body) {
  TANDEM_CHECK(fibers > 0 && fibers <= kMaxFibers && fibers % kLanes == 0,
               "fibers are whole warps, and at most kMaxFibers");
  FiberBlock& block = fiber_block;
  block.body = &body;
  PutAllInOrder(fibers);
  DrawOrder(numbers);
  while (block.ready_places != 0) {
    const uint64_t number = numbers.Next();
    if ((number >> 32) % kTurnsInAnOrder == 0) DrawOrder(numbers);
    block.current = TakeNext(number);
    SwitchTo(block.scheduler, Running());
  }
  return block.unfinished == 0;
}

int CurrentFiber() { return fiber_block.current; }

void Park() { SwitchTo(Running(), fiber_block.scheduler); }

void Wake(int fiber) { MakeReady(fiber); }

void Yield() {
  MakeReady(fiber_block.current);
  Park();
}

}  // namespace tandem::emulator
