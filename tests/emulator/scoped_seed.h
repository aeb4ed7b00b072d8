// Seeds of the emulator in tests: a kernel's results are the same for each.
#pragma once

#include <array>
#include <cstdint>

#include <catch2/catch.hpp>

#include "tests/emulator/emulator.h"

namespace tandem::testing {

// The order of threads and blocks follows from this seed while it lives; an assertion that fails
// meanwhile names it.
class ScopedSeed {
 public:
  explicit ScopedSeed(uint64_t seed)
      : message_(Catch::MessageBuilder("INFO", CATCH_INTERNAL_LINEINFO, Catch::ResultWas::Info)
                 << "TANDEM_EMULATED_SEED=" << seed) {
    emulator::SetSeed(seed);
  }
  ~ScopedSeed() { emulator::SetSeed(emulator::FirstSeed()); }
  ScopedSeed(const ScopedSeed&) = delete;
  ScopedSeed& operator=(const ScopedSeed&) = delete;

 private:
  Catch::ScopedMessage message_;
};

// The first one is also what a test without a seed of its own has.
inline std::array<uint64_t, 2> TwoSeeds() {
  return {emulator::FirstSeed(), emulator::FirstSeed() + 1};
}
inline uint64_t OtherSeed() { return TwoSeeds()[1]; }

}  // namespace tandem::testing
