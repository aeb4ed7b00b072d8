// A joining thread whose name shows up in gdb, top and the log.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace tandem {

// Starts `body` at once. The destructor joins: whoever owns it must first make `body` return.
class NamedThread {
 public:
  NamedThread() = default;
  NamedThread(const std::string& name, std::function<void()> body);
  NamedThread(NamedThread&&) = default;
  NamedThread& operator=(NamedThread&&) = default;
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::jthread thread_;
};

}  // namespace tandem
