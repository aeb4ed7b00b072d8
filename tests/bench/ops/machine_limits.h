// What the machine could do at best: register-only loops of the instruction a kernel set is built
// on, and reads of a buffer. Both by all threads at once.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::bench {

// FLOP/s of the set's multiply-add in bf16 (TANDEM_CPU_ISA's names): tdpbf16ps of whole tiles for
// amx, vdpbf16ps for avx512bf16, fp32 multiply-adds for the others. The machine must have it.
double PeakFlops(const std::string& kernel_set, int threads);

// Bytes/s of reading a buffer of `bytes` again and again, every thread its own part: from the cache
// level it fits, by the fastest loads that the set may use.
double ReadBandwidth(const std::string& kernel_set, int64_t bytes, int threads);

}  // namespace tandem::bench
