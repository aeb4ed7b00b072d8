#include "common/formats/mapping_guard.h"

#include <array>
#include <csignal>
#include <mutex>

#include <sys/mman.h>
#include <unistd.h>

namespace tandem {
namespace {

// One more is not covered; a sharded checkpoint of the largest models has about 200 files.
constexpr size_t kMostGuards = 4096;

std::array<std::atomic<MappingGuard*>, kMostGuards>& Slots() {
  static std::array<std::atomic<MappingGuard*>, kMostGuards> slots;
  return slots;
}

struct sigaction& ActionBefore() {
  static struct sigaction before = {};
  return before;
}

}  // namespace

// The signal handler calls nothing but mmap and sigaction, and takes no lock.
struct MappingGuardSignals {
  static inline size_t page = 0;

  // Maps zeros from the touched page on, because the file has no content there.
  static bool Cover(MappingGuard& guard, uintptr_t address) {
    const auto begin = reinterpret_cast<uintptr_t>(guard.data_);
    const uintptr_t end = begin + (guard.bytes_ + page - 1) / page * page;
    if (address < begin || address >= end) return false;
    const uintptr_t first = address / page * page;
    guard.touched_missing_.store(true, std::memory_order_release);
    void* const zeros = ::mmap(reinterpret_cast<void*>(first), end - first, PROT_READ,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return zeros != MAP_FAILED;
  }

  static void Handle(int, siginfo_t* info, void*) {
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    for (std::atomic<MappingGuard*>& slot : Slots()) {
      MappingGuard* const guard = slot.load(std::memory_order_acquire);
      if (guard != nullptr && Cover(*guard, address)) return;
    }
    // The instruction runs again and meets the action of the signal that was set before.
    ::sigaction(SIGBUS, &ActionBefore(), nullptr);
  }

  static void Install() {
    page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = Handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGBUS, &action, &ActionBefore());
  }
};

MappingGuard::MappingGuard(const uint8_t* data, size_t bytes)
    : data_(data), bytes_(bytes), slot_(kMostGuards) {
  static std::once_flag installed;
  std::call_once(installed, MappingGuardSignals::Install);
  if (bytes == 0) return;
  for (size_t i = 0; i < kMostGuards && slot_ == kMostGuards; ++i) {
    MappingGuard* none = nullptr;
    if (Slots()[i].compare_exchange_strong(none, this)) slot_ = i;
  }
}

MappingGuard::~MappingGuard() {
  if (slot_ < kMostGuards) Slots()[slot_].store(nullptr, std::memory_order_release);
}

}  // namespace tandem
