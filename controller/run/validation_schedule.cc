#include "controller/run/validation_schedule.h"

#include "common/base/status.h"
#include "common/process/fault_injection.h"
#include "controller/run/evaluation.h"
#include "controller/store/record_pages.h"
#include "controller/store/run_store.h"

namespace tandem {

bool ValidationSchedule::done() const {
  return context_.validation.empty() || evaluated_.contains(position_.finished_steps);
}

bool ValidationSchedule::Due() const {
  const int64_t step = position_.finished_steps;
  if (step == 0 || control_.stop_now()) return false;
  const bool wanted =
      step >= length_.total_steps() || (options_.test_freq > 0 && step % options_.test_freq == 0);
  return wanted && !done();
}

absl::Status ValidationSchedule::Reload() {
  evaluated_.clear();
  return ForEachEvaluation(context_.store, {}, [this](const EvaluationRecord& evaluation) {
    evaluated_.insert(evaluation.step);
    length_.ExpectValidation(absl::Seconds(evaluation.seconds));
  });
}

absl::Status ValidationSchedule::Validate() {
  if (context_.validation.empty()) return absl::OkStatus();
  FaultPoint("evaluate");
  const absl::StatusOr<EvaluationRecord> record =
      Evaluate(context_, {.step = position_.finished_steps,
                          .version = position_.version,
                          .samples = options_.validation_samples,
                          .sampling = options_.validation_sampling});
  if (absl::IsCancelled(record.status()) && control_.stop_now()) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(record.status());
  TANDEM_RETURN_IF_ERROR(context_.store.RecordEvaluation(*record));
  evaluated_.insert(record->step);
  length_.CountValidation(absl::Seconds(record->seconds));
  context_.tracker.Log(record->step, record->metrics);
  TANDEM_RETURN_IF_ERROR(context_.disk.Until({.what = "metrics", .folder = options_.run_dir},
                                             [this] { return context_.tracker.Flush(); }));
  context_.progress.OnEvaluation(*record);
  return absl::OkStatus();
}

}  // namespace tandem
