// tandem-report-bench [STEPS [SAMPLES]]: the end of a long run, by default of 100,000 steps of 512
// samples, which takes about 15 GiB in the current directory: seconds to write its report, seconds
// of pages as ListSteps and ListSamples ask for them and of the dashboard's answers, and the memory
// that all of it added; and
// milliseconds to record one more step, in the store alone, with and without distributions,
// updates, syncs and load. The steps have the ledgers of eight pairs.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/http/gzip.h"
#include "common/http/target.h"
#include "controller/assembly/run_outputs.h"
#include "controller/report/run_figures.h"
#include "controller/store/progress.h"
#include "controller/store/sqlite/record_json.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "controller/web/dashboard.h"
#include "controller/wire/run_answers.h"
#include "tandem/v1/controller.pb.h"
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

// Of eight pairs in a phase.
std::string LedgersOfPairs() {
  std::vector<WorkerMemory> workers;
  for (int rank = 0; rank < 8; ++rank) {
    for (const bool trainer : {true, false}) {
      LedgerSnapshot ledger;
      for (const char* tag : {"weights", "kv_cache", "optimizer", "master", "gradients", "gather",
                              "bucket", "activations", "workspace"}) {
        ledger.entries.push_back({tag, Location::kDevice, 123'456'789, 234'567'890});
      }
      workers.push_back({trainer, rank, ledger});
    }
  }
  return WorkersToJson(workers);
}

// Milliseconds of a step's records, the mean of some steps.
struct RecordTime {
  double clock = 0;
  double processor = 0;  // of this process, without waits for the disk
};

double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// A step of eight pairs. With `details`: all that schema version 6 added to it.
StepRecord StepOfPairs(int64_t samples, bool details) {
  const std::vector<WorkerMemory> workers = WorkersFromJson(LedgersOfPairs());
  StepRecord record{.finished_at = "2026-01-02T03:04:05.000006Z"};
  for (int i = 0; i < 130; ++i) record.metrics[fmt::format("some/metric/of/a/step_{}", i)] = i;
  for (const char* phase : {"generate", "score", "train", "optimize", "sync", "wake"}) {
    record.phases.push_back({.phase = phase, .seconds = 1, .workers = workers});
  }
  for (int64_t i = 0; i < samples / 8; ++i) record.groups.push_back({.group = i, .samples = 8});
  if (!details) return record;
  Histogram histogram{.low = -1, .high = 1};
  for (int64_t i = 0; i < samples; ++i) histogram.Add(std::sin(static_cast<double>(i)));
  for (const char* name : {kRewardHistogram, kLengthHistogram, kAdvantageHistogram,
                           kLogProbHistogram, kRatioHistogram}) {
    record.histograms[name] = histogram;
  }
  for (int64_t update = 0; update < 4; ++update) {
    record.updates.push_back({.version = update, .samples = samples / 4, .tokens = samples * 50});
    for (int i = 0; i < 20; ++i) {
      record.updates.back().metrics[fmt::format("actor/metric_{}", i)] = 0.125 * i;
    }
  }
  for (int rank = 0; rank < 8; ++rank) {
    record.syncs.push_back({.rank = rank, .bytes = 1 << 30, .digest = std::string(32, 'd')});
    for (int64_t second = 0; second < 30; ++second) {
      record.load.push_back({.time_us = second * 1'000'000, .rank = rank, .load = {.running = 64}});
    }
  }
  return record;
}

// Records `count` steps after `last`.
absl::StatusOr<RecordTime> RecordMore(
    RunStore& store, int64_t last, int64_t samples, int64_t count, bool details) {
  StepRecord record = StepOfPairs(samples, details);
  std::vector<SampleRecord> rows(static_cast<size_t>(samples));
  const double processor = ProcessorSeconds();
  const double seconds = SecondsOf([&]() -> absl::Status {
    for (int64_t i = 0; i < count; ++i) {
      record.step = last + 1 + i;
      for (size_t k = 0; k < rows.size(); ++k) {
        rows[k] = {.sample_id = k, .group = static_cast<int64_t>(k / 8)};
        // New prompts in every step, as in an epoch.
        rows[k].prompt = fmt::format("{:0>100}", record.step * samples + rows[k].group);
        rows[k].response.assign(800, 'r');
        if (details) rows[k].min_log_prob = -0.5;
        if (details) rows[k].repetition = 0.25;
      }
      TANDEM_RETURN_IF_ERROR(store.RecordSamples(record.step, rows));
      TANDEM_RETURN_IF_ERROR(store.RecordStep(record));
    }
    return absl::OkStatus();
  });
  const double scale = 1e3 / static_cast<double>(count);
  return RecordTime{.clock = seconds * scale,
                    .processor = (ProcessorSeconds() - processor) * scale};
}

