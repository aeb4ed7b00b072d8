// A process that can open nothing more.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace tandem::testing {

// While it lives no descriptor is free; those that are open stay so.
class NoFreeDescriptor {
 public:
  NoFreeDescriptor() {
    getrlimit(RLIMIT_NOFILE, &usual_);
    const int first_free = dup(0);
    close(first_free);
    const rlimit none = {.rlim_cur = static_cast<rlim_t>(first_free), .rlim_max = usual_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoFreeDescriptor() { setrlimit(RLIMIT_NOFILE, &usual_); }
  NoFreeDescriptor(const NoFreeDescriptor&) = delete;
  NoFreeDescriptor& operator=(const NoFreeDescriptor&) = delete;

 private:
  rlimit usual_ = {};
};

}  // namespace tandem::testing
