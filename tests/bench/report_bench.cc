// tandem-report-bench [STEPS [SAMPLES]]: the end of a long run, by default of 100,000 steps of 512
// samples, which takes about 15 GiB in the current directory: seconds to write its report, seconds
// of pages as ListSteps and ListSamples ask for them, and the memory that all of it added.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <fmt/format.h>

#include "common/base/status.h"
#include "controller/assembly/run_outputs.h"
#include "controller/report/run_figures.h"
#include "controller/store/progress.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "tests/support/large_store.h"

namespace tandem {
namespace {

double SecondsOf(const std::function<absl::Status()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = work();
  if (!status.ok()) {
    fmt::print(stderr, "{}\n", std::string(status.message()));
    std::exit(1);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The most memory that the process has had, in MiB.
double PeakMiB() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

absl::Status Measure(int64_t steps, int64_t samples) {
  const std::string dir = "report_bench.tmp";
  std::filesystem::remove_all(dir);
  TANDEM_RETURN_IF_ERROR(MakeFolder(dir));
  const std::string path = dir + "/run.db";
  TANDEM_ASSIGN_OR_RETURN(const auto store, SqliteRunStore::Open(path));
  const double filling =
      SecondsOf([&] { return testing::FillStore(path, {.steps = steps, .samples = samples}); });
  fmt::print("{} steps of {} samples: run.db has {} MiB, made in {:.1f} s\n", steps, samples,
             std::filesystem::file_size(path) >> 20, filling);
  const double before = PeakMiB();
  ProgressRelay nobody({});
  RunRecorder recorder(*store, nobody, {.run_id = "bench", .run_dir = dir});
  TANDEM_RETURN_IF_ERROR(recorder.Record());
  const double report = SecondsOf([&] {
    recorder.End(absl::OkStatus(), {.completed = true, .steps = steps}, {});
    return absl::OkStatus();
  });
  fmt::print("report       {:8.2f} s, {} KiB\n", report,
             std::filesystem::file_size(dir + "/report.html") >> 10);
  constexpr int64_t kPage = 3 << 20;
  const double steps_page =
      SecondsOf([&] { return store->ListSteps({.limit = 1000, .max_bytes = kPage}).status(); });
  const double samples_page = SecondsOf([&] {
    return store->ListSamples({.step = steps / 2, .limit = 200, .max_bytes = kPage}).status();
  });
  fmt::print("ListSteps    {:8.4f} s a page\nListSamples  {:8.4f} s a page\n", steps_page,
             samples_page);
  fmt::print("memory       {:8.1f} MiB more at the most\n", PeakMiB() - before);
  std::filesystem::remove_all(dir);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 100'000;
  const int64_t samples = argc > 2 ? std::atoll(argv[2]) : 512;
  const absl::Status status = tandem::Measure(steps, samples);
  if (!status.ok()) fmt::print(stderr, "{}\n", std::string(status.message()));
  return status.ok() ? 0 : 1;
}
