#include "controller/store/tensorboard_tracker.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "common/base/log.h"
#include "controller/store/event_file.h"

namespace tandem {
namespace {

double Seconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

std::string HostName() {
  char name[256] = "localhost";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

TensorBoardTracker::TensorBoardTracker(const std::string& dir, Clock& clock) : clock_(clock) {
  std::error_code ignored;  // reported when the file cannot be written
  std::filesystem::create_directories(dir, ignored);
  const std::string stem = fmt::format("{}/events.out.tfevents.{}.{}", dir,
                                       absl::ToUnixSeconds(clock_.Now()), HostName());
  path_ = stem;
  // A run restarted within the second must not continue its predecessor's file.
  for (int i = 1; std::filesystem::exists(path_, ignored); ++i)
    path_ = fmt::format("{}.{}", stem, i);
  file_.open(path_, std::ios::binary);
  std::lock_guard lock(mutex_);
  Write(FileVersionEvent(Seconds(clock_.Now())));
}

void TensorBoardTracker::Log(int64_t step, const Metrics& metrics) {
  std::lock_guard lock(mutex_);
  Write(ScalarsEvent(Seconds(clock_.Now()), step, metrics));
}

void TensorBoardTracker::Rewind(int64_t step) {
  std::lock_guard lock(mutex_);
  Write(SessionStartEvent(Seconds(clock_.Now()), step + 1));
}

void TensorBoardTracker::Flush() {
  std::lock_guard lock(mutex_);
  file_.flush();
}

void TensorBoardTracker::Write(const std::string& event) {
  file_ << TfRecord(event) << std::flush;
  if (!file_ && !std::exchange(reported_, true)) {
    LogWarn("cannot write TensorBoard events to {}: the run goes on without them", path_);
  }
}

}  // namespace tandem
