// The part of tandem-comm-bench that measures groups over TCP.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace tandem {

// Where one of the two ranks is.
struct BenchHost {
  std::string network;  // a namespace of `ip netns`; empty: this process's own
  std::string address = "127.0.0.1";
};

// Prints the rates of two ranks that exchange `bytes` in all. Returns the program's exit code.
int BenchTcp(int64_t bytes, const std::array<BenchHost, 2>& hosts);

}  // namespace tandem
