// Keeps denormals on this thread until the end of the scope; compute threads otherwise flush them
// to zero.
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
