#include "common/ops/cpu/kernels/isa.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/status.h"

namespace tandem {
namespace {

struct Isa {
  std::string name;
  std::vector<std::string> missing;  // cpuid features the machine lacks
  const KernelSets& (*kernels)();
};

// Linux gives the 8 KiB of tile state only to processes that request it; threads inherit the
// permission.
bool MayUseTiles() {
  static const bool allowed = [] {
    constexpr int kRequestPermission = 0x1023, kTileData = 18;
    if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return true;
    LogWarn("the system refuses AMX tiles ({}); using a kernel set of class seq",
            std::strerror(errno));
    return false;
  }();
  return allowed;
}

// Whether the CPU has a part of AMX, by its bit of EDX of CPUID's leaf 7. __builtin_cpu_supports of
// older clang, which builds the fuzz targets, does not know the names of these. It does not ask the
// system, as MayUseTiles does.
constexpr unsigned kAmxBf16Bit = 22, kAmxTileBit = 24;
bool HasAmx(unsigned bit) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> bit & 1U) != 0;
}

// Fastest first. __builtin_cpu_supports also checks that the system saves the registers.
std::vector<Isa> ListIsas() {
  std::vector<std::string> avx2;
  if (__builtin_cpu_supports("avx2") == 0) avx2.push_back("avx2");
  if (__builtin_cpu_supports("fma") == 0) avx2.push_back("fma");
  std::vector<std::string> avx512f = avx2;
  if (__builtin_cpu_supports("avx512f") == 0) avx512f.push_back("avx512f");
  std::vector<std::string> avx512bf16 = avx512f;
  if (__builtin_cpu_supports("avx512bw") == 0) avx512bf16.push_back("avx512bw");
  if (__builtin_cpu_supports("avx512vl") == 0) avx512bf16.push_back("avx512vl");
  if (__builtin_cpu_supports("avx512bf16") == 0) avx512bf16.push_back("avx512bf16");
  std::vector<std::string> amx = avx512bf16;
  if (!HasAmx(kAmxTileBit)) amx.push_back("amx-tile");
  if (!HasAmx(kAmxBf16Bit)) amx.push_back("amx-bf16");
  if (amx.empty() && !MayUseTiles()) amx.push_back("the system's permission to use AMX tiles");
  return {{"amx", amx, KernelsAmx},
          {"avx512bf16", avx512bf16, KernelsAvx512Bf16},
          {"avx512f", avx512f, KernelsAvx512},
          {"avx2", avx2, KernelsAvx2},
          {"amx-emulated", avx512f, KernelsAmxEmulated}};
}

// Intel's cores issue one vdpbf16ps every second cycle but two fp32 multiply-adds every cycle:
// 107 against 215 GFLOP/s per core at 3.4 GHz (Sapphire Rapids). AMD's Zen 4 is the reverse.
bool SlowBf16Products() { return __builtin_cpu_is("intel") != 0; }

absl::StatusOr<const KernelSets*> ChooseSets() {
  const std::vector<Isa> isas = ListIsas();
  const char* setting = std::getenv("TANDEM_CPU_ISA");
  const std::string forced = setting == nullptr ? "" : setting;
  for (const Isa& isa : isas) {
    if (!forced.empty() && forced != isa.name) continue;
    if (forced.empty() && isa.name == "avx512bf16" && SlowBf16Products()) continue;
    if (forced.empty() && isa.name == "amx-emulated") continue;  // for tests
    if (isa.missing.empty()) return &isa.kernels();
    if (!forced.empty()) {
      return FailedPrecondition(
          "TANDEM_CPU_ISA={} asks for what this machine lacks: {}. Unset it or name a lesser set "
          "(avx512f, avx2)",
          forced, fmt::join(isa.missing, ", "));
    }
  }
  if (!forced.empty()) {
    return InvalidArgument(
        "TANDEM_CPU_ISA={} is not a kernel set; use amx, avx512bf16, avx512f, avx2 or "
        "amx-emulated, or unset it",
        forced);
  }
  return FailedPrecondition(
      "this CPU lacks {}, which the compute kernels need at least; use a machine with AVX2 and FMA "
      "(Intel since 2013, AMD since 2015)",
      fmt::join(isas[3].missing, ", "));
}

}  // namespace

absl::StatusOr<const KernelSet*> ChooseKernels(DType compute_dtype) {
  TANDEM_ASSIGN_OR_RETURN(const KernelSets* sets, ChooseSets());
  if (compute_dtype == DType::kBFloat16) return &sets->bf16;
  if (compute_dtype == DType::kFloat32) return &sets->f32;
  return InvalidArgument("compute dtype {} has no kernels; use BF16 or F32",
                         DTypeName(compute_dtype));
}

}  // namespace tandem
