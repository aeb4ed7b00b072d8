#pragma once

#include <chrono>

namespace tandem::testing {

class Stopwatch {
 public:
  // Since it was made.
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace tandem::testing
