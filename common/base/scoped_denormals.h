// Turns off the flushing of denormals, which compute threads have on, for this thread and scope.
#pragma once

#include <xmmintrin.h>

namespace tandem {

class ScopedDenormals {
 public:
  // Clears the bits flush-to-zero and denormals-are-zero.
  ScopedDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ & ~0x8040u); }
  ~ScopedDenormals() { _mm_setcsr(saved_); }
  ScopedDenormals(const ScopedDenormals&) = delete;
  ScopedDenormals& operator=(const ScopedDenormals&) = delete;

 private:
  const unsigned saved_;
};

}  // namespace tandem
