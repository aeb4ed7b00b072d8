// Keeps denormals in this thread for as long as it lives: the compute threads flush them to zero.
#pragma once

#include <xmmintrin.h>

namespace tandem {

class ScopedDenormals {
 public:
  // Neither flush-to-zero nor denormals-are-zero.
  ScopedDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ & ~0x8040u); }
  ~ScopedDenormals() { _mm_setcsr(saved_); }
  ScopedDenormals(const ScopedDenormals&) = delete;
  ScopedDenormals& operator=(const ScopedDenormals&) = delete;

 private:
  const unsigned saved_;
};

}  // namespace tandem
