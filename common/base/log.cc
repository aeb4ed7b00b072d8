#include "common/base/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "common/base/log_file.h"

namespace tandem {
namespace {

std::atomic<int64_t> current_step{-1};
std::atomic<int64_t> current_version{-1};

std::string NumberOrDash(int64_t value) { return value < 0 ? "-" : std::to_string(value); }

// %* in the pattern: "step=3 version=2", read when the line is written.
class ContextFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string text = "step=" + NumberOrDash(current_step.load()) +
                             " version=" + NumberOrDash(current_version.load());
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return spdlog::details::make_unique<ContextFlag>();
  }
};

// Writes to stderr, and rotates the file if a launcher has redirected stderr to one.
class ErrorStreamSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    std::fwrite(text.data(), 1, text.size(), stderr);
    if (!file_) return;
    std::fflush(stderr);
    file_->RotateIfLarge();
  }
  void flush_() override { std::fflush(stderr); }

 private:
  std::optional<LogFile> file_ = LogFile::FromEnvironment();
};

spdlog::level::level_enum LibraryLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void InitLog(const std::string& role, int rank) {
  auto logger = std::make_shared<spdlog::logger>(role, std::make_shared<ErrorStreamSink>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  const std::string who = role + " rank=" + NumberOrDash(rank) + " pid=" + std::to_string(getpid());
  formatter->add_flag<ContextFlag>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%e %L " + who + " %*  %v");
  logger->set_formatter(std::move(formatter));
  const char* level = std::getenv("TANDEM_LOG_LEVEL");
  logger->set_level(level == nullptr ? spdlog::level::info : spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void SetLogLevel(LogLevel level) { spdlog::set_level(LibraryLevel(level)); }

void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  if (!logger->should_log(LibraryLevel(level))) return;
  const std::string text = fmt::vformat(format, args);
  logger->log(LibraryLevel(level), spdlog::string_view_t(text.data(), text.size()));
}

void SetLogStep(int64_t step) { current_step.store(step); }
int64_t LogStep() { return current_step.load(); }
void SetLogVersion(int64_t weight_version) { current_version.store(weight_version); }

}  // namespace tandem
