// What stands behind a function that a program defines in front of a shared library's.
#pragma once

#include <dlfcn.h>

namespace tandem {

// `own` only gives the type.
template <typename Function>
Function* RealFunction(Function* /*own*/, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace tandem

// At the beginning of `function`, which stands in front of `name`: what `real` calls.
#define TANDEM_REAL(function, name) static const auto real = tandem::RealFunction(&function, name)
