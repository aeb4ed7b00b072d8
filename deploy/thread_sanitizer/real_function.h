// What stands behind a function that a program defines in front of a shared library's.
#pragma once

#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

namespace tandem {

// `own` only gives the type. Ends the process where no library has such a function, as after an
// update of Debian's: to call nothing would crash without a word.
template <typename Function>
Function* RealFunction(Function* /*own*/, const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr,
                 "deploy/thread_sanitizer: no shared library has the function %s any more; `nm -D` "
                 "of libgrpc and libabsl shows its new name\n",
                 name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

}  // namespace tandem

// At the beginning of `function`, which stands in front of `name`: what `real` calls.
#define TANDEM_REAL(function, name) static const auto real = tandem::RealFunction(&function, name)