// How long the dashboard takes for what a page asks, and how large the compressed answer is.
void MeasureDashboard(const std::string& dir, int64_t steps) {
  const std::string token(64, 'a');
  Dashboard dashboard({dir}, token, std::string(64, 'b'), RealClock());
  const auto ask = [&](const std::string& what, const std::string& target) {
    const auto parsed = ParseHttpTarget("/api/v1/runs" + target);
    HttpRequest request;
    request.method = "GET";
    request.path = parsed->path;
    request.query = parsed->query;
    request.headers = {{"host", "localhost"}, {"authorization", "Bearer " + token}};
    HttpResponse answer;
    const double seconds = SecondsOf([&] {
      answer = dashboard.Answer(request);
      return answer.status == 200 ? absl::OkStatus() : Internal("{}: {}", target, answer.body);
    });
    fmt::print("{:<22} {:8.4f} s, {:.1f} KiB\n", what, seconds,
               static_cast<double>(Gzip(answer.body).size()) / 1024);
  };
  const std::string run = "/" + std::filesystem::path(dir).filename().string();
  std::string curves = run + "/series?points=240";
  for (int i = 0; i < 18; ++i) curves += fmt::format("&name=some/metric/of/a/step_{}", i);
  ask("list of runs, first", "");
  ask("list of runs, again", "");
  ask("18 curves", curves);
  ask("page of steps", run + "/steps");
  ask("one step", fmt::format("{}/steps/{}", run, steps));
  ask("samples of a step", fmt::format("{}/samples?step={}", run, steps / 2));
  ask("samples by filter",
      fmt::format("{}/samples?step={}&where=reward%3E0&sort=-length", run, steps / 2));
  ask("samples by text", fmt::format("{}/samples?step={}&q=nothing+has+this", run, steps / 2));
  ask("events", run + "/events");
}

absl::Status Measure(int64_t steps, int64_t samples) {
  const std::string dir = "report_bench.tmp";
  std::filesystem::remove_all(dir);
  TANDEM_RETURN_IF_ERROR(MakeFolder(dir));
  const std::string path = dir + "/run.db";
  TANDEM_ASSIGN_OR_RETURN(const auto store, SqliteRunStore::Open(path));
  const double filling = SecondsOf([&] {
    return testing::FillStore(path,
                              {.steps = steps, .samples = samples, .workers = LedgersOfPairs()});
  });
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
  v1::ListStepsRequest newest;
  newest.set_limit(20);
  size_t bytes = 0;
  const double answer = SecondsOf([&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const auto page, AnswerSteps(*store, newest));
    bytes = page.ByteSizeLong();
    return absl::OkStatus();
  });
  fmt::print("newest 20    {:8.4f} s, {} KiB with their ledgers\n", answer, bytes >> 10);
  const double series = SecondsOf(
      [&] { return store->ListSteps({.phases = false, .metrics = {kRewardMean}}).status(); });
  fmt::print("one series   {:8.4f} s\n", series);
  const double one_step = SecondsOf([&] {
    return store->ListSteps({.first_step = steps, .last_step = steps, .details = true}).status();
  });
  fmt::print("one step     {:8.4f} s with all details\n", one_step);
  MeasureDashboard(dir, steps);
  for (const bool details : {false, true, false, true}) {
    TANDEM_ASSIGN_OR_RETURN(const RecordTime more, RecordMore(*store, steps, samples, 50, details));
    fmt::print("a step more  {:8.2f} ms to record, {:.2f} ms of the processor, {}\n", more.clock,
               more.processor, details ? "with all details" : "without details");
  }
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
