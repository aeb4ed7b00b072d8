#include "controller/report/run_report.h"

#include <utility>
#include <vector>

#include "common/base/status.h"
#include "controller/report/html_report.h"
#include "controller/store/record_pages.h"

namespace tandem {
namespace {

constexpr int64_t kReportSamples = 16;         // samples of the first and of the last step
constexpr int64_t kReportTextBytes = 4 << 20;  // of their texts, about

absl::StatusOr<std::vector<SampleRecord>> SamplesForReport(RunRecords& records, int64_t step) {
  TANDEM_ASSIGN_OR_RETURN(
      SampleRecordPage page,
      records.ListSamples({.step = step, .limit = kReportSamples, .max_bytes = kReportTextBytes}));
  return std::move(page.samples);
}

}  // namespace

absl::StatusOr<RunFigures> GatherFigures(RunRecords& records) {
  RunFigures figures;
  TANDEM_RETURN_IF_ERROR(
      ForEachStep(records, /*undone=*/false, [&](const StepRecord& step) { figures.Add(step); }));
  TANDEM_RETURN_IF_ERROR(ForEachStep(records, /*undone=*/true,
                                     [&](const StepRecord& step) { figures.AddUndone(step); }));
  TANDEM_RETURN_IF_ERROR(ForEachEvaluation(
      records, {}, [&](const EvaluationRecord& evaluation) { figures.Add(evaluation); }));
  return figures;
}

absl::StatusOr<std::string> MakeRunReport(RunRecords& records,
                                          const RunInfo& info,
                                          const std::optional<RunSummary>& summary,
                                          const RunFigures& figures,
                                          const std::string& note) {
  ReportInput report{.info = info, .summary = summary, .figures = figures, .note = note};
  if (figures.steps > 0) {
    TANDEM_ASSIGN_OR_RETURN(report.first_samples, SamplesForReport(records, figures.first_step));
    TANDEM_ASSIGN_OR_RETURN(report.last_samples, SamplesForReport(records, figures.last_step));
  }
  return HtmlReport(report);
}

}  // namespace tandem
