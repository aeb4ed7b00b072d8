#include "controller/assembly/run_outputs.h"

#include <algorithm>
#include <filesystem>

#include <catch2/catch.hpp>
#include <malloc.h>

#include "common/formats/files.h"
#include "controller/report/run_figures.h"
#include "controller/store/sqlite/sqlite_run_store.h"
#include "tests/support/large_store.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

// Watches the heap while a run's end reads its records.
class WatchedStore : public RunStore {
 public:
  explicit WatchedStore(RunStore& store) : store_(store), before_(mallinfo2().uordblks) {}

  absl::Status RecordRun(const RunInfo& info) override { return store_.RecordRun(info); }
  absl::Status RecordStep(const StepRecord& step) override { return store_.RecordStep(step); }
  absl::Status RecordSamples(int64_t step, const std::vector<SampleRecord>& samples) override {
    return store_.RecordSamples(step, samples);
  }
  absl::Status RecordEvaluation(const EvaluationRecord& evaluation) override {
    return store_.RecordEvaluation(evaluation);
  }
  absl::Status RecordEvents(const std::vector<EventRecord>& events) override {
    return store_.RecordEvents(events);
  }
  absl::Status UndoAfter(int64_t step, int64_t generation) override {
    return store_.UndoAfter(step, generation);
  }
  absl::StatusOr<std::vector<StepRecord>> ListSteps(const StepQuery& query) override {
    return Watch(store_.ListSteps(query));
  }
  absl::StatusOr<SampleRecordPage> ListSamples(const SampleQuery& query) override {
    return Watch(store_.ListSamples(query));
  }
  absl::StatusOr<std::vector<EvaluationRecord>> ListEvaluations(
      const EvaluationQuery& query) override {
    return Watch(store_.ListEvaluations(query));
  }
  absl::StatusOr<std::vector<EventRecord>> ListEvents(int64_t limit) override {
    return Watch(store_.ListEvents(limit));
  }
  size_t peak_bytes() const { return peak_; }

 private:
  template <typename Result>
  Result Watch(Result result) {
    const size_t now = mallinfo2().uordblks + mallinfo2().hblkhd;
    peak_ = std::max(peak_, now > before_ ? now - before_ : 0);
    return result;
  }

  RunStore& store_;
  const size_t before_;
  size_t peak_ = 0;
};

class QuietProgress : public ProgressSink {
 public:
  void OnRunStart(const RunInfo&) override {}
  void OnPhase(int64_t, const std::string&) override {}
  void OnPhaseProgress(int64_t, int64_t, int64_t) override {}
  void OnLogProbs(int64_t, const LogProbSummary&) override {}
  void OnShortened(int64_t) override {}
  void OnStep(const StepRecord&) override {}
  void OnEvaluation(const EvaluationRecord&) override {}
  void OnMessage(const std::string& text) override { messages += text + "\n"; }
  void OnRunEnd(const RunSummary& summary, const RunFigures& figures) override {
    report = summary.report;
    steps = figures.steps;
  }

  std::string messages, report;
  int64_t steps = 0;
};

struct ReportedRun {
  std::string html;
  int64_t steps = 0;
  size_t peak_bytes = 0;
};

// The end of a run of `steps` steps.
ReportedRun ReportRun(int64_t steps) {
  const testing::TempDir dir;
  const std::string path = dir.path() / "run.db";
  const auto store = SqliteRunStore::Open(path).value();
  const absl::Status filled =
      testing::FillStore(path, {.steps = steps, .prompt_bytes = 100'000, .all_sampled = false});
  INFO(filled);
  REQUIRE(filled.ok());
  WatchedStore watched(*store);
  QuietProgress progress;
  RunRecorder recorder(watched, progress, {.run_id = "r", .run_dir = dir.path().string()});
  recorder.Begin();
  REQUIRE(recorder.Record().ok());
  recorder.End(absl::OkStatus(), {.completed = true, .steps = steps}, {});
  INFO(progress.messages);
  REQUIRE(progress.report == (dir.path() / "report.html").string());
  return {ReadWholeFile(progress.report).value(), progress.steps, watched.peak_bytes()};
}

}  // namespace

TEST_CASE("The report of a long run takes no more memory than that of a short one", "[report]") {
  const ReportedRun few = ReportRun(500), many = ReportRun(10'000);
  REQUIRE(few.steps == 500);
  REQUIRE(many.steps == 10'000);
  // All steps together have more than 20 MiB of text.
  constexpr size_t kSlack = 4 << 20;
  INFO(few.peak_bytes << " and " << many.peak_bytes << " bytes");
  REQUIRE(many.peak_bytes < few.peak_bytes + kSlack);
  REQUIRE(many.peak_bytes < 32 << 20);
  REQUIRE(many.html.size() < 8 << 20);
  REQUIRE(Has(many.html, "response of step 1<"));
  REQUIRE(Has(many.html, "response of step 10000<"));
}

TEST_CASE("A run that did not begin leaves the report of the one before", "[report]") {
  const testing::TempDir dir;
  const std::string report = dir.path() / "report.html";
  REQUIRE(WriteFileAtomically(report, "of before").ok());
  const auto store = SqliteRunStore::Open(":memory:").value();
  QuietProgress progress;
  RunRecorder recorder(*store, progress, {.run_id = "r", .run_dir = dir.path().string()});
  recorder.Begin();
  recorder.End(absl::UnavailableError("no worker came"), {}, {});
  REQUIRE(progress.report.empty());
  REQUIRE(ReadWholeFile(report).value() == "of before");
}

TEST_CASE("A report that cannot be written is a warning with the reason", "[report]") {
  const testing::TempDir dir;
  std::filesystem::create_directories(dir.path() / "report.html" / "in the way");
  const auto store = SqliteRunStore::Open(":memory:").value();
  QuietProgress progress;
  RunRecorder recorder(*store, progress, {.run_id = "r", .run_dir = dir.path().string()});
  recorder.Begin();
  REQUIRE(recorder.Record().ok());
  recorder.End(absl::OkStatus(), {.completed = true}, {});
  REQUIRE(Has(progress.messages, "warning: no report was written: "));
  REQUIRE(Has(progress.messages, "report.html"));
  REQUIRE(progress.report.empty());
}

}  // namespace tandem
