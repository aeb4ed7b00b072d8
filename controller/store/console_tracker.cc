#include "controller/store/console_tracker.h"

#include <string>

#include <fmt/format.h>

namespace tandem {

void ConsoleTracker::Log(int64_t step, const Metrics& metrics) {
  std::string line = fmt::format("step:{}", step);
  for (const auto& [name, value] : metrics) line += fmt::format(" - {}:{:.6g}", name, value);
  std::lock_guard lock(mutex_);
  out_ << line << '\n' << std::flush;
}

void ConsoleTracker::Flush() {
  std::lock_guard lock(mutex_);
  out_.flush();
}

}  // namespace tandem
