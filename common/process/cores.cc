#include "common/process/cores.h"

#include <cstdint>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "common/base/log.h"

namespace tandem {
namespace {

struct CpuSetDeleter {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, CpuSetDeleter>;

// `cores` must be ascending.
void PinTo(const std::vector<int>& cores) {
  const int capacity = cores.back() + 1;
  const CpuSet set(CPU_ALLOC(capacity));
  const size_t bytes = CPU_ALLOC_SIZE(capacity);
  CPU_ZERO_S(bytes, set.get());
  for (const int core : cores) CPU_SET_S(core, bytes, set.get());
  sched_setaffinity(0, bytes, set.get());
}

}  // namespace

std::vector<int> AllowedCores() {
  // The kernel rejects a set that is smaller than its own, so the size is doubled until it fits.
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 2) {
    const CpuSet set(CPU_ALLOC(capacity));
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    if (sched_getaffinity(getpid(), bytes, set.get()) != 0) continue;
    std::vector<int> cores;
    for (int core = 0; core < capacity; ++core) {
      if (CPU_ISSET_S(core, bytes, set.get())) cores.push_back(core);
    }
    return cores;
  }
  return {0};
}

std::vector<int> SelectCores(const std::vector<int>& allowed, int rank, int workers, int threads) {
  const auto all = static_cast<int64_t>(allowed.size());
  if (rank < 0 || rank >= workers || threads < 1 || int64_t{workers} * threads > all) return {};
  const auto first = allowed.begin() + int64_t{rank} * threads;
  return {first, first + threads};
}

std::vector<int> ComputeCores(int rank, int workers, int threads) {
  const char* setting = std::getenv("TANDEM_PIN_THREADS");
  const std::string pin = setting == nullptr ? "" : setting;
  if (pin != "" && pin != "0" && pin != "1") {
    LogWarn("TANDEM_PIN_THREADS is \"{}\", expected 0 or 1: threads are not pinned", pin);
  }
  if (pin != "1") return {};
  return SelectCores(AllowedCores(), rank, workers, threads);
}

std::string PinningText(const std::vector<int>& cores) {
  return cores.empty() ? "not pinned" : fmt::format("pinned to cores {}", fmt::join(cores, ", "));
}

void PinThisThread(int core) { PinTo({core}); }

void UnpinThisThread() { PinTo(AllowedCores()); }

}  // namespace tandem
